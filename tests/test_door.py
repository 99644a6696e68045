"""Every public function is a door: an argument of a wrong kind ends in one line that names it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.door import door
from onelayer.errors import OnelayerError

if TYPE_CHECKING:
    from nowhere import Unknown, parts  # type: ignore[import-not-found]

LINE = ol.Box([0.0], [1.0])


def public_functions() -> dict[str, Callable[..., Any]]:
    """What users reach by a name of the package or of one of its rooms."""
    found = {}
    for place in (ol, ol.export, ol.pictures, ol.zoo):
        for name in getattr(place, "__all__", None) or dir(place):
            value = getattr(place, name)
            if inspect.isfunction(value) and value.__module__.startswith("onelayer.") and not name.startswith("_"):
                found[name] = value
    return found


def test_every_public_function_is_a_door() -> None:
    takes = {name: function for name, function in public_functions().items() if inspect.signature(function).parameters}
    # They draw what others have made, and have no arguments of users.
    inner = {"picture", "attention_figure", "boxes_figure", "rate_figure", "html_card", "save", "door"}
    assert {name for name, function in takes.items() if not hasattr(function, "is_door")} <= inner
    assert len(takes) > 30


@door
def taking(
    number: float = 0.0,
    count: int | None = None,
    flag: bool = False,
    place: str | Path = "",
    names: tuple[str, ...] = (),
    unknown: Unknown | None = None,
    deep: parts.Kind[str] | list[Unknown] = 0,
    anything: Any = None,
    **more: int,
) -> None:
    raise TypeError("inside")


FITTING = [
    *({"number": value} for value in (1, 0.5, True, np.float32(1), np.int64(1), Fraction(1, 3))),
    *({"count": value} for value in (None, 3, True, np.uint8(3))),
    *({"flag": value} for value in (True, np.bool_(True))),
    *({"place": value} for value in ("x", Path("x"))),
    {"names": ("x",)},
    {"unknown": object(), "deep": object(), "anything": object(), "other": "x"},
]
WRONG = [
    *({"number": value} for value in ("1", None, 1j, [1.0], np.array([1.0]), torch.zeros(2))),
    *({"count": value} for value in (0.5, "3", [], np.float64(3))),
    *({"flag": value} for value in (1, None, "x", np.array([True]))),
    *({"place": value} for value in (b"x", 5, None)),
    *({"names": value} for value in ("x", ["x"], None)),
]


@pytest.mark.parametrize("given", FITTING)
def test_an_error_where_all_arguments_fit_stays_what_it_is(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="inside"):
        taking(**given)


@pytest.mark.parametrize("given", WRONG)
def test_an_argument_of_another_kind_is_named(given: dict[str, Any]) -> None:
    name = next(iter(given))
    with pytest.raises(OnelayerError, match=f"^{name} must be .*, not ") as raised:
        taking(**given)
    assert str(raised.value.__cause__) == "inside"


def test_what_python_says_of_names_stays() -> None:
    with pytest.raises(TypeError, match="multiple values"):
        taking(1.0, number=1.0)


DOORS: dict[str, Callable[[Any], Any]] = {
    "monotone": lambda x: ol.monotone(torch.sin, LINE, x),
    "draw": lambda x: ol.draw(x, "picture.png"),
    "draw_attention": lambda x: ol.pictures.draw_attention(x, "picture.png"),
    "explain": lambda x: ol.explain(x),
    "to_lens": lambda x: ol.export.to_lens(x),
    "to_coq": lambda x: ol.export.to_coq(x, "T.v"),
    "fit_rate": lambda x: ol.pictures.fit_rate(x),
    "train": lambda x: ol.train("sin(x)", LINE, heads=x, steps=1),
    "device": lambda x: ol.train("sin(x)", LINE, device=x, steps=1),
    "recipe": lambda x: ol.train("sin(x)", LINE, recipe=x, steps=1, heads=2),
    "distill": lambda x: ol.distill(torch.sin, LINE, 0.1, test=x),
    "tokens": lambda x: ol.OneLayerTransformer.tokens((2, 1), (1,), d_model=x),
    "seed": lambda x: ol.OneLayerTransformer.tokens((2, 1), (1,), d_model=4, seed=x),
    "from_json": lambda x: ol.Certificate.from_json(x),
    "sample": lambda x: LINE.sample(x),
    "corners": lambda x: LINE.corners(x),
    "contains": lambda x: LINE.contains(x),
    "Table": lambda x: ol.Table(x, [0.0, 1.0], ["a"]),  # type: ignore[arg-type]
    "covers": lambda x: ol.Table([[0, 1]], [0.0, 1.0], ["a"]).covers(x),  # type: ignore[arg-type,list-item]
    "zoo": lambda x: ol.zoo.load(x),
    "size": lambda x: ol.zoo.load("sort", x),
    "export": lambda x: ol.export.export("nowhere", to=x, out="x"),
}


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("given", [object(), 1j, {"a": [1]}, np.zeros((2, 2)), [[None]]])
def test_doors_that_raised_other_errors(name: str, given: Any) -> None:
    with pytest.raises(OnelayerError) as raised:
        DOORS[name](given)
    assert "\n" not in str(raised.value)


def test_every_error_of_ours_is_one_printable_line() -> None:
    said = str(OnelayerError("two\nlines \x1b[31m" + "x" * 10**6))
    assert said.isprintable()
    assert said.startswith("two lines ?[31mx")
    assert len(said) < 2000
    with pytest.raises(OnelayerError) as raised:
        ol.approximate("x", LINE, 1e-3, device=np.zeros((2, 2)))  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


class Locked(torch.nn.Linear):
    """A module that nobody can copy."""

    def __init__(self) -> None:
        super().__init__(1, 1, dtype=torch.float64)
        self.lock = threading.Lock()


def fails(x: Any) -> Any:
    raise KeyError("of\nthe teacher")


ROWS = [[at / 20] for at in range(20)]
OF_USERS: dict[str, Callable[[], Any]] = {
    "no teacher": lambda: ol.distill(5, data=ROWS, steps=1),
    "a teacher that fails": lambda: ol.distill(fails, data=ROWS, steps=1),
    "a teacher of means": lambda: ol.distill(lambda x: x.mean(0), data=ROWS, steps=1),
    "words for data": lambda: ol.distill(torch.sin, data=["a", "b"], steps=1),
    "ragged data": lambda: ol.distill(torch.sin, data=[[0, 1], [0]], steps=1),
    "one number for data": lambda: ol.distill(torch.sin, data=1.0, steps=1),
    "no data": lambda: ol.distill(torch.sin, data=[], steps=1),
    "a lock": lambda: ol.gather(Locked(), LINE, 0.1),
    "f without values": lambda: ol.certify(torch.sin, lambda x: x.to("meta")[..., 0], LINE, 0.1),
    "T without values": lambda: ol.certify(lambda x: x.to("meta")[..., 0], "x", LINE, 0.1),
    "words for a point": lambda: ol.pictures.draw_attention(ol.approximate("x", LINE, 0.1), "x.png", "1"),  # type: ignore[arg-type]
    "an array for a guard": lambda: ol.approximate("x", LINE, 0.1)([0.5], guard=np.zeros(2)),  # type: ignore[arg-type]
    "a constant beyond all floats": lambda: ol.approximate(np.sin, LINE, 0.1, lipschitz=10**400),
    "a complex constant": lambda: ol.approximate(np.sin, LINE, 0.1, lipschitz=torch.tensor([1j])),
}


@pytest.mark.parametrize("name", OF_USERS)
def test_what_users_bring_ends_in_one_line(name: str) -> None:
    with pytest.raises(OnelayerError) as raised:
        OF_USERS[name]()
    assert "\n" not in str(raised.value)
