"""Pinned ground: one state inside, whatever was outside, and everything given back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from flint import ctx
from threadpoolctl import threadpool_info, threadpool_limits
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import onelayer as ol
from onelayer.build.memorize import labels, recall
from onelayer.build.sort import maximum, median, minimum, order_statistic, top_k_sum
from onelayer.build.tables.table import read_table
from onelayer.errors import OnelayerError
from onelayer.ground import ball_precision, pinned
from onelayer.pictures.live_page import to_html
from onelayer.proof.files import write_proof
from onelayer.proof.saved import written
from onelayer.recording.target import as_target

DOORS: list[Callable[..., Any]] = [
    ol.approximate,
    ol.certify,
    ol.check,
    ol.load,
    ol.memorize,
    ol.sort,
    as_target,
    ol.gather,
    labels,
    maximum,
    median,
    minimum,
    order_statistic,
    read_table,
    recall,
    ol.superpose,
    top_k_sum,
    write_proof,
    written,
    to_html,
    ol.Box([0.0], [1.0]).sample,
    ol.Box([0.0], [1.0]).corners,
]


class Passing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def state() -> dict[str, Any]:
    tiny = torch.tensor(2.0**-1070, dtype=torch.float64, device="cpu")
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "products": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "threads": torch.get_num_threads(),
        "denormals": float(tiny * 1.0) != 0.0,
        "numpy": np.geterr(),
        "flint": ctx.prec,
    }


@pytest.fixture
def hostile() -> Iterator[None]:
    threads, old = torch.get_num_threads(), np.geterr()
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("meta")
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(2)
    torch.set_flush_denormal(True)
    np.seterr(all="raise")
    ctx.prec = 17
    try:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            yield
    finally:
        ctx.prec = 53
        np.seterr(**old)
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("hostile")
def test_one_state_inside_and_the_old_one_after() -> None:
    before = state()
    with pinned():
        inside = state()
        with pinned():
            assert state() == inside
        assert state() == inside
    assert inside == {
        "dtype": torch.float64,
        "device": torch.device("cpu"),
        "grad": False,
        "inference": False,
        "products": "highest",
        "deterministic": False,
        "autocast": False,
        "threads": 1,
        "denormals": True,
        "numpy": {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
        "flint": 53,
    }
    assert state() == before


@pytest.mark.usefixtures("hostile")
def test_an_exception_gives_everything_back() -> None:
    before = state()
    with pytest.raises(ZeroDivisionError), pinned():
        raise ZeroDivisionError
    assert state() == before
    with pytest.raises(OnelayerError):
        ol.certify(lambda x: None, "x", ol.Box([0.0], [1.0]))
    assert state() == before


def test_what_is_changed_inside_is_given_back() -> None:
    before = state()
    with pinned():
        torch.set_default_dtype(torch.float16)
        torch.set_num_threads(2)
        torch.set_flush_denormal(True)
        with pinned():
            assert torch.get_default_dtype() == torch.float64
    assert state() == before


def test_linear_algebra_has_one_thread_inside_and_its_own_after() -> None:
    """NumPy and SciPy each bring a library; threads of either cost more than they gain on small matrices."""

    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        with pinned():
            assert threads() == [1] * len(before)
        assert threads() == before
    assert len(before) >= 2


def test_threads_that_overlap_share_the_settings_of_the_process() -> None:
    """The first to come saves them, the last to go gives them back: no thread loses the ground under another."""
    entered, leave, seen = threading.Event(), threading.Event(), []

    def stay() -> None:
        with pinned():
            entered.set()
            leave.wait(10)
            seen.append(torch.get_default_dtype())

    worker = threading.Thread(target=stay)
    with pinned():
        worker.start()
        entered.wait(10)
    assert torch.get_default_dtype() == torch.float64  # the worker still stands on it
    leave.set()
    worker.join(10)
    assert seen == [torch.float64]
    assert torch.get_default_dtype() == torch.float32


def test_threads_that_overlap_keep_the_precision_of_their_balls() -> None:
    """Flint has one context for all threads; coefficients of a series beyond its cap are lost."""
    entered, leave, seen = threading.Event(), threading.Event(), []

    def stay() -> None:
        with pinned(), ball_precision(128, 40):
            entered.set()
            leave.wait(10)
            seen.append((ctx.prec, ctx.cap))

    worker = threading.Thread(target=stay)
    ctx.cap = 2
    try:
        with pinned():
            worker.start()
            entered.wait(10)
            with pinned(), ball_precision(64):
                assert (ctx.prec, ctx.cap) == (128, 40)
        leave.set()
        worker.join(10)
        assert seen == [(128, 40)]
        assert (ctx.prec, ctx.cap) == (53, 2)
    finally:
        ctx.cap = 10


def test_settings_by_backend_are_given_back() -> None:
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        with pinned():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "bf16"
    finally:
        matmul.fp32_precision = before


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_door_that_builds_or_proves_is_pinned(door: Callable[..., Any]) -> None:
    """Under a foreign mode each says so before it looks at its arguments."""
    with Passing(), pytest.raises(OnelayerError, match="Passing is active"):
        door()


def test_dispatch_modes_are_refused() -> None:
    with FlopCounterMode(display=False), pytest.raises(OnelayerError, match="FlopCounterMode is active"):
        ol.Box([0.0], [1.0]).sample(4)


def test_the_flag_of_cudnn_can_be_read_on_pinned_ground_and_is_given_back() -> None:
    """torch.export reads it, and torch refuses where the flag and the backends disagree."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32
    with pinned():
        assert cudnn.allow_tf32 is False
    assert cudnn.allow_tf32 is before
