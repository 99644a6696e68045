"""Penalised logistic regression on the features of a basis, by scikit-learn's own solver."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from onelayer.build.lookup.families import softmax
from onelayer.training.estimators.tabular import Array

SHARES = (10.0, 1.0, 0.1)  # penalties tried, in units of 1/rows, which is scikit-learn's default
ABSENT = -30.0  # logit of a class that a fold does not hold
FEWEST = 1e-12  # probability whose logarithm still is a number


def fit_logistic(
    phi: Array, indicator: Array, root: Array, alpha: float, weights: Array | None = None
) -> tuple[Array, Array]:
    """Values (P, K) and intercept (K,); ``root`` R has R R' = inverse of the penalty matrix."""
    found = _solve((phi - phi.mean(0)) @ root, indicator, alpha, weights)
    values = root @ found[:-1]
    return values, found[-1] - phi.mean(0) @ values


def held_out_losses(
    phi: Array, indicator: Array, root: Array, alphas: Sequence[float], folds: Sequence[tuple[Any, Any]]
) -> Array:
    """Mean log loss on held-out rows for every penalty, (alphas,)."""
    free = (phi - phi.mean(0)) @ root
    losses = np.zeros((len(folds), len(alphas)))
    for i, (train, test) in enumerate(folds):
        for j, alpha in enumerate(alphas):
            found = _solve(free[train], indicator[train], alpha)
            chances = softmax(free[test] @ found[:-1] + found[-1])
            of_truth = (chances * indicator[test]).sum(1)
            losses[i, j] = -np.log(np.maximum(of_truth, FEWEST)).mean()
    return np.asarray(losses.mean(0))


def _solve(free: Array, indicator: Array, alpha: float, weights: Array | None = None) -> Array:
    """min over w, c of the mean log loss of softmax(free w + c) + alpha |w|^2 / 2; returns w above c, (r + 1, K)."""
    labels = indicator.argmax(1)
    total = len(free) if weights is None else float(weights.sum())
    solver = LogisticRegression(C=1 / (alpha * total), max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a fit that stops early is a stronger penalty
        solver.fit(free, labels, sample_weight=weights)
    coefficients = solver.coef_
    intercept = solver.intercept_
    if len(solver.classes_) == 2:  # one logit, shared by the two classes
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercept = np.array([-1, 1]) * intercept / 2
    found = np.zeros((free.shape[1] + 1, indicator.shape[1]))
    found[-1] = ABSENT
    found[:-1, solver.classes_] = coefficients.T
    found[-1, solver.classes_] = intercept
    return found
