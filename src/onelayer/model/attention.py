"""Attention kinds behind one interface: softmax, sparse (top-k, hardmax) and linear.

Every kind maps a query to non-negative weights over its keys that sum to one, then averages the values, eqs (5)-(7).
Queries arrive already scaled by 1/sqrt(d_k), so a logit is q . k.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.model.config import Config

Sources = Sequence[tuple[Tensor, Tensor]]


class Attention(ABC):
    """Weights of a query over keys, and the average of values that they give."""

    @abstractmethod
    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        """(..., N, d_k) and keys (..., S_i, d_k) -> (..., N, sum S_i), rows summing to one."""

    def average(self, query: Tensor, sources: Sources) -> Tensor:
        """Eq (6): sum_j alpha_ij v_j over all tokens of all sources, (..., N, d_v)."""
        weights = self.weights(query, [keys for keys, _ in sources])
        if len(sources) == 1:
            return torch.matmul(weights, sources[0][1])
        start, total = 0, None
        for keys, values in sources:
            part = torch.matmul(weights[..., start : start + keys.shape[-2]], values)
            total = part if total is None else total + part
            start += keys.shape[-2]
        assert total is not None
        return total


@dataclass(frozen=True)
class Softmax(Attention):
    """Eq (5): alpha_ij = exp(q_i . k_j) / sum_l exp(q_i . k_l)."""

    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        return torch.softmax(_logits(query, keys), dim=-1)


@dataclass(frozen=True)
class TopK(Attention):
    """Softmax over the ``k`` largest logits, zero elsewhere; with k >= S it is softmax itself.

    Logits equal to the k-th largest all stay, so the weights do not depend on the order of the keys.
    """

    k: int

    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        logits = _logits(query, keys)
        threshold = torch.topk(logits, min(self.k, logits.shape[-1]), dim=-1).values[..., -1:]
        return torch.softmax(logits.masked_fill(logits < threshold, -torch.inf), dim=-1)


@dataclass(frozen=True)
class Hardmax(Attention):
    """Equal weights on the largest logits: the limit of softmax(beta q . k) as beta grows, ties included."""

    def weights(self, query: Tensor, keys: Sequence[Tensor]) -> Tensor:
        logits = _logits(query, keys)
        best = (logits == logits.amax(-1, keepdim=True)).to(logits.dtype)
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
        kernel = _logits(self._phi(query), [self._phi(key) for key in keys])
        return kernel / kernel.sum(-1, keepdim=True)

    def average(self, query: Tensor, sources: Sources) -> Tensor:
        features = self._phi(query)
        top = bottom = None
        for keys, values in sources:
            phi = self._phi(keys)  # (..., S, F)
            moment = torch.matmul(phi.transpose(-2, -1), values)  # (..., F, d_v)
            mass = phi.sum(-2).unsqueeze(-1)  # (..., F, 1)
            top = moment if top is None else top + moment
            bottom = mass if bottom is None else bottom + mass
        assert top is not None
        assert bottom is not None
        return torch.matmul(features, top) / torch.matmul(features, bottom)

    def _phi(self, u: Tensor) -> Tensor:
        if self.feature == "elu":
            return F.elu(u) + 1
        power = torch.ones_like(u[..., :1])
        terms = [power]
        for p in range(1, self.order + 1):
            power = (power.unsqueeze(-1) * u.unsqueeze(-2)).flatten(-2)  # u tensored p times, (..., d^p)
            terms.append(power * (1 / math.sqrt(math.factorial(p))))
        return torch.cat(terms, dim=-1)


def attention_kind(config: Config) -> Attention:
    """The attention that a configuration names."""
    if config.attention == "topk":
        return TopK(config.top_k)
    if config.attention == "hardmax":
        return Hardmax()
    if config.attention == "linear":
        return Linear(config.feature, config.order)
    return Softmax()


def _logits(query: Tensor, keys: Sequence[Tensor]) -> Tensor:
    blocks = [torch.matmul(query, key.transpose(-2, -1)) for key in keys]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-1)
