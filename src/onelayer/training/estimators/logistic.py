"""Penalised multinomial logistic regression on the features of a basis: convex, by L-BFGS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

from onelayer.build.lookup.families import softmax
from onelayer.training.estimators.tabular import Array

ALPHAS = (1e-1, 1e-2, 1e-3, 1e-4)  # penalties tried, a decade apart, the strongest first


def fit_logistic(phi: Array, indicator: Array, root: Array, alpha: float) -> tuple[Array, Array]:
    """Values (P, K) and intercept (K,); ``root`` R has R R' = inverse of the penalty matrix."""
    free = (phi - phi.mean(0)) @ root
    found = _solve(free, indicator, alpha, None)
    values = root @ found[:-1]
    return values, found[-1] - phi.mean(0) @ values


def choose_alpha(phi: Array, indicator: Array, root: Array, folds: Sequence[tuple[Any, Any]]) -> float:
    """The weight of the penalty with the smallest log loss on held-out rows."""
    free = (phi - phi.mean(0)) @ root
    losses = np.mean([_held_out(free, indicator, ALPHAS, *fold) for fold in folds], axis=0)
    return ALPHAS[int(losses.argmin())]


def _held_out(free: Array, indicator: Array, alphas: Sequence[float], train: Any, test: Any) -> list[float]:
    """Log loss on the rows ``test`` for falling penalties, each solve starting from the last."""
    losses, found = [], None
    for alpha in alphas:
        found = _solve(free[train], indicator[train], alpha, found)
        chances = softmax(free[test] @ found[:-1] + found[-1])
        losses.append(float(-np.log(np.maximum((chances * indicator[test]).sum(1), 1e-12)).mean()))
    return losses


def _solve(free: Array, indicator: Array, alpha: float, start: Array | None) -> Array:
    """min over w, c of the mean log loss of softmax(free w + c) + alpha |w|^2 / 2; returns w above c, (r + 1, K)."""
    rows, shape = len(free), (free.shape[1] + 1, indicator.shape[1])

    def loss(flat: Array) -> tuple[float, Array]:
        both = flat.reshape(shape)
        logits = free @ both[:-1] + both[-1]
        top = logits.max(1, keepdims=True)
        mass = np.log(np.exp(logits - top).sum(1, keepdims=True)) + top
        error = (np.exp(logits - mass) - indicator) / rows
        value = float((mass[:, 0] - (logits * indicator).sum(1)).mean() + alpha / 2 * (both[:-1] ** 2).sum())
        return value, np.concatenate([free.T @ error + alpha * both[:-1], error.sum(0)[None]]).ravel()

    if start is None:
        start = np.zeros(shape)
        start[-1] = np.log(np.maximum(indicator.mean(0), 1e-3))
    options = {"maxiter": 100, "ftol": 1e-8, "gtol": 1e-5}
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options).x
    return np.asarray(found.reshape(shape))
