"""A claim speaks of the model that it was proved of: what becomes of it meanwhile and later changes no claim."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.proof.kept import kept, state_of

BOX = ol.Box([0.0], [1.0])


class Scaled(nn.Module):
    """sin(w x) s, with numbers in all the places where a module may have some."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.register_buffer("s", torch.ones(1, dtype=torch.float64), persistent=False)
        self.plain = torch.ones(1, dtype=torch.float64)
        self.number = 1.0
        self.listed = [1.0]

    def forward(self, x: Any) -> Any:
        """One number for each point."""
        return torch.sin(x[..., 0] * self.w) * (self.s * self.plain * (self.number * self.listed[0]))


def trained(model: Scaled) -> None:
    with torch.no_grad():
        model.w.mul_(3.0)


def loaded(model: Scaled) -> None:
    model.load_state_dict({"w": torch.full((1,), 3.0, dtype=torch.float64)})


def buffered(model: Scaled) -> None:
    model.s = torch.full((1,), 3.0, dtype=torch.float64)


def attributed(model: Scaled) -> None:
    model.plain = 3 * model.plain


def numbered(model: Scaled) -> None:
    model.number = 3.0


def enlisted(model: Scaled) -> None:
    model.listed[0] = 3.0


def hooked(model: Scaled) -> None:
    model.register_forward_hook(lambda module, given, returned: 3.0 * returned)


def replaced(model: Scaled) -> None:
    model.forward = lambda x: 3.0 * torch.sin(x[..., 0])  # type: ignore[method-assign]


def halved(model: Scaled) -> None:
    model.to(torch.float32)
    with torch.no_grad():
        model.w.mul_(3.0)


class Tripled(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        """Three times a weight."""
        return 3.0 * w


def parametrised(model: Scaled) -> None:
    parametrize.register_parametrization(model, "w", Tripled())


CHANGES = (trained, loaded, buffered, attributed, numbered, enlisted, hooked, replaced, halved, parametrised)


DOORS = ("certify", "lipschitz", "bound", "equivalent")


@pytest.mark.parametrize(
    ("door", "change"), [*((DOORS[0], one) for one in CHANGES), *((door, trained) for door in DOORS[1:])]
)
def test_what_is_saved_is_what_was_certified(door: str, change: Callable[[Scaled], None], tmp_path: Path) -> None:
    """Whatever becomes of a module afterwards, the saved network is the one of which the claim was proved."""
    model = Scaled()
    doors: dict[str, Callable[[], Any]] = {
        "certify": lambda: ol.certify(model, "sin(x)", BOX, 1e-9),
        "lipschitz": lambda: ol.lipschitz(model, BOX),
        "bound": lambda: ol.bound(model, BOX),
        "equivalent": lambda: ol.equivalent(model, Scaled(), BOX, 1e-9),
    }
    found = doors[door]()
    assert found.status == "proved"
    change(model)
    found.save(tmp_path / "claim")
    saved = ol.load_claim(tmp_path / "claim")
    x = torch.tensor([[0.7]], dtype=torch.float64)
    assert abs(float(saved.model(x)) - float(torch.sin(x))) < 1e-12
    assert ol.check(tmp_path / "claim").ok


SETTING = [1.0]


def test_a_function_whose_numbers_were_changed_is_not_saved(tmp_path: Path) -> None:
    """A function cannot be copied: weights in its closure, in a list, a global or an object are found to differ."""
    w = torch.ones(1, dtype=torch.float64)
    module = Scaled()

    class Holder:
        scale = 1.0

        def __init__(self) -> None:
            self.scale = 1.0

        def __call__(self, x: Any) -> Any:
            return torch.sin(x[..., 0]) * self.scale

    holder = Holder()

    def loosen() -> None:
        holder.scale = 3.0

    def setting() -> None:
        SETTING[0] = 3.0

    functions: list[tuple[Callable[[Any], Any], Callable[[], Any]]] = [
        (lambda x: torch.sin(x[..., 0] * w), lambda: w.mul_(3.0)),
        (lambda x: module(x), lambda: trained(module)),
        (holder, loosen),
        (holder.__call__, loosen),
        (lambda x: torch.sin(x[..., 0]) * SETTING[0], setting),
    ]
    try:
        for at, (function, change) in enumerate(functions):
            found = ol.certify(function, "sin(x)", BOX, 1e-9)
            assert found.proved
            assert ol.load_claim(found.save(tmp_path / f"{at}")).certificate.proved
            change()
            with pytest.raises(OnelayerError, match="not what it was"):
                found.save(tmp_path / f"{at}-later")
            holder.scale = 1.0
    finally:
        SETTING[0] = 1.0


FACTOR = 1.0
settings = types.ModuleType("settings_of_a_user")
settings.factor = 1.0


class Around(nn.Module):
    """sin(x), with numbers around the module in all the places where its code may read some."""

    factor = 1.0

    def forward(self, x: Any) -> Any:
        """One number for each point."""
        return torch.sin(x[..., 0]) * (self.part() * self.factor * FACTOR * settings.factor * Named.factor)

    def part(self) -> float:
        """A method in place of which another one may be put."""
        return 1.0


class Named:
    factor = 1.0


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        *((owner, "factor", 3.0) for owner in (Around, settings, Named)),
        (sys.modules[__name__], "FACTOR", 3.0),
        (Around, "part", lambda self: 3.0),
    ],
)
def test_what_code_reads_around_a_model_counts(
    called: bool, owner: Any, name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes, methods, global names and other modules of Python are no part of the copy, and are found to differ."""
    model = Around()
    found = ol.certify(model.forward if called else model, "sin(x)", BOX, 1e-9)
    assert found.proved
    assert ol.load_claim(found.save(tmp_path / "claim")).certificate.proved
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(OnelayerError, match="not what it was"):
        found.save(tmp_path / "later")


def test_a_hook_of_all_modules_counts(tmp_path: Path) -> None:
    factor = [1.0]
    hook = nn.modules.module.register_module_forward_hook(lambda module, given, returned: returned * factor[0])
    try:
        found = ol.certify(nn.Identity(), lambda x: x, BOX, 1e-9)
        factor[0] = 3.0
        with pytest.raises(OnelayerError, match="not what it was"):
            found.save(tmp_path / "later")
    finally:
        hook.remove()


class Shared(nn.Module):
    """What it has computed once is kept by its class."""

    table: ClassVar[list[float]] = []

    def forward(self, x: Any) -> Any:
        """One number for each point."""
        if not self.table:
            self.table.append(2.0)
        return torch.sin(x[..., 0]) * self.table[0]


def test_what_a_class_keeps_while_it_runs_is_no_change(tmp_path: Path) -> None:
    Shared.table.clear()
    found = ol.certify(Shared(), "2*sin(x)", BOX, 1e-9)
    found.save(tmp_path / "once")


def test_a_function_that_changes_while_it_is_proved_is_refused() -> None:
    """f itself may train it, or a thread: bounds of before and after would be mixed."""
    w = torch.ones(1, dtype=torch.float64)

    def model(x: Any) -> Any:
        return torch.sin(x[..., 0] * w)

    def f(x: Any) -> Any:
        w.mul_(1.0 + 1e-9)
        return torch.sin(x[..., 0])

    with pytest.raises(OnelayerError, match="not what it was"):
        ol.certify(model, f, BOX, 1e-3)
    with pytest.raises(OnelayerError, match="not what it was"):
        ol.gradient_error(model, f, BOX, 1e-3)


def test_a_module_that_f_trains_is_proved_as_it_was_given() -> None:
    """A module has a copy of its own in the proof, which nobody else reaches."""
    model = Scaled()

    def f(x: Any) -> Any:
        with torch.no_grad():
            model.w.mul_(-1.0)
        return torch.sin(x[..., 0])

    found = ol.certify(model, f, BOX, 1e-9)
    assert found.proved
    kept_model = found.models[0].unchanged()
    x = torch.tensor([[0.7]], dtype=torch.float64)
    assert abs(float(kept_model(x).detach()) - float(torch.sin(x))) < 1e-12


class Caching(nn.Module):
    """Keeps what it has computed once, as rotary embeddings and masks do."""

    def __init__(self) -> None:
        super().__init__()
        self.table: list[float] = []

    def forward(self, x: Any) -> Any:
        """One number for each point."""
        if not self.table:
            self.table.append(2.0)
        return torch.sin(x[..., 0]) * self.table[0]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("called", [False, True])
def test_what_a_model_keeps_while_it_runs_is_no_change(training: bool, called: bool, tmp_path: Path) -> None:
    module = Caching().train(training)
    model = module.__call__ if called else module
    found = ol.certify(model, "2*sin(x)", BOX, 1e-9)
    assert found.proved
    found.save(tmp_path / "once")
    found.save(tmp_path / "again")


def test_every_kind_of_content_makes_another_state() -> None:
    """Two things that differ in one place are told apart; the same thing twice is not."""
    t = torch.arange(3.0)
    things: list[Any] = [
        *(1, 1.0, True, "1", b"1", None, -0.0, 0.0, (1,), [1], {1: 2}, {2: 1}, {1, 2}, 10**5000),
        *(t, t.double(), t.bfloat16(), t.to(torch.complex64).conj(), t.reshape(3, 1), torch.arange(1.0, 4.0)),
        *(t.numpy(), t.numpy().astype("int64"), torch.float32, torch.nn.Tanh(), torch.nn.Tanh().eval()),
        *((lambda: 1), (lambda: 2), (lambda a=1: a), (lambda a=2: a)),
    ]
    states = [state_of(thing) for thing in things]
    assert len(set(states)) == len(states)
    assert states == [state_of(thing) for thing in things]


def test_a_module_that_cannot_be_copied_is_known_by_its_state(tmp_path: Path) -> None:
    """A tensor that torch computed, with its gradient, cannot be copied."""
    model = Scaled().eval()
    model.plain = 1.0 * model.w
    assert kept(model).model is model
    found = ol.certify(model, "sin(x)", BOX, 1e-9)
    assert found.proved
    with torch.no_grad():
        model.w.mul_(3.0)
    with pytest.raises(OnelayerError, match="not what it was"):
        found.save(tmp_path / "claim")
