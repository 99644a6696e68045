"""The live view in a real browser: what it computes from the weights is what torch computes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import onelayer as ol
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.pictures.live_page import LIMIT, _nodes, layer_data, live_script

pytestmark = pytest.mark.browser
NEAR = 1e-12


@pytest.fixture(scope="module")
def results() -> dict[str, ol.Approximation]:
    box = ol.Box([0, 0], [6.28, 6.28])
    grid = ol.Table.read(GRID, inputs=["a", "b"], output="y", interpolate="cubic")
    return {
        "line": ol.approximate("exp(sin(pi*x)) + abs(x)", ol.Box([-1], [1]), 1e-3),
        "plane": ol.approximate("sin(x1) + sin(x2)", box, 1e-3),
        "grid": ol.approximate("exp(sin(2*x)*y)", ol.Box([0, 0], [1, 2]), 1e-2),
        "four": ol.approximate("cos(x1 + 1.5*x2 + 2*x3 + x4); x1", ol.Box([0] * 4, [1] * 4), 1e-1),
        "sort": ol.sort(4, 0.0, 1.0, 0.05),
        "three": ol.approximate("m/sqrt(1 - v**2/c**2)", ol.Box(m=(1, 5), v=(1, 2), c=(3, 10)), 0.1),
        "map": ol.approximate(grid, grid.box, 0.1),
    }


GRID = {
    "a": [a for a in range(5) for _ in range(4)],
    "b": [b / 3 for _ in range(5) for b in range(4)],
    "y": [math.sin(a) + b * b for a in range(5) for b in range(4)],
}
SCATTERED = {
    name: [math.sin(k * by) for k in range(40)] for name, by in (("a", 1.1), ("b", 2.3), ("c", 3.7), ("y", 0.7))
}


def agrees(page: Any, a: ol.Approximation) -> bool:
    """Whether the shown outputs are those of torch at the shown point, relative to the largest output on the box."""
    shown = page.locator(".live-value")
    x = torch.tensor(json.loads(shown.get_attribute("data-x")), dtype=torch.float64)
    found = torch.tensor(json.loads(shown.get_attribute("data-all")), dtype=torch.float64)
    with torch.no_grad():
        wanted = a.model(x.reshape(1, *a.box.shape)).flatten()
        scale = float(a.model(a.box.sample(64)).abs().max())
    assert bool(a.box.contains(x.reshape(1, *a.box.shape)).all())
    return float((found - wanted).abs().max()) <= NEAR * scale


@pytest.mark.parametrize("name", ["line", "plane", "grid", "four", "sort", "map"])
def test_drag_and_read(name: str, results: dict[str, ol.Approximation], watched: Any, tmp_path: Path) -> None:
    a, page = results[name], watched.page
    path = a.to_html(tmp_path / "live.html")
    assert path.stat().st_size < LIMIT
    page.goto(path.as_uri())
    page.wait_for_selector("#live[data-ready=yes]")
    assert agrees(page, a)
    box = page.locator(".live-figure").first.bounding_box()
    before = page.locator(".live-value").get_attribute("data-x")
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    for step in (0.3, 0.6, 0.8):
        page.mouse.move(box["x"] + box["width"] * step, box["y"] + box["height"] * (1 - step))
        page.wait_for_timeout(60)
        assert agrees(page, a)
    page.mouse.up()
    assert page.locator(".live-value").get_attribute("data-x") != before
    page.locator(".live-figure").first.focus()
    for key in ("ArrowLeft", "ArrowUp", "+", "+", "0"):
        page.keyboard.press(key)
    page.wait_for_timeout(60)
    assert agrees(page, a)
    x = torch.tensor(json.loads(page.locator(".live-value").get_attribute("data-x")), dtype=torch.float64)
    output = int(page.locator("select").last.input_value()) if name in ("four", "sort") else 0
    f = float(a.target.function(x.reshape(1, *a.box.shape)).flatten()[output])
    said = float(page.locator(".live-reference").get_attribute("data-value"))
    assert said == pytest.approx(f, rel=1e-12, abs=1e-12)
    for choice in page.locator(".live-choice input").all():
        choice.check(force=True)
        page.wait_for_timeout(60)
    assert agrees(page, a)
    assert watched.quiet(path.as_uri())


@pytest.mark.parametrize("name", ["line", "grid", "three"])
def test_every_head_shows_where_it_looks_and_what_that_is_worth(
    name: str, results: dict[str, ol.Approximation], watched: Any, tmp_path: Path
) -> None:
    page = watched.page
    page.goto(results[name].to_html(tmp_path / "live.html").as_uri())
    page.wait_for_selector("#live[data-ready=yes]")
    for head in page.locator(".live-heads .live-head").all():
        captions = head.locator("figcaption").all_text_contents()
        axes = sum(caption.startswith("attention α along") for caption in captions)
        assert axes == {"line": 1, "grid": 2, "three": 3}[name]
        assert sum("α v" in caption for caption in captions) == 1


def test_slices_are_chosen(results: dict[str, ol.Approximation], watched: Any, tmp_path: Path) -> None:
    page = watched.page
    page.goto(results["four"].to_html(tmp_path / "live.html").as_uri())
    page.wait_for_selector("#live[data-ready=yes]")
    page.locator("label", has_text="slice").locator("select").select_option("2")
    page.locator(".live-figure").first.hover(position={"x": 120, "y": 120})
    assert "x3 =" in page.locator(".live-hover").text_content()
    before = json.loads(page.locator(".live-value").get_attribute("data-x"))
    page.locator(".live-figure").first.focus()
    page.keyboard.press("Shift+ArrowLeft")
    page.wait_for_timeout(100)
    after = json.loads(page.locator(".live-value").get_attribute("data-x"))
    assert [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new] == [2]
    assert agrees(page, results["four"])


KINDS = [(between, count) for between in ("linear", "cubic", "scattered") for count in (1, 2, 3)]


@pytest.mark.parametrize(("between", "count"), [kind for kind in KINDS if kind != ("scattered", 1)])
def test_tables_in_the_browser(between: str, count: int, watched: Any) -> None:
    """Splines on grids and affine pieces on triangles are what torch computes of them."""
    inputs = ["a", "b", "c"][:count]
    if between == "scattered":  # numbers on a line always fill their grid
        table = ol.Table.read(SCATTERED, inputs=inputs, output="y")
    else:
        sides = [sorted(math.sin(3 * k + at) for k in range(4 + at)) for at in range(len(inputs))]
        values = numpy.random.default_rng(0).normal(size=[len(side) for side in sides])
        table = ol.Table(tuple(map(numpy.array, sides)), values, tuple(inputs), interpolate=between)
    x = table.box.sample(64)
    watched.page.set_content(f"<script>{live_script()}</script>")
    code = "([formula, points]) => { const f = compiledFormula(formula); return points.map((x) => f(x)[0]); }"
    found = torch.tensor(watched.page.evaluate(code, [_nodes(table.formula), x.tolist()]), dtype=torch.float64)
    assert float((found - table(x)).abs().max()) <= 1e-11


def test_a_narrow_screen_does_not_scroll_sideways(results: Any, watched: Any, tmp_path: Path) -> None:
    watched.page.set_viewport_size({"width": 360, "height": 740})
    watched.page.goto(results["four"].to_html(tmp_path / "live.html").as_uri())
    watched.page.wait_for_selector("#live[data-ready=yes]")
    assert watched.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_bound_is_never_written_smaller_than_it_is(watched: Any) -> None:
    page = watched.page
    page.set_content(f"<script>{live_script()}</script>")
    values = [7.4454e-4, 1.0, 0.99999, 9.9999e-7, 123456.7, 5e-324, 0.1, 0.100000001, 8.18e-4]
    for value in values:
        written = page.evaluate("(value) => shortUp(value)", value)
        plain = written.replace("·10", "e").replace("−", "-").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        plain = f"1e{plain[2:]}" if written.startswith("10") and not written.isdigit() else plain
        assert value <= float(plain) <= 1.02 * value or value == 5e-324, written


def kinds() -> dict[str, OneLayerTransformer]:
    """Every kind of attention, norm, read-out, embedding and memory, small and random."""
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    grid, plain = GridMemory([normal(3, 4), normal(2, 4)], normal(3, 2, 2)), PlainMemory(normal(5, 4), normal(5, 2))
    packed = {
        f"packed {kind} {norm}": OneLayerTransformer.packed(
            (3,), (2,), [grid, plain], attention=kind, norm=norm, hidden=7, residual=norm != "none", **more
        )
        for kind, more in (("softmax", {}), ("topk", {"top_k": 2}), ("hardmax", {}), ("linear", {"feature": "elu"}))
        for norm in ("none", "pre", "post")
    }
    packed["taylor"] = OneLayerTransformer.packed((3,), (2,), [plain, grid], attention="linear", order=4)
    tokens = {
        f"tokens {readout}": OneLayerTransformer.tokens(
            (3, 2), (3, 2) if readout == "each" else (2,), d_model=6, heads=2, memory=[grid, plain], d_k=4, d_v=2,
            hidden=5, readout=readout, positions="sinusoidal", embedding="piecewise", ramps=3, residual=True,
        )
        for readout in ("each", "mean", "first", "last")
    }  # fmt: skip
    pieces = Config("pieces", (3,), (2,), 5, (HeadShape(2, 3), HeadShape(4, 2)), 4, residual=True, pieces=6)
    return packed | tokens | {"pieces": OneLayerTransformer(pieces)}


def test_every_kind_of_layer_runs_in_the_browser(watched: Any) -> None:
    page = watched.page
    page.set_content(f"<script>{live_script()}</script>")
    for name, model in kinds().items():
        shape = model.config.input_shape
        x = ol.Box(torch.full(shape, -1.0), torch.full(shape, 1.0)).sample(8)
        code = "([data, points]) => { const layer = new Layer(data); return points.map((x) => [...layer.run(x).y]); }"
        found = torch.tensor(page.evaluate(code, [layer_data(model), x.flatten(1).tolist()]), dtype=torch.float64)
        with torch.no_grad():
            wanted = model(x).flatten(1)
        assert float((found - wanted).abs().max()) <= NEAR * float(wanted.abs().max()), name


def test_formulas_in_the_browser(watched: Any) -> None:
    page = watched.page
    page.set_content(f"<script>{live_script()}</script>")
    from onelayer.language.formula import parse
    from onelayer.language.operations import OPERATIONS

    missing = sorted(set(OPERATIONS) - set(page.evaluate("Object.keys(OPERATIONS)")))
    assert missing == []
    text = (
        "erf(3*x - 1) + sigmoid(4*x)*exp(-x**3) + abs(x - y)/(2 + min(x, y))"
        " - max(x, tanh(y)) + atan(x)*sqrt(x + 2) + where(x > y, x, y**2)"
    )
    formula = parse(text, 2)
    x = ol.Box([-1, -1], [1, 1]).sample(64)
    code = "([formula, points]) => { const f = compiledFormula(formula); return points.map((x) => f(x)[0]); }"
    found = torch.tensor(page.evaluate(code, [_nodes(formula), x.tolist()]), dtype=torch.float64)
    assert float((found - formula(x)).abs().max()) <= 1e-13
