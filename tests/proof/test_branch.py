"""Branch and bound: enclosures that hold, statuses that follow from them, budgets, kinks, shapes, workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onelayer import Box, bound, check
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.observer import Observer
from onelayer.proof.boxes import TreeBuilder, cut, root
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.proof.cost import Cost
from onelayer.proof.error import error_function
from onelayer.proof.frontier import Budget
from onelayer.proof.pilot import choose_order, stations
from onelayer.proof.search import Search
from onelayer.proof.units import Goal
from onelayer.recording.target import as_target

SQUARE = Box([0.0, 0.0], [3.0, 3.0])


def waves(x: Any) -> Any:
    return torch.sin(x[..., 0]) + torch.sin(x[..., 1])


def taylor_waves(x: Any) -> Any:
    """A polynomial near the waves: the "model" of most tests, its error is known in closed form."""
    u, v = x[..., 0] - 1.5, x[..., 1] - 1.5
    return 2 * math.sin(1.5) + math.cos(1.5) * (u + v) - 0.5 * math.sin(1.5) * (u * u + v * v)


def finer_waves(x: Any) -> Any:
    """Taylor polynomials of degree 6: an error so small beside the waves that low orders need many boxes."""
    u, total = x - 1.5, 0.0
    for n, slope in enumerate((math.sin(1.5), math.cos(1.5), -math.sin(1.5), -math.cos(1.5)) * 2):
        total = total + (slope / math.factorial(n)) * (u**n if n else 1.0) if n < 7 else total
    return total.sum(-1)  # type: ignore[attr-defined]


def sampled_sup(model: Callable[[Any], Any], f: Callable[[Any], Any], box: Box) -> float:
    points = torch.cat([box.sample(2**14), box.corners()])
    return float((model(points) - f(points)).abs().max())


def assert_sound(certificate: Certificate, sup: float) -> None:
    assert certificate.lower <= certificate.upper
    assert certificate.upper >= sup * (1 - 1e-12)


def test_encloses_the_supremum_within_the_gap() -> None:
    found = certify(taylor_waves, waves, SQUARE, gap=0.02)
    assert_sound(found, sampled_sup(taylor_waves, waves, SQUARE))
    assert found.status == "proved"
    assert found.upper <= 1.02 * found.lower
    assert found.proof is not None
    assert found.boxes == found.proof.leaves


def test_every_leaf_bound_holds_on_its_own_leaf() -> None:
    """Boxes decoded from the tree are the boxes that were bounded: no swap of halves, axes or leaves."""
    target = as_target(waves, SQUARE)
    error = error_function(finer_waves, target, SQUARE, torch.float64, torch.device("cpu"))
    search = Search(error, Goal(None, 0.05), Budget(10**5))
    outcome = search.run(2)
    low, high = (torch.from_numpy(side) for side in outcome.tree.boxes())
    assert len(low) > 50
    inside = low[:, None] + (high - low)[:, None] * torch.rand(len(low), 200, 2, dtype=torch.float64)
    seen = (finer_waves(inside) - waves(inside)).abs().amax(1)
    assert bool((seen <= torch.from_numpy(outcome.bounds) + 1e-14).all())
    assert float(np.median(seen.numpy() / outcome.bounds)) > 0.1
    assert float(((high - low).prod(1)).sum()) == pytest.approx(9.0, abs=1e-12)


@pytest.mark.parametrize(("factor", "status"), [(1.1, "proved"), (0.9, "refuted")])
def test_decides_eps(factor: float, status: str) -> None:
    sup = sampled_sup(taylor_waves, waves, SQUARE)
    found = certify(taylor_waves, waves, SQUARE, factor * sup)
    assert found.status == status
    assert_sound(found, sup)
    assert found.upper < 4 * sup
    if status == "refuted":
        assert found.witness is not None
        at = torch.tensor(found.witness, dtype=torch.float64)
        assert float((taylor_waves(at) - waves(at)).abs()) >= found.lower > factor * sup


def test_budget_of_boxes_gives_an_undecided_enclosure() -> None:
    sup = sampled_sup(finer_waves, waves, SQUARE)
    found = certify(finer_waves, waves, SQUARE, 1.001 * sup, order=1, max_boxes=40)
    assert found.status == "undecided"
    assert_sound(found, sup)
    assert found.boxes <= 40
    assert found.resisted is not None
    assert found.proof is not None
    low, high = found.proof.boxes()
    assert float(np.prod(high - low, axis=1).sum()) == pytest.approx(9.0, abs=1e-12)
    at = [np.all(low == found.resisted[0], axis=1) & np.all(high == found.resisted[1], axis=1)]
    assert int(np.sum(at)) == 1


def test_budget_of_seconds_ends_the_search() -> None:
    found = certify(taylor_waves, waves, SQUARE, gap=1e-9, max_seconds=0)
    assert found.status == "undecided"
    assert_sound(found, sampled_sup(taylor_waves, waves, SQUARE))


def test_a_pilot_that_is_late_from_the_start_takes_the_first_order() -> None:
    error = error_function(finer_waves, as_target(waves, SQUARE), SQUARE, torch.float64, torch.device("cpu"))
    start = stations(error, TreeBuilder())
    assert choose_order(error, 1e-3, (6, 4), Observer(0.0), start, Cost(64, 0.0))[0] == 6


def test_a_pilot_starts_in_the_leaves_that_hold_its_points() -> None:
    error = error_function(finer_waves, as_target(waves, SQUARE), SQUARE, torch.float64, torch.device("cpu"))
    tree = TreeBuilder()
    whole = root(SQUARE.lower.flatten(), SQUARE.upper.flatten())
    pieces = cut(whole, torch.tensor([4]), 2, whole.high[0] - whole.low[0], tree)
    pieces = cut(pieces[:3], torch.tensor([1, 2, 3]), 2, whole.high[0] - whole.low[0], tree)
    points = SQUARE.sample(16, seed=1)
    start = stations(error, tree)
    low, high = (torch.from_numpy(side) for side in tree.finish(whole.low[0], whole.high[0])[0].boxes())
    assert len(pieces) == 14
    assert len(low) == 27
    assert bool(((start.low <= points) & (points <= start.high)).all())
    for low_corner, high_corner, depth in zip(start.low, start.high, start.depth, strict=True):
        assert bool(((low == low_corner) & (high == high_corner)).all(1).any())
        assert float((high_corner - low_corner).prod()) == pytest.approx(SQUARE.width.prod().item() * 0.5 ** int(depth))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x[..., 0] - x[..., 1]).abs(),
        lambda x: torch.maximum(x[..., 0], x[..., 1]) - torch.minimum(x[..., 0], x[..., 1]),
        lambda x: torch.relu(x[..., 0] - x[..., 1]) + torch.relu(x[..., 1] - x[..., 0]),
        "abs(x1 - x2)",
    ],
)
def test_kinks_converge(f: Any) -> None:
    box = Box([0.0, 0.0], [1.0, 1.0])

    def half(x: Any) -> Any:
        return 0.0 * x[..., 0] + 0.5

    found = certify(half, f, box, gap=0.01)
    assert found.status == "proved"
    assert 0.5 * (1 - 1e-9) <= found.lower <= 0.5 <= found.upper <= 0.505
    assert certify(half, f, box, 0.51).status == "proved"
    assert certify(half, f, box, 0.49).status == "refuted"


def test_a_kink_inside_the_domain_is_not_smoothed_over() -> None:
    """sup |relu(x) - smooth| is attained at the kink; the enclosure must contain it."""
    box = Box([-1.0], [1.0])
    found = certify(lambda x: 0.5 * x[..., 0] + 0.1, "relu(x)", box, gap=0.01)
    assert found.status == "proved"
    assert found.lower <= 0.4 <= found.upper <= 0.4041


def test_vector_and_sequence_values_take_the_largest_error_of_all_outputs() -> None:
    box = Box(torch.zeros(2, 2), torch.ones(2, 2))

    def f(x: Any) -> Any:
        return x * x.mean(-2, keepdim=True)

    def model(x: Any) -> Any:
        shift = torch.tensor([[0.0, 0.25], [0.0, 0.0]], dtype=torch.float64)
        return x * x.mean(-2, keepdim=True) + shift * x

    found = certify(model, f, box, gap=0.01)
    assert found.status == "proved"
    assert found.lower == pytest.approx(0.25, rel=1e-9)
    assert 0.25 <= found.upper <= 0.2525
    assert found.witness is not None
    assert found.witness[1] == pytest.approx(1.0, abs=1e-6)


class Layer(nn.Module):
    """A small trained-looking attention layer over two tokens, written in stock operations."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(1, 8)
        self.qkv = nn.Linear(8, 24)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.1)
        self.read = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        e = self.embed(x[..., None])
        q, k, v = self.qkv(e).split(8, dim=-1)
        a = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(8), -1) @ v
        r = self.norm(e + self.drop(a))
        y = r + self.down(torch.relu(self.up(r)))
        return self.read(y.flatten(-2))[..., 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_any_module_in_training_mode_is_certified_in_eval_mode_and_left_alone(dtype: torch.dtype) -> None:
    model = Layer().to(dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    box = Box([-1.0, -1.0], [1.0, 1.0])
    found = certify(model, waves, box, gap=0.2)
    assert model.training
    assert "T is the model in eval mode" in found.assumptions[-1]
    assert all(torch.equal(value, before[name]) and value.dtype == dtype for name, value in model.state_dict().items())
    model.eval()
    points = box.sample(4096).to(dtype)
    with torch.no_grad():
        seen = float((model(points).double() - waves(points.double())).abs().max())
    assert found.arithmetic == f"{str(dtype).removeprefix('torch.')} execution"
    assert found.status == "proved"
    assert_sound(found, seen)
    assert found.witness == tuple(torch.tensor(found.witness).to(dtype).tolist())
    assert len(found.weights_sha256) == 64


def test_a_claim_about_a_module_in_training_mode_is_saved_and_its_modes_are_left_alone(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Tanh(), nn.Linear(3, 1)).double()
    model[0].eval()  # some parts in one mode, some in the other
    folder = bound(model, SQUARE).save(tmp_path / "claim")
    assert [part.training for part in model] == [False, True, True, True]
    assert check(folder).verdict == "accepted"


def test_a_module_without_modes_is_what_it_is_in_training_mode_too() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1), nn.Flatten(0))
    found = certify(model, "x + y", SQUARE, 100.0)
    assert model.training
    assert not any("eval mode" in line for line in found.assumptions)


def test_real_arithmetic_is_tighter_than_execution_and_both_hold() -> None:
    model = Layer().float()
    box = Box([-1.0, -1.0], [-0.9, -0.9])
    real, run = (certify(model, waves, box, gap=1e-3, execution=execution) for execution in ("real", "float32"))
    assert (real.arithmetic, run.arithmetic) == ("real", "float32 execution")
    assert not any("rounds" in line for line in real.assumptions)
    assert "4 units in the last place" in run.assumptions[0]
    assert real.upper < run.upper


def test_workers_do_not_change_the_result() -> None:
    one, two = (certify(finer_waves, waves, SQUARE, gap=0.01, order=2, jobs=jobs) for jobs in (1, 2))
    assert one.boxes > 100
    assert replace(one, seconds=0.0) == replace(two, seconds=0.0)


def test_threads_setting_is_given_back() -> None:
    before = torch.get_num_threads()
    certify(taylor_waves, waves, SQUARE, gap=0.5, jobs=2)
    assert torch.get_num_threads() == before


def test_an_infinite_derivative_is_undecided_or_true_and_ends() -> None:
    box = Box([0.0], [1.0])
    found = certify(lambda x: 0.9 * x[..., 0], "sqrt(x)", box, 0.35, max_boxes=20_000)
    assert found.status in ("proved", "undecided")
    assert_sound(found, 5 / 18 * 0.99)
    assert found.seconds < 60
    assert not found.proved or found.upper <= 0.35


def test_identical_functions_end_with_a_tiny_upper_bound() -> None:
    found = certify(waves, waves, SQUARE)
    assert found.status == "undecided"
    assert found.lower <= found.upper < 1e-13
    assert found.boxes < 2000
    assert certify(waves, waves, SQUARE, 1e-12).status == "proved"


@pytest.mark.parametrize("execution", ["float64", "real"])
def test_an_eps_below_rounding_is_undecided(execution: str) -> None:
    """What one forward pass rounds to is not what every other rounds to: it refutes nothing."""
    found = certify(waves, waves, SQUARE, 0.0, execution=execution)
    assert found.status == "undecided"
    assert found.lower == 0
    assert found.upper < 1e-13
    assert found.resisted is not None


def test_rounding_above_the_gap_widens_an_enclosure_by_rounding_alone() -> None:
    """Near 3e7 numbers of float32 lie 2 apart: T is known to about 0.02, and twice its largest value is no bound."""
    found = certify(
        lambda x: (torch.exp(-40 * (x[..., 0] - 0.3) ** 2) * 100 + 3e7 - 3e7) * 0.01 + 2,
        "0*x",
        Box([0.0], [1.0]),
        execution="float32",
        gap=0.001,
    )
    assert found.status == "undecided"
    assert 2.9 < found.lower <= 3.0 <= found.upper < 3.1


def test_a_lower_bound_holds_whatever_the_order_of_a_sum() -> None:
    """T sums 400 terms: batches, threads and libraries add them in other orders, and each error is at least lower."""
    terms = torch.linspace(0.1, 7.3, 400, dtype=torch.float32)
    orders = [terms, terms.flip(0), terms[torch.randperm(400, generator=torch.Generator().manual_seed(1))]]
    found = certify(lambda x: (x * terms.to(x.dtype)).sum(-1), "1480*x + 0.2", Box([1.0], [2.0]), execution="float32")
    point = torch.tensor(found.witness, dtype=torch.float32)
    truth = 1480 * float(point[0]) + 0.2
    for order in orders:
        total = torch.zeros((), dtype=torch.float32)
        for term in order * point:
            total = total + term
        assert abs(float(total) - truth) >= found.lower > 0


def test_boxes_of_width_zero() -> None:
    point = Box([0.5, 1.0], [0.5, 1.0])
    found = certify(taylor_waves, waves, point, 1.0)
    assert found.proved
    assert found.boxes == 1
    edge = Box([0.5, 0.0], [0.5, 3.0])
    assert_sound(certify(taylor_waves, waves, edge, gap=0.01), sampled_sup(taylor_waves, waves, edge))


def test_a_black_box_is_conditional_on_its_lipschitz_constant() -> None:
    box = Box([0.0, 0.0], [1.0, 1.0])

    def f(x: np.ndarray[Any, Any]) -> Any:
        return np.abs(x[..., 0] - x[..., 1])

    found = certify(lambda x: 0.0 * x[..., 0] + 0.5, f, box, gap=0.05, lipschitz=2.0)
    assert found.method == "conditional on Lipschitz constant"
    assert 0.5 * (1 - 1e-9) <= found.lower <= 0.5 <= found.upper <= 0.525
    assert "2.0 max_i |x_i - y_i|" in found.assumptions[-1]
    assert not found.recorded
    assert "conditional" in str(found)


def test_the_witness_of_a_formula_is_verified_with_sixty_digits() -> None:
    """The error 1e-17 is far below the spacing of floats near 1, yet it is refuted exactly."""
    box = Box([1.0], [2.0])
    found = certify(lambda x: x[..., 0], "x + 1e-17", box, 1e-18, max_boxes=200)
    assert found.status == "refuted"
    assert found.lower == pytest.approx(1e-17, rel=1e-9)


def test_constant_models_and_functions() -> None:
    box = Box([0.0], [1.0])
    found = certify(lambda x: torch.full(x.shape[:-1], 0.25, dtype=torch.float64), "x", box, gap=0.01)
    assert found.status == "proved"
    assert found.lower <= 0.75 <= found.upper


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eps": -1.0}, "eps"),
        ({"eps": math.nan}, "eps"),
        ({"gap": 0.0}, "gap"),
        ({"order": 0}, "order"),
        ({"order": 9}, "order"),
        ({"execution": "float8"}, "execution"),
        ({"execution": "float16"}, "float16"),
        ({"max_boxes": 0}, "max_boxes"),
        ({"jobs": 0}, "jobs"),
    ],
)
def test_bad_arguments_are_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OnelayerError, match=message) as caught:
        certify(taylor_waves, waves, SQUARE, **arguments)
    assert "\n" not in str(caught.value)


def test_progress_is_silent_unless_stderr_is_a_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    certify(finer_waves, waves, SQUARE, gap=0.1, order=2)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    certify(finer_waves, waves, SQUARE, gap=0.1, order=2)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "bounds [" in shown.err


def test_shapes_must_agree() -> None:
    with pytest.raises(OnelayerError, match="must be equal"):
        certify(lambda x: x, waves, SQUARE)


def test_an_unsupported_operation_is_named_never_sampled() -> None:
    with pytest.raises(UnsupportedOperation, match="digamma"):
        certify(lambda x: torch.digamma(x[..., 0] + 1), waves, SQUARE)
