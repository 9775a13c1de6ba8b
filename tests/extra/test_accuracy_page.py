"""accuracy.html in headless Chromium: plots drawn, choices work, nothing wider than a phone."""

from __future__ import annotations

import pytest

from dse.accuracy import measurements
from dse.render.accuracy import write_accuracy
from tests.extra.test_browser import HOSTILE, Browser, browser

pytestmark = pytest.mark.extra
__all__ = ["browser"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = measurements.shipped()[0].iloc[::10].reset_index(drop=True)
    rows["engine"] = rows["engine"] + HOSTILE
    answer = measurements.predict(rows)
    folder = tmp_path_factory.mktemp("accuracy")
    path = write_accuracy(folder, measurements.accuracy(answer), answer, ["How far off: not far."])
    return path.as_uri()


@pytest.mark.parametrize("width", [1280, 390])
def test_plots_are_drawn_and_the_page_fits(browser: Browser, page: str, width: int) -> None:
    browser.open(page, width)
    drawn = browser.run("document.querySelectorAll('.plot .main-svg').length")
    assert drawn >= 3 * 6
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert not browser.problems
    assert all(url.startswith(("file:", "data:")) for url in browser.requests)


def test_what_is_shown_and_its_colours_can_be_chosen(browser: Browser, page: str) -> None:
    browser.open(page)
    points = "document.querySelectorAll('#scatter .scatterlayer .point').length"
    before = browser.run(points)
    for name, value in (("shown", "2"), ("coloured", "model")):
        browser.run(
            f"(() => {{ const s = document.getElementById('{name}'); s.value = '{value}';"
            "s.dispatchEvent(new Event('change')); })()"
        )
        browser.settle()
    assert 0 < browser.run(points) < before
    names = "[...document.querySelectorAll('#scatter .legendtext')].map((t) => t.textContent)"
    assert "within 20%" in browser.run(names)
    assert any("qwen" in name for name in browser.run(names)), browser.run(names)
    assert not browser.problems
