"""Outside the domain a model warns, raises or clamps, as it was told, natively and in ONNX; inside it is the model."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.export import stock
from onelayer.export.exporter import export
from onelayer.export.onnx import to_onnx
from onelayer.guard import Guarded, OutsideDomain, OutsideDomainWarning, inward
from onelayer.proof.certify import certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation

BOX = Box([0.0, 0.0], [2.0, 0.1])
UNIT = Box([0.0], [1.0])


@pytest.fixture(scope="module", params=["float64", "float32"])
def made(request: pytest.FixtureRequest) -> Approximation:
    from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model

    slopes = torch.tensor([-1.0, 0.0, 1.0]).double()
    head = LookupHead([AxisKeys(0, slopes, slopes)], torch.tensor([[1.0], [2.0], [4.0]]).double())
    model = lookup_model(2, (), [head], dtype=getattr(torch, request.param))
    f = "x1 + x2"
    return Approximation(model, certify(model, f, BOX, 9.0), as_target(f, BOX))


def points(a: Approximation) -> torch.Tensor:
    return torch.tensor([[1.0, 0.05], [3.0, 0.05], [1.0, -1.0], [math.nan, 0.05]], dtype=a.model.dtype)


def test_inside_it_is_the_model(made: Approximation) -> None:
    x = BOX.sample(50).to(made.model.dtype)
    x = torch.minimum(x, inward(BOX.upper, x.dtype, up=False))
    for guard in (None, "warn", "raise", "clamp"):
        assert torch.equal(made.guarded(guard)(x), made.model(x))


def test_raise_names_the_point(made: Approximation) -> None:
    with pytest.raises(OutsideDomain, match=r"3 of 4 points .* point 1: coordinate 1 is 3.0, not in \[0.0, 2.0\]"):
        made.guarded("raise")(points(made))
    with pytest.raises(OutsideDomain, match="nan"):
        made.guarded()(points(made)[3:])


def test_warn_computes_all_the_same(made: Approximation) -> None:
    with pytest.warns(OutsideDomainWarning, match="3 of 4"):
        found = made.guarded("warn")(points(made))
    assert torch.equal(found[:3], made.model(points(made))[:3])


def test_clamp_moves_to_the_nearest_point_and_leaves_nan(made: Approximation) -> None:
    x = points(made)
    found = made.guarded("clamp")(x)
    low = inward(BOX.lower, x.dtype, up=True)
    high = inward(BOX.upper, x.dtype, up=False)
    assert torch.equal(found[:3], made.model(x[:3].clamp(low, high)))
    assert bool(found[3].isnan())


def test_without_a_guard_nothing_is_said(made: Approximation) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made.guarded(None)(points(made)).shape == (4,)


def test_a_bound_is_rounded_inward() -> None:
    """0.1 is no float32: the nearest one lies outside [0, 0.1], so the guard must not let it in."""
    high = inward(BOX.upper, torch.float32, up=False)
    assert float(high[1]) < 0.1 < float(torch.nextafter(high[1], torch.tensor(1.0)))


def test_unknown_guards_and_proofs_of_guarded_models_are_refused(made: Approximation) -> None:
    with pytest.raises(OnelayerError, match="'warn', 'raise', 'clamp' or None"):
        Guarded(made.model, BOX, "shout")
    with pytest.raises(OnelayerError, match=r"guarded\.model"):
        certify(made.guarded("clamp"), "x1", BOX, 9.0)
    with pytest.raises(OnelayerError, match=r"a\.guarded"):
        export(made, to="coq", out="x", guard="warn")


@pytest.mark.parametrize("guard", ["warn", "raise", "clamp"])
def test_onnx(made: Approximation, guard: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    path = to_onnx(made, tmp_path / "layer.onnx", guard=guard)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = points(made)
    values, *more = session.run(None, {"x": x.numpy()})
    own = made.guarded("clamp") if guard == "clamp" else made.model
    near = 1e-5 if x.dtype == torch.float32 else 1e-12
    count = 1 if guard == "raise" else 3
    assert torch.allclose(torch.from_numpy(values)[:count], own(x)[:count], atol=near)
    if guard == "raise":
        assert bool(torch.from_numpy(values)[1:].isnan().all())
    if guard == "warn":
        assert [item.name for item in session.get_outputs()] == ["y", "inside"]
        assert more[0].tolist() == [True, False, False, False]


def test_the_folder_of_a_torch_layer_carries_its_guard(made: Approximation, tmp_path: Path) -> None:
    """Loaded by its own stock.py, which knows nothing of this package."""
    x = points(made)
    for guard in ("warn", "raise", "clamp"):
        made.export("torch", tmp_path / guard, guard=guard)
    free = stock.load(made.export("torch", tmp_path / "free").path)
    with pytest.raises(ValueError, match="3 of 4 points lie outside"):
        stock.load(tmp_path / "raise")(x)
    with pytest.warns(UserWarning, match="3 of 4"):
        assert torch.equal(stock.load(tmp_path / "warn")(x)[:3], free(x)[:3])
    inside = torch.minimum(torch.maximum(x, inward(BOX.lower, x.dtype, up=True)), inward(BOX.upper, x.dtype, up=False))
    found = stock.load(tmp_path / "clamp")(x)
    assert torch.equal(found[:3], free(inside)[:3])
    assert bool(found[3].isnan().all())


def test_a_result_warns_once_and_raises_when_asked(made: Approximation) -> None:
    a = Approximation(made.model, made.certificate, made.target)
    with pytest.warns(OutsideDomainWarning, match="1 of 1 points"):
        a([3.0, 0.05])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a([4.0, 0.05])
        assert np.array_equal(a([1.0, 0.05]), a.model([1.0, 0.05]))
    for raising in (lambda x: a(x, guard=True), a.guarded(True)):
        with pytest.raises(OutsideDomain, match=r"coordinate 1 is 3\.0"):
            raising(np.array([3.0, 0.05]))
    assert np.array_equal(a([3.0, 0.05], guard="clamp"), a.model([2.0, 0.05]))
    with pytest.raises(OnelayerError, match="numbers of one regular shape"):
        a(["a", "b"])


def test_a_corner_that_the_format_does_not_have_is_not_rounded_outside() -> None:
    """0.1 is in the domain and the float32 number next to it is not; numbers of a list are rounded by the model."""
    seen: list[float] = []

    class Watched(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()), requires_grad=False)

        def forward(self, x: np.ndarray) -> torch.Tensor:
            given = torch.as_tensor(x).to(self.weight.dtype)
            seen.extend(given.double().flatten().tolist())
            return given * self.weight

    Guarded(Watched(), Box([0.0], [0.1]), "raise")([[0.1], [0.05], [0.0]])
    assert max(seen) <= 0.1
    assert seen[1:] == [float(np.float32(0.05)), 0.0]


def test_a_converted_guard_keeps_the_bounds_of_the_box() -> None:
    model = _constant(torch.float32)
    x = torch.tensor([[0.1]], dtype=torch.float32)
    assert float(x) > 0.1
    guarded = Guarded(model, Box([0.0], [0.1]))
    for converted in (guarded.float(), guarded.to(torch.float32)):
        with pytest.raises(OutsideDomain, match=r"not in \[0.0, 0.1\]"):
            converted(x)


@pytest.mark.parametrize(
    ("weights", "given"),
    [("float64", "float32"), ("float32", "bfloat16"), ("float16", "bfloat16"), ("bfloat16", "float16")],
)
def test_points_of_a_coarser_format_are_outside(weights: str, given: str) -> None:
    model = _constant(getattr(torch, weights))
    x = torch.tensor([[0.5]], dtype=getattr(torch, given))
    with pytest.raises(OutsideDomain, match=f"compute in {given}, and its error is proved in {weights}"):
        Guarded(model, UNIT)(x)
    for guard in ("warn", "clamp"):
        with pytest.warns(OutsideDomainWarning, match=f"proved in {weights}"):
            Guarded(model, UNIT, guard)(x)


def test_points_of_a_finer_format_are_inside() -> None:
    model = _constant(torch.float32)
    x = torch.tensor([[0.5]], dtype=torch.float64)
    assert torch.equal(Guarded(model, UNIT)(x), model(x))


def test_a_model_converted_to_a_coarser_format_is_not_what_was_proved() -> None:
    guarded = Guarded(_constant(torch.float64), UNIT).float()
    for x in (torch.tensor([[0.5]], dtype=torch.float32), [[0.5]], torch.tensor([[0.5]], dtype=torch.float64)):
        with pytest.raises(OutsideDomain, match="compute in float32, and its error is proved in float64"):
            guarded(x)


def test_autocast_is_off_within() -> None:
    model = _constant(torch.float32, value=1.001)
    x = torch.tensor([[0.5]], dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch.equal(model(x).float(), Guarded(model, UNIT)(x))
        assert torch.equal(Guarded(model, UNIT)(x), Guarded(model, UNIT)(x).float())
    assert torch.equal(Guarded(model, UNIT)(x), model(x))


def _constant(dtype: torch.dtype, value: float = 1.0) -> torch.nn.Module:
    from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model

    slopes = torch.tensor([-1.0, 1.0]).double()
    head = LookupHead([AxisKeys(0, slopes, slopes)], torch.tensor([[value], [value]]).double())
    return lookup_model(1, (), [head], dtype=dtype)
