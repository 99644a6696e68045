"""Reference arithmetic: the functions of the test cases on arrays of Arb balls or of mpmath numbers.

A test case is written once as f(x, lib). ``lib`` is torch itself for Taylor models, or one of the classes below, whose
arrays are NumPy object arrays of exact-enough numbers, so that both sides read the same formula.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import torch
import torch.nn.functional as F
from flint import arb

Array = np.ndarray[Any, Any]


class TorchLib:
    """The cases' vocabulary in torch: works on tensors and on Taylor models."""

    exp, log, sin, cos, tan, tanh = map(
        staticmethod, (torch.exp, torch.log, torch.sin, torch.cos, torch.tan, torch.tanh)
    )
    sigmoid, sqrt, rsqrt, atan = map(staticmethod, (torch.sigmoid, torch.sqrt, torch.rsqrt, torch.atan))
    asin, acos = map(staticmethod, (torch.asin, torch.acos))
    erf, relu, abs, square = map(staticmethod, (torch.erf, torch.relu, torch.abs, torch.square))
    reciprocal, maximum, minimum = map(staticmethod, (torch.reciprocal, torch.maximum, torch.minimum))
    stack, cat, einsum = map(staticmethod, (torch.stack, torch.cat, torch.einsum))
    gelu, softplus, expm1, log1p = map(staticmethod, (F.gelu, F.softplus, torch.expm1, torch.log1p))
    linear, layer_norm = map(staticmethod, (F.linear, F.layer_norm))

    @staticmethod
    def power(x: Any, n: int) -> Any:
        return x**n

    @staticmethod
    def softmax(x: Any) -> Any:
        return torch.softmax(x, dim=-1)

    @staticmethod
    def log_softmax(x: Any) -> Any:
        return torch.log_softmax(x, dim=-1)

    @staticmethod
    def logsumexp(x: Any) -> Any:
        return torch.logsumexp(x, dim=-1)

    @staticmethod
    def attention(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v)

    @staticmethod
    def sort(x: Any) -> Any:
        return torch.sort(x, dim=-1).values

    @staticmethod
    def amax(x: Any) -> Any:
        return torch.amax(x, dim=-1)

    @staticmethod
    def clamp(x: Any, low: float, high: float) -> Any:
        return torch.clamp(x, low, high)

    @staticmethod
    def sum(x: Any) -> Any:
        return x.sum(-1)

    @staticmethod
    def mean(x: Any) -> Any:
        return x.mean(-1)

    @staticmethod
    def prod(x: Any) -> Any:
        return x.prod(-1)

    @staticmethod
    def norm(x: Any) -> Any:
        return x.norm(dim=-1)

    @staticmethod
    def var(x: Any) -> Any:
        return x.var(-1)

    @staticmethod
    def constant(x: Any, like: Any) -> Any:
        return torch.as_tensor(x)


class ExecutedLib(TorchLib):
    """TorchLib with the weights in the executing type when tensors are executed, unchanged for Taylor models."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def _weight(self, weight: Any, x: Any) -> Any:
        stored = weight.to(self.dtype)
        return stored if isinstance(x, torch.Tensor) else stored.double()

    def constant(self, x: Any, like: Any) -> Any:  # type: ignore[override]
        return self._weight(x, like)

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:  # type: ignore[override]
        return F.linear(x, self._weight(weight, x), None if bias is None else self._weight(bias, x))

    def layer_norm(self, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:  # type: ignore[override]
        return F.layer_norm(x, shape, self._weight(weight, x), self._weight(bias, x), eps)


class _ObjectLib:
    """Everything that does not depend on the number type."""

    def number(self, value: float) -> Any:
        raise NotImplementedError

    def larger(self, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def smaller(self, a: Any, b: Any) -> Any:
        return -self.larger(-a, -b)

    def array(self, value: Any) -> Array:
        values = np.asarray(value.detach().double() if isinstance(value, torch.Tensor) else value)
        return values if values.dtype == object else np.frompyfunc(lambda v: self.number(float(v)), 1, 1)(values)

    def constant(self, x: Any, like: Any) -> Array:
        return self.array(x)

    def map(self, name: str, x: Any) -> Any:
        return _array(np.frompyfunc(lambda v: self.unary(name, v), 1, 1)(x))

    def unary(self, name: str, value: Any) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return lambda x: self.map(name, x)

    def maximum(self, a: Any, b: Any) -> Any:
        return _array(np.frompyfunc(self.larger, 2, 1)(self.array(a), self.array(b)))

    def minimum(self, a: Any, b: Any) -> Any:
        return _array(np.frompyfunc(self.smaller, 2, 1)(self.array(a), self.array(b)))

    def relu(self, x: Any) -> Any:
        return self.maximum(x, 0.0)

    def clamp(self, x: Any, low: float, high: float) -> Any:
        return self.minimum(self.maximum(x, low), high)

    def abs(self, x: Any) -> Any:
        return np.frompyfunc(abs, 1, 1)(x)

    def square(self, x: Any) -> Any:
        return x * x

    def power(self, x: Any, n: int) -> Any:
        """By products: python-flint's power of a ball around zero is not a number."""
        result = x
        for _ in range(n - 1):
            result = result * x
        return result

    def reciprocal(self, x: Any) -> Any:
        return 1 / x

    def stack(self, items: list[Any], dim: int) -> Array:
        return np.stack([np.asarray(item, dtype=object) for item in items], dim)

    def cat(self, items: list[Any], dim: int) -> Array:
        return np.concatenate([np.asarray(item, dtype=object) for item in items], dim)

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        product = x @ self.array(weight).T
        return product if bias is None else product + self.array(bias)

    def einsum(self, equation: str, *operands: Any) -> Any:
        arrays = [self.array(item) for item in operands]
        return _array(np.einsum(equation.replace("...", ""), *arrays, optimize=False))

    def softmax(self, x: Any) -> Any:
        top = self.amax(x)
        powers = self.map("exp", x - top[..., None])
        return powers / _array(powers.sum(-1))[..., None]

    def logsumexp(self, x: Any) -> Any:
        return self.map("log", self.map("exp", x).sum(-1))

    def log_softmax(self, x: Any) -> Any:
        return x - self.logsumexp(x)[..., None]

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        scale = 1 / self.unary("sqrt", self.number(float(q.shape[-1])))
        return self.softmax((q @ np.swapaxes(k, -1, -2)) * scale) @ v

    def layer_norm(self, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        centered = x - self.mean(x)[..., None]
        variance = self.mean(centered * centered)
        scale = self.map("rsqrt", variance + self.number(eps))
        return centered * scale[..., None] * self.array(weight) + self.array(bias)

    def amax(self, x: Any) -> Any:
        rows = [x[..., i] for i in range(x.shape[-1])]
        best = rows[0]
        for row in rows[1:]:
            best = self.maximum(best, row)
        return best

    def sort(self, x: Any) -> Any:
        rows = [x[..., i] for i in range(x.shape[-1])]
        for _ in rows:
            for i in range(len(rows) - 1):
                rows[i], rows[i + 1] = self.minimum(rows[i], rows[i + 1]), self.maximum(rows[i], rows[i + 1])
        return self.stack(rows, -1)

    def sum(self, x: Any) -> Any:
        return _array(x.sum(-1))

    def mean(self, x: Any) -> Any:
        return _array(x.sum(-1) / x.shape[-1])

    def prod(self, x: Any) -> Any:
        return _array(x.prod(-1))

    def norm(self, x: Any) -> Any:
        return self.map("sqrt", (x * x).sum(-1))

    def var(self, x: Any) -> Any:
        centered = x - self.mean(x)[..., None]
        return _array((centered * centered).sum(-1) / (x.shape[-1] - 1))


def _array(value: Any) -> Array:
    """NumPy unpacks arrays without dimensions; the cases index them again."""
    return np.asarray(value, dtype=object)


class ArbLib(_ObjectLib):
    """Balls of python-flint at the current working precision."""

    def number(self, value: float) -> Any:
        return arb(value)

    def larger(self, a: Any, b: Any) -> Any:
        return arb(a).max(arb(b))

    def unary(self, name: str, value: Any) -> Any:
        x = arb(value)
        if name == "sigmoid":
            return 1 / (1 + (-x).exp())
        if name == "softplus":
            return (x.exp() + 1).log()
        if name == "gelu":
            return x * (1 + (x / arb(2).sqrt()).erf()) / 2
        return getattr(x, name)()


class MpLib(_ObjectLib):
    """mpmath numbers at the current working precision."""

    def number(self, value: float) -> Any:
        return mpmath.mpf(value)

    def larger(self, a: Any, b: Any) -> Any:
        return max(mpmath.mpf(a), mpmath.mpf(b))

    def unary(self, name: str, value: Any) -> Any:
        x = mpmath.mpf(value)
        if name == "sigmoid":
            return 1 / (1 + mpmath.exp(-x))
        if name == "softplus":
            return mpmath.log1p(mpmath.exp(x))
        if name == "gelu":
            return x * (1 + mpmath.erf(x / mpmath.sqrt(2))) / 2
        if name == "rsqrt":
            return 1 / mpmath.sqrt(x)
        value = getattr(mpmath, name)(x)
        if isinstance(value, mpmath.mpc):
            raise ValueError(f"{name} is not real at {x}")
        return value
