"""Attention kinds behind one interface: softmax, sparse (top-k, hardmax) and linear.

Every kind maps a query to non-negative weights over its keys that sum to one, then averages the values, eqs (5)-(7).
Queries arrive already scaled by 1/sqrt(d_k), so a logit is q . k.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.layer.config import Config
from onelayer.layer.grid_kernel import fused

Sources = Sequence[tuple[Tensor, Tensor]]
JUMPS = "its weights jump where two logits are equal; certify a layer with softmax or linear attention"


class Attention(ABC):
    """Weights of a query over keys, and the average of values that they give."""

    @abstractmethod
    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        """(..., N, d_k) and keys (..., S_i, d_k) -> (..., N, sum S_i), rows summing to one."""

    def average(self, query: Tensor, sources: Sources) -> Tensor:
        """Eq (6): sum_j alpha_ij v_j over all tokens of all sources, (..., N, d_v)."""
        keys = [key for key, _ in sources]
        values = [value for _, value in sources]
        return _weighted(self.weights(query, keys), values)


@dataclass(frozen=True)
class Softmax(Attention):
    """Eq (5): alpha_ij = exp(q_i . k_j) / sum_l exp(q_i . k_l)."""

    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        """Softmax of the logits over the keys of all sources."""
        return torch.softmax(_logits(query, keys), dim=-1)


@dataclass(frozen=True)
class TopK(Attention):
    """Softmax over the ``k`` largest logits, zero elsewhere; with k >= S it is softmax itself.

    Logits equal to the k-th largest all stay, so the weights do not depend on the order of the keys.
    """

    k: int

    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        """Softmax of the k largest logits."""
        logits = _numbers(_logits(query, keys), "topk")
        kept = min(self.k, logits.shape[-1])
        best = torch.topk(logits, kept, dim=-1).values
        # By value, not by index: which of equal logits comes first is not defined.
        threshold = best[..., -1:]
        largest = logits.masked_fill(logits < threshold, -torch.inf)
        return torch.softmax(largest, dim=-1)


@dataclass(frozen=True)
class Hardmax(Attention):
    """Equal weights on the largest logits: the limit of softmax(beta q . k) as beta grows, ties included."""

    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        """One over the number of largest logits on each of them."""
        logits = _numbers(_logits(query, keys), "hardmax")
        largest = logits.amax(-1, keepdim=True)
        best = (logits == largest).to(logits.dtype)
        return best / best.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Linear(Attention):
    """alpha_ij = phi(q_i) . phi(k_j) / sum_l phi(q_i) . phi(k_l), evaluated in time linear in the number of keys.

    Feature ``taylor``: phi(q) . phi(k) = sum_{p <= order} (q . k)^p / p!, positive for even order; it tends to softmax
    as order grows and, at fixed order, like |logit|^(order + 1) for small logits. Feature ``elu``: phi(u) = elu(u) + 1.
    """

    feature: str
    order: int

    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        """The kernel of features, normalised; quadratic in the number of keys, for those who want to see them."""
        features = [self._phi(key) for key in keys]
        kernel = _logits(self._phi(query), features)
        return kernel / kernel.sum(-1, keepdim=True)

    def average(self, query: Tensor, sources: Sources) -> Tensor:
        """The same average through sums over the keys that no query enters."""
        features = self._phi(query)
        moments = []
        masses = []
        for keys, values in sources:
            phi = self._phi(keys)  # (..., S, F)
            moments.append(torch.matmul(phi.transpose(-2, -1), values))
            masses.append(phi.sum(-2).unsqueeze(-1))
        top = reduce(operator.add, moments)  # (..., F, d_v)
        bottom = reduce(operator.add, masses)  # (..., F, 1)
        return torch.matmul(features, top) / torch.matmul(features, bottom)  # (..., N, d_v)

    def _phi(self, u: Tensor) -> Tensor:
        if self.feature == "elu":
            # elu(u) + 1, in operations that Taylor models know.
            return torch.relu(u) + torch.exp(-torch.relu(-u))
        # Inner products of u tensored p times are (q . k)^p; either side takes the root of 1 / p!.
        power = torch.ones_like(u[..., :1])
        terms = [power]
        for p in range(1, self.order + 1):
            product = power.unsqueeze(-1) * u.unsqueeze(-2)
            power = product.flatten(-2)  # (..., d^p)
            root = 1 / math.sqrt(math.factorial(p))
            terms.append(power * root)
        return torch.cat(terms, dim=-1)  # (..., 1 + d + ... + d^order)


def grid_average(query: Tensor, axes: Sequence[Tensor], values: Tensor, sources: Sources = ()) -> Tensor:
    """Softmax average over a grid of tokens, one softmax per axis, together with the tokens of ``sources`` if any.

    A grid key is a sum of axis keys, so exp of its logit is a product and the softmax over the grid factorises. Beside
    other tokens the whole grid acts as one token: its logit is the logarithm of the grid's total mass, the sum over the
    axes of logsumexp, and its value the grid's own average.
    """
    # Alone, the grid's mass cancels, and a GPU may do all of it in one kernel.
    if not sources:
        average = fused(query, axes, values, _grid_average)
        if average is None:
            return _grid_average(query, axes, values)
        return average
    logits = _blocks(query, axes)  # r x (..., N, M_a)
    average = _averaged(logits, values)
    masses = [torch.logsumexp(logit, dim=-1, keepdim=True) for logit in logits]
    mass = torch.cat(masses, dim=-1).sum(-1, keepdim=True)  # (..., N, 1)
    tokens = _blocks(query, [keys for keys, _ in sources])  # (..., N, S_i)
    together = torch.cat([*tokens, mass], dim=-1)
    weights = torch.softmax(together, dim=-1)  # (..., N, S + 1), the grid last
    others = _weighted(weights, [item for _, item in sources])
    return others + weights[..., -1:] * average


def _grid_average(query: Tensor, axes: Sequence[Tensor], values: Tensor) -> Tensor:
    """Softmax per axis, then the contraction, of anything that speaks torch functions."""
    return _averaged(_blocks(query, axes), values)


def _averaged(logits: Sequence[Tensor], values: Tensor) -> Tensor:
    """The average over a grid by the logits (..., N, M_a) of its axes."""
    weights = [torch.softmax(logit, dim=-1) for logit in logits]
    return _contract_grid(weights, values)


def _contract_grid(weights: Sequence[Tensor], values: Tensor) -> Tensor:
    """sum_m prod_a weights[a][..., m_a] values[m], one axis at a time: about M operations per query, not M r.

    ``weights[a]`` is (..., N, M_a), ``values`` (M_1, ..., M_r, d_v); the result is (..., N, d_v). The first contraction
    is one matrix product with constants; each later one meets an array already smaller by the factor M_a.
    """
    first, *others = weights
    table = values.reshape(values.shape[0], -1)
    rest = torch.matmul(first, table)  # (..., N, M_2 ... M_r d_v)
    for weight in others:
        *batch, width = rest.shape
        count = weight.shape[-1]
        rest = rest.reshape(*batch, count, width // count)  # (..., N, M_a, M_{a+1} ... M_r d_v)
        rest = torch.matmul(weight.unsqueeze(-2), rest).squeeze(-2)  # (..., N, M_{a+1} ... M_r d_v)
    return rest


# One row per name in ATTENTIONS.
KINDS: dict[str, Callable[[Config], Attention]] = {
    "softmax": lambda config: Softmax(),
    "topk": lambda config: TopK(config.top_k),
    "hardmax": lambda config: Hardmax(),
    "linear": lambda config: Linear(config.feature, config.order),
}


def attention_kind(config: Config) -> Attention:
    """The attention that a configuration names."""
    return KINDS[config.attention](config)


def _logits(query: Tensor, keys: Sequence[Tensor]) -> Tensor:
    blocks = _blocks(query, keys)
    if len(blocks) == 1:
        return blocks[0]
    return torch.cat(blocks, dim=-1)


def _blocks(query: Tensor, keys: Sequence[Tensor]) -> list[Tensor]:
    """Logits (..., N, S_i) of the keys of each source."""
    return [torch.matmul(query, key.transpose(-2, -1)) for key in keys]


def _numbers(logits: Tensor, kind: str) -> Tensor:
    """Logits that are compared must be numbers: enclosures of them do not say which one is the largest."""
    if not isinstance(logits, Tensor):
        raise UnsupportedOperation(f"{kind} attention of enclosures", JUMPS)
    return logits


def _weighted(weights: Tensor, values: Sequence[Tensor]) -> Tensor:
    """Eq (6): weights (..., N, S) times values (..., S_i, d_v) stacked in the order of the weights' columns."""
    parts = []
    start = 0
    for value in values:
        end = start + value.shape[-2]
        own = weights[..., start:end]
        parts.append(torch.matmul(own, value))
        start = end
    return reduce(operator.add, parts)
