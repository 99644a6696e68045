"""Black boxes: what is declared is held against every value, values are kept, and failures name their point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.conductor import approximate
from onelayer.errors import FileError, OnelayerError
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.recording.blackbox import BlackBox
from onelayer.recording.lipschitz import Lipschitz, as_lipschitz
from onelayer.recording.target import as_target
from onelayer.result import load


def wave(x: np.ndarray) -> float:
    return float(np.sin(x[0]))


LINE = Box([0.0], [1.0])


def test_a_constant_that_the_points_contradict_is_refused_with_the_pair():
    with pytest.raises(OnelayerError, match=r"too small: wave changes by .* between \(.*\) and \(.*\), where"):
        approximate(BlackBox(wave, 1 / 5000), LINE, 0.1)
    with pytest.raises(OnelayerError, match="too small"):
        approximate(lambda x: np.sin(x[..., 0]) if isinstance(x, np.ndarray) else None, LINE, 0.1, lipschitz=1 / 5000)


def test_a_true_constant_gives_a_conditional_proof():
    a = approximate(BlackBox(wave, 1.0), LINE, 0.05)
    assert a.certificate.proved
    assert a.certificate.method == "conditional on Lipschitz constant"
    assert any("<= 1.0 max_i" in text for text in a.certificate.assumptions)


def test_one_constant_per_axis_proves_what_one_for_all_cannot_afford():
    """Raw units: a change of 1 in rpm is nothing, one in load a lot."""
    box = Box(rpm=(800, 6000), load=(0, 1))
    torque = BlackBox(lambda x: 20 * x[1] + x[0] / 1000, {"rpm": 0.001, "load": 20})
    a = approximate(torque, box, 2.0, max_boxes=4000)
    assert a.certificate.proved
    assert "sum_i L_i" in " ".join(a.certificate.assumptions)


def test_constants_are_read_in_every_form():
    box = Box(rpm=(800, 6000), load=(0, 1))

    def read(given: object) -> Lipschitz:
        return as_lipschitz(given, box, lambda x: x[..., 0])

    assert read(3).constants == (3.0,)
    assert read([1, 2]) == read({"load": 2, "rpm": 1})
    # What is stated is not less than what was declared.
    for given in (Fraction(1, 10), 2**53 + 1, np.longdouble("0.7"), Fraction(1, 10**400)):
        assert read(given).constants[0] >= given
        assert read([given, 1]).constants[0] >= given
    for bad in ([1], {"rpm": 1}, "fast", -1.0, float("nan"), [1.0, float("inf")]):
        with pytest.raises(OnelayerError):
            read(bad)


def test_every_point_is_evaluated_once_and_kept_on_disk(tmp_path):
    calls: list[float] = []

    def counted(x: np.ndarray) -> float:
        calls.append(float(x[0]))
        return wave(x)

    first = approximate(BlackBox(counted, 1.0, cache=tmp_path / "wave.cache"), LINE, 0.05)
    assert len(calls) == len(set(calls)) > 0
    before = len(calls)
    again = BlackBox(counted, 1.0, cache=tmp_path / "wave.cache", max_evaluations=0)
    second = approximate(again, LINE, 0.05)
    assert len(calls) == before
    assert len(again) == before
    assert second.certificate.upper == first.certificate.upper


def test_a_cache_of_another_function_is_refused(tmp_path):
    """Its values were taken for those of the new function: proved to 0.05, and 1 away."""
    cache = tmp_path / "wave.cache"
    first = approximate(BlackBox(wave, 1.0, cache=cache), LINE, 0.05)
    assert "wave.cache" not in first.certificate.function
    with pytest.raises(FileError, match="another function"):
        approximate(BlackBox(lambda x: 1 - wave(x), 1.0, cache=cache), LINE, 0.05)
    believed = approximate(BlackBox(wave, 1.0, cache=cache, max_evaluations=0), LINE, 0.05)
    assert "values of it by wave.cache" in believed.certificate.function


def test_too_few_evaluations_are_said_in_one_line():
    with pytest.raises(OnelayerError, match="max_evaluations=5"):
        approximate(BlackBox(wave, 1.0, max_evaluations=5), LINE, 0.05)


def failing(x: np.ndarray) -> float:
    if x[0] > 0.75:
        raise RuntimeError("no convergence")
    return 0.0


@pytest.mark.parametrize(
    ("f", "line"),
    [
        (failing, r"failing failed at x = \(0\.|failing failed at x = \(1"),
        (lambda x: float("nan") if x[0] > 0.75 else 0.0, "is not finite at x = "),
        (lambda x: "a", "must return numbers"),
    ],
)
def test_a_point_that_fails_is_named_and_the_rest_is_kept(f, line, tmp_path):
    box = BlackBox(f, 1.0, cache=tmp_path / "f.cache")
    with pytest.raises(OnelayerError, match=line):
        as_target(box, LINE)
    assert len(BlackBox(f, 1.0, cache=tmp_path / "f.cache")) == len(box)


@pytest.mark.parametrize("how", ["executor", "jobs"])
def test_values_do_not_depend_on_how_they_are_computed(how):
    points = np.linspace(0, 1, 17)[:, None]
    plain = BlackBox(wave, 1.0)(points)
    if how == "jobs":
        assert np.array_equal(BlackBox(wave, 1.0, jobs=2)(points), plain)
    else:
        with ThreadPoolExecutor(2) as pool:
            assert np.array_equal(BlackBox(wave, 1.0, executor=pool)(points), plain)


def test_values_survive_kill_9(tmp_path):
    program = f"""
        import os, signal
        import numpy as np
        from onelayer.recording.blackbox import BlackBox
        f = BlackBox(lambda x: float(x[0]), 1.0, cache={str(tmp_path / "f.cache")!r})
        f(np.linspace(0, 1, 11)[:, None])
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=os.environ, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(BlackBox(wave, 1.0, cache=tmp_path / "f.cache")) == 11


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database, certainly" * 100)
    with pytest.raises(FileError, match="no cache of evaluations"):
        BlackBox(wave, 1.0, cache=tmp_path / "notes.txt")


def test_an_estimate_is_never_called_proved(tmp_path):
    a = approximate(BlackBox(wave, "estimate"), LINE, 0.1)
    assert a.certificate.status == "estimated"
    assert not a.certificate.proved
    assert "no proof" in str(a.certificate)
    assert any("estimated from 128 values" in text for text in a.certificate.assumptions)
    a.save(tmp_path / "wave")
    assert load(tmp_path / "wave").certificate.status == "estimated"
    with pytest.raises(OnelayerError, match="no proof and cannot be checked"):
        check(tmp_path / "wave")
    text = (tmp_path / "wave" / "certificate.json").read_text()
    with pytest.raises(FileError):
        Certificate.from_json(text.replace('"estimated"', '"proved"'))


def test_a_simulator_of_several_arguments_gets_them_by_name():
    seen = []

    def simulator(load, rpm):
        seen.append((float(load), float(rpm)))
        return 20 * load + rpm / 1000

    a = approximate(BlackBox(simulator, {"rpm": 0.001, "load": 20}), Box(rpm=(800, 6000), load=(0, 1)), 9.0)
    assert a.certificate.proved
    assert all(0 <= load <= 1 and 800 <= rpm <= 6000 for load, rpm in seen)


def test_a_black_box_keeps_the_order_of_its_coordinates() -> None:
    """Its values are known by points: of a box that names a and b the other way round they are other values."""
    box = BlackBox(lambda a, b: a - 2 * b, lipschitz=3.0)
    as_target(box, Box(a=(0, 1), b=(0, 1)))
    as_target(box, Box(a=(0, 0.5), b=(0, 1)))
    with pytest.raises(OnelayerError, match="another order"):
        as_target(box, Box(b=(0, 1), a=(0, 1)))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.complex128(1j * x[0]),
        lambda x: np.array([1j * x[0]]),
        lambda x: np.ma.masked_array([x[0]], mask=[x[0] > 0.4]),
        lambda x: str(x[0]),
    ],
)
def test_what_are_no_real_numbers_is_refused(f: Callable[..., Any]) -> None:
    """NumPy drops imaginary parts without an error, and shows what lies under a mask."""
    with pytest.raises(OnelayerError, match="must return numbers") as caught:
        as_target(BlackBox(f, lipschitz=20.0), LINE)
    assert "\n" not in str(caught.value)


def test_a_tensor_that_holds_no_numbers_ends_in_one_line() -> None:
    with pytest.raises(OnelayerError, match="must return numbers"):
        BlackBox(lambda x: torch.zeros(1, device="meta"), 1.0)([[0.5]])
    grown = torch.tensor([2.0], requires_grad=True)
    assert BlackBox(lambda x: x[0] * grown, 2.0)([[0.5]]).tolist() == [[1.0]]


def test_masked_values_of_declared_code_are_refused() -> None:
    def f(x: np.ndarray) -> np.ndarray:
        return np.ma.masked_array(x[..., 0], mask=np.asarray(x)[..., 0] > 2)

    assert as_target(lambda x: f(x) + np.float64(0), LINE, lipschitz=2.0).paid
    with pytest.raises(OnelayerError, match="masked"):
        as_target(lambda x: np.ma.masked_greater(np.asarray(x)[..., 0], 0.4), LINE, lipschitz=2.0)


def test_a_black_box_by_the_default_dtype_of_torch_is_refused() -> None:
    """It is 0.10000000149 to its owner, and 0.1 was proved within 1e-10."""
    box = Box([0.1], [0.9])
    for constant in (lambda: torch.Tensor([0.1]), lambda: torch.full((1,), 0.1)):
        f = BlackBox(lambda p, constant=constant: float(constant()), lipschitz=0.0)
        with pytest.raises(OnelayerError, match="another default dtype"):
            certify(lambda x: 0 * x[..., 0] + 0.1, f, box, 1e-10)
    named = BlackBox(lambda p: float(torch.full((1,), 0.1, dtype=torch.float32)), lipschitz=0.0)
    assert certify(lambda x: 0 * x[..., 0] + 0.1, named, box, 1e-10).status == "refuted"
    assert named.evaluations == len(named) + 1


def test_code_with_a_declared_constant_is_one_function_under_every_default() -> None:
    box = Box([0.1], [0.9])
    with pytest.raises(OnelayerError, match="another default dtype"):
        as_target(lambda x: torch.special.i0(x[..., 0]) * torch.Tensor([0.1]), box, lipschitz=0.1)
    assert as_target(lambda x: torch.special.i0(x[..., 0]), box, lipschitz=1.0).paid
