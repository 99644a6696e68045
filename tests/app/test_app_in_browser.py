"""The page as a visitor meets it: type, watch, cancel, drag, check, download, reload; nothing comes from elsewhere."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import onelayer as ol

pytestmark = pytest.mark.browser
PATIENCE = 120_000


def opened(server: Any, watched: Any, path: str = "/") -> Any:
    page = watched.page
    page.goto(f"http://{server.host}{path}")
    page.locator("#gallery li").first.wait_for()
    return page


def ordered(page: Any, formula: str, domain: str, eps: str) -> None:
    page.fill("#formula", formula)
    page.fill("#domain", domain)
    page.fill("#eps", eps)
    page.click("#go")


def shown(page: Any) -> None:
    page.locator("#result").wait_for(timeout=PATIENCE)
    page.locator("#live[data-ready=yes]").wait_for()


def test_keyboard_only_from_formula_to_download(server: Any, watched: Any, tmp_path: Path) -> None:
    page = opened(server, watched)
    page.focus("#formula")
    page.keyboard.press("Control+A")
    page.keyboard.type("sin(a)*b")
    for text in ("a = -1:1, b = 0:2", "1e-3"):
        page.keyboard.press("Tab")
        page.keyboard.press("Control+A")
        page.keyboard.type(text)
    page.keyboard.press("Enter")
    shown(page)
    assert page.locator("#claim").text_content().startswith("proved")
    page.focus("#live .live-figure")
    for key in ("ArrowRight", "ArrowUp", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    page.wait_for_timeout(100)
    shown_value = page.locator("#live .live-value")
    point, value = json.loads(shown_value.get_attribute("data-x")), float(shown_value.text_content())
    page.focus("#check")
    page.keyboard.press("Enter")
    page.locator("#verdict", has_text="accepted").wait_for(timeout=PATIENCE)
    page.focus("button[data-what=zip]")
    with page.expect_download(timeout=PATIENCE) as download:
        page.keyboard.press("Enter")
    zipfile.ZipFile(download.value.path()).extractall(tmp_path / "got")
    assert ol.check(tmp_path / "got").ok
    wanted = float(ol.load(tmp_path / "got").model(torch.tensor(point, dtype=torch.float64)))
    assert abs(value - wanted) <= 1e-12 * max(1.0, abs(wanted))
    assert watched.quiet(f"http://{server.host}/")


def test_the_enclosure_closes_and_a_reload_goes_on(server: Any, watched: Any) -> None:
    page = opened(server, watched)
    ordered(page, "exp(sin(3*x)*y)", "x = 0:2, y = 0:2", "1e-4")
    page.locator("#working").wait_for()
    address = page.url
    page.locator("#stage:visible:has-text('fitting'), #result:visible").first.wait_for(timeout=PATIENCE)
    page.reload()
    assert page.url == address
    page.locator("#enclosure:visible:has-text('sup'), #result:visible").first.wait_for(timeout=PATIENCE)
    shown(page)
    assert page.locator("#formula").input_value() == "exp(sin(3*x)*y)"
    state = server.ask("GET", f"/api/jobs/{address.rsplit('/', 1)[1]}")[1]
    uppers = [upper for _, _, upper in state["history"]]
    assert uppers
    assert uppers[-1] <= 1e-4
    assert len(uppers) > 2  # every round of the proof, however fast
    assert page.locator("#closed").is_visible()
    assert watched.quiet(f"http://{server.host}/")


def test_cancel(server: Any, watched: Any) -> None:
    page = opened(server, watched)
    ordered(page, "sin(9*x*y)*cos(7*y*z + x)", "x=0:3, y=0:3, z=0:3", "1e-7")
    page.locator("#stage", has_text="fitting").wait_for(timeout=PATIENCE)
    page.click("#cancel")
    page.locator("#result, #failed").locator("visible=true").first.wait_for(timeout=PATIENCE)
    assert page.locator("#claim .badge.proved").count() == 0
    assert watched.quiet(f"http://{server.host}/")


BAD = {
    "formula": ("sin(x", "0:1", "1e-3"),
    "domain": ("sin(x)", "1:0", "1e-3"),
    "eps": ("sin(x)", "0:1", "tiny"),
}


@pytest.mark.parametrize("field", BAD)
def test_bad_input_is_said_at_its_field(field: str, server: Any, watched: Any) -> None:
    page = opened(server, watched)
    ordered(page, *BAD[field])
    line = page.locator(f"#wrong-{field}:not(:empty)")
    line.wait_for(timeout=PATIENCE)
    assert "\n" not in line.text_content()
    assert page.locator(f"#{field}").get_attribute("aria-invalid") == "true"


def test_bad_tables_and_lengths(server: Any, watched: Any) -> None:
    page = opened(server, watched)
    page.check("input[name=kind][value=table]", force=True)
    page.fill("#csv", "a,b\n1,2\n")
    page.fill("#target", "<img src=x onerror=alert(1)>")
    page.click("#go")
    page.locator("#wrong-csv:not(:empty)").wait_for(timeout=PATIENCE)
    assert page.locator("#wrong-csv img").count() == 0
    page.check("input[name=kind][value=sort]", force=True)
    page.fill("#length", "1e9")
    page.fill("#eps", "0.1")
    page.click("#go")
    page.locator("#wrong-length:not(:empty)").wait_for(timeout=PATIENCE)
    page.fill("#length", "")
    page.click("#go")
    page.locator("#wrong-length", has_text="missing").wait_for(timeout=PATIENCE)


def test_two_visitors_and_the_gallery(server: Any, watched: Any, chromium: Any) -> None:
    other = chromium.new_page()
    try:
        page = opened(server, watched)
        page.locator("#gallery button", has_text="a kink").click()
        other.goto(f"http://{server.host}/")
        other.locator("#gallery button", has_text="a table to remember").click()
        shown(page)
        other.locator("#result").wait_for(timeout=PATIENCE)
        assert "proved" in page.locator("#claim").text_content()
        assert "proved" in other.locator("#claim").text_content()
        assert page.url != other.url
    finally:
        other.close()


def test_every_example_of_the_gallery_is_proved(server: Any, watched: Any) -> None:
    page = opened(server, watched)
    for number in range(page.locator("#gallery button").count()):
        page = opened(server, watched)
        page.locator("#gallery button").nth(number).click()
        shown(page)
        assert page.locator("#claim .badge").text_content() == "proved"
    assert watched.quiet(f"http://{server.host}/")


def test_a_narrow_screen(server: Any, watched: Any) -> None:
    watched.page.set_viewport_size({"width": 360, "height": 740})
    page = opened(server, watched)
    page.locator("#gallery button", has_text="a sine").click()
    shown(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert watched.quiet(f"http://{server.host}/")


def test_an_address_of_nothing(server: Any, watched: Any) -> None:
    page = opened(server, watched, "/r/0123456789abcdef")
    page.locator("#reason", has_text="no such result").wait_for()


def test_the_first_page_shows_a_layer_that_runs(server: Any, watched: Any) -> None:
    page = opened(server, watched)
    page.locator("#sample[data-ready=yes]").wait_for()
    before = page.locator("#sample .live-value").text_content()
    page.locator("#sample .live-figure").focus()
    page.keyboard.press("Shift+ArrowLeft")
    page.wait_for_timeout(100)
    assert page.locator("#sample .live-value").text_content() != before
    assert watched.quiet(f"http://{server.host}/")


def test_the_wheel_scrolls_the_page_until_the_figure_is_chosen(server: Any, watched: Any) -> None:
    watched.page.set_viewport_size({"width": 1280, "height": 600})
    page = opened(server, watched)
    page.locator("#sample[data-ready=yes]").wait_for()
    figure, whole = page.locator("#sample .live-figure"), page.locator("#sample button", has_text="whole")
    box = figure.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 4)
    page.mouse.wheel(0, -120)
    page.wait_for_timeout(150)
    assert not whole.is_visible()
    figure.focus()
    page.mouse.wheel(0, -120)
    whole.wait_for()
    whole.click()
    whole.wait_for(state="hidden")
