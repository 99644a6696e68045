"""Pinned ground: inside it no global setting of the process can reach the numbers, and on leaving all are given back.

What a torch program computes depends on the default dtype and device, on gradient and inference mode, on autocast, on
reduced-precision products, on flushed denormals, on the number of threads and on function modes; what flint and NumPy
do depends on their contexts and on the threads of their linear algebra. Everything that builds or proves runs inside
``pinned()``, users' functions included.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  (its linear algebra is a library of its own, and must be loaded to be pinned)
import torch
from flint import ctx
from threadpoolctl import ThreadpoolController
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from onelayer.errors import OnelayerError

# Flint's own defaults; rooms that need more set it themselves.
FLINT_BITS, FLINT_TERMS = 53, 10
AUTOCAST = ("cpu", "cuda")


@contextmanager
def pinned() -> Iterator[None]:
    """Run a block, or a function as ``@pinned()``, in one fixed state of torch, NumPy and flint; give back the old one.

    Inside: float64 and the CPU are the defaults, nothing is recorded for gradients, products are as precise as their
    format, denormals live, one thread sums in one order. Refused, because they cannot be undone from inside: a rounding
    direction other than to nearest, and foreign function or dispatch modes, which would compute in our place.
    """
    _refuse_foreign_modes()
    _refuse_directed_rounding()
    with ExitStack() as stack:
        # First in, last out: what a thread pins for itself is given back before the process changes around it.
        stack.enter_context(_PROCESS.held())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        for setting in _thread_settings():
            # Registered before the change, so that an interruption in between gives it back too.
            stack.callback(setting.put, setting.read())
            setting.put(setting.pinned)
        stack.enter_context(ball_precision(FLINT_BITS, FLINT_TERMS))
        yield


@dataclass(frozen=True)
class OtherSetting:
    """A setting on which code may branch, and a value that a caller may have for it beside the pinned one."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    other: Any


DEFAULT_DTYPE = OtherSetting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32)
GRADIENTS = OtherSetting("whether gradients are recorded", torch.is_grad_enabled, torch.set_grad_enabled, True)
THREADS = OtherSetting("the number of threads", torch.get_num_threads, torch.set_num_threads, 4)
_FAST, _DETERMINISTIC = torch.backends.mha, torch.are_deterministic_algorithms_enabled
GLOBAL = (
    DEFAULT_DTYPE,
    GRADIENTS,
    THREADS,
    OtherSetting("the fast path of attention", _FAST.get_fastpath_enabled, _FAST.set_fastpath_enabled, False),
    OtherSetting("whether algorithms are deterministic", _DETERMINISTIC, torch.use_deterministic_algorithms, True),
)


@contextmanager
def another(*settings: OtherSetting) -> Iterator[None]:
    """Run a block of foreign code under other settings than the pinned ones, which are given back."""
    with ExitStack() as stack:
        for setting in settings:
            stack.callback(setting.write, setting.read())
            setting.write(setting.other)
        yield


@contextmanager
def ball_precision(bits: int, terms: int = FLINT_TERMS) -> Iterator[None]:
    """At least this precision of flint's balls and this many terms of its series, as long as the block runs.

    Flint has one context for all threads: it has the most that any of them asks for; the last gives the old one back.
    """
    with _FLINT.lock:
        if not _FLINT.asked:
            _FLINT.before = (ctx.prec, ctx.cap)
        _FLINT.asked.append((bits, terms))
        _FLINT.set()
    try:
        yield
    finally:
        with _FLINT.lock:
            _FLINT.asked.remove((bits, terms))
            _FLINT.set()


class _Flint:
    """What blocks that are running ask of flint's context, and what it was before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked: list[tuple[int, int]] = []
        self.before = (FLINT_BITS, FLINT_TERMS)

    def set(self) -> None:
        """The largest of each, or what was before."""
        ctx.prec, ctx.cap = map(max, zip(*self.asked, strict=True)) if self.asked else self.before


_FLINT = _Flint()


@dataclass(frozen=True)
class _PinnedSetting:
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    pinned: Any

    def put(self, value: Any) -> None:
        """Some settings are slow to write, so only a change is written."""
        if self.read() != value:
            self.write(value)


def _attribute(owner: Any, name: str, value: Any) -> _PinnedSetting:
    def read() -> Any:
        return getattr(owner, name)

    def write(found: Any) -> None:
        setattr(owner, name, found)

    return _PinnedSetting(read, write, value)


def _thread_settings() -> list[_PinnedSetting]:
    """What each thread has for itself."""
    return [
        *map(_autocast, AUTOCAST),
        _PinnedSetting(torch.get_num_threads, torch.set_num_threads, 1),
        _PinnedSetting(_denormals_flushed, torch.set_flush_denormal, False),
    ]


def _autocast(kind: str) -> _PinnedSetting:
    def read() -> bool:
        return torch.is_autocast_enabled(kind)

    def write(wanted: bool) -> None:
        torch.set_autocast_enabled(kind, wanted)

    return _PinnedSetting(read, write, False)


def _process_settings() -> list[_PinnedSetting]:
    """What the whole process shares, in the order in which it is pinned; given back in the opposite order.

    Torch keeps the precision of float32 products thrice: by one word, by backend, and for cuDNN by a flag, which it
    refuses to read where the backends say otherwise. The word comes last: it overwrites the others, which are then
    given back after it.
    """
    backends = torch.backends
    pools = [_PinnedSetting(pool.get_num_threads, pool.set_num_threads, 1) for pool in _linear_algebra()]
    return [
        *pools,
        _PinnedSetting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
        _PinnedSetting(_deterministic, _set_deterministic, (False, False)),
        _attribute(backends.cudnn, "benchmark", False),
        _attribute(backends.cudnn, "deterministic", True),
        _PinnedSetting(backends.mha.get_fastpath_enabled, backends.mha.set_fastpath_enabled, True),
        _PinnedSetting(_cudnn_tf32, _set_cudnn_tf32, False),
        *_precisions(),
        _PinnedSetting(_matmul_precision, _set_matmul_precision, "highest"),
    ]


def _precisions() -> list[_PinnedSetting]:
    """The precision of float32 products by backend, as far as this version of torch knows it."""
    backends = torch.backends
    kept = {backends.cuda: ["matmul"], backends.cudnn: ["conv", "rnn"], backends.mkldnn: ["matmul", "conv", "rnn"]}
    settings = []
    for owner, names in kept.items():
        for name in names:
            part = getattr(owner, name, None)
            if hasattr(part, "fp32_precision"):
                settings.append(_attribute(part, "fp32_precision", "ieee"))
    return settings


@cache
def _linear_algebra() -> list[Any]:
    """The thread pools of NumPy's and SciPy's linear algebra: on matrices as small as ours threads only wait."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(found: tuple[bool, bool]) -> None:
    wanted, warn_only = found
    torch.use_deterministic_algorithms(wanted, warn_only=warn_only)


def _cudnn_tf32() -> bool | None:
    """The flag, or None where it contradicts what the backends say and torch has none."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return None


def _set_cudnn_tf32(allowed: bool | None) -> None:
    if allowed is not None:
        torch.backends.cudnn.allow_tf32 = allowed


def _matmul_precision() -> str | None:
    """The one word, or None where the backends disagree and torch has none."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_matmul_precision(word: str | None) -> None:
    if word is not None:
        torch.set_float32_matmul_precision(word)


class _Process:
    """The settings of the process, held by any number of threads: the first saves them, the last gives them back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders = 0
        self.saved: list[tuple[_PinnedSetting, Any]] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        with self.lock:
            settings = _process_settings()
            if self.holders == 0:
                self.saved = [(setting, setting.read()) for setting in settings]
            self.holders += 1
            # By every holder: a user's thread may have changed a setting while another thread held them.
            for setting in settings:
                setting.put(setting.pinned)
        try:
            yield
        finally:
            with self.lock:
                self.holders -= 1
                if self.holders == 0:
                    for setting, found in reversed(self.saved):
                        setting.put(found)


_PROCESS = _Process()
# A process is forked between two changes of what is shared: a lock that another thread holds is never freed in a copy.
for _shared in (_PROCESS.lock, _FLINT.lock):
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_shared.acquire, after_in_parent=_shared.release, after_in_child=_shared.release)


def _denormals_flushed() -> bool:
    """Torch does not tell; half of the smallest normal number does."""
    return sys.float_info.min / 2 == 0.0


def _refuse_directed_rounding() -> None:
    # Not the literal 1.0: sums of literals are computed once, when the file is compiled.
    one = float(len("1"))
    small = sys.float_info.epsilon / 8
    # The first fails when rounding is upwards, the second when it is downwards or towards zero, the third downwards.
    nearest = one + small == one and one - small / 2 == one and -one - small == -one
    if not nearest:
        raise OnelayerError("this thread does not round to nearest; set the rounding direction back first")


def foreign_modes() -> list[Any]:
    """Function and dispatch modes that see every operation, and may compute in its place."""
    stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    modes = [mode for mode in stack if not isinstance(mode, DeviceContext)]
    return [*modes, *(mode for mode in _get_current_dispatch_mode_stack() if not isinstance(mode, Watching))]


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees whether a block computes anything with torch, and computes nothing in its place."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler, for seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen = True
        return func(*args, **(kwargs or {}))


def _refuse_foreign_modes() -> None:
    for mode in foreign_modes():
        raise OnelayerError(
            f"{type(mode).__name__} is active and would compute in our place; leave its 'with' block first"
        )
