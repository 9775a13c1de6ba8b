"""compare.html of two studies and of two fleets in headless Chromium: every plot drawn, nothing
wider than a phone, names of folders stay text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import dse
from tests.cli.test_compare_prices import SPACE, fleet, study
from tests.extra.test_browser import EMPTY_PLOTS, HOSTILE, MISFITS, Browser, browser

pytestmark = pytest.mark.extra
__all__ = ["browser"]

NAME = HOSTILE.replace("/", " ")


@pytest.fixture(scope="module", params=["studies", "fleets"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("compared")
    if request.param == "fleets":
        a, b = fleet(folder / "june", 3.0, 16), fleet(folder / NAME, 2.4, 24)
    else:
        space = folder / "renting.yaml"
        space.write_text(SPACE.replace("<on>", NAME), encoding="utf-8")
        a = study(space, "june", "--as-of", "2026-06", h100_sxm=3.0, h200_sxm=2.0)
        b = study(space, NAME, h100_sxm=1.2, h200_sxm=2.0, b200_sxm=4.5)
    said = dse("compare", a, b, "--out", folder / "out")
    assert said.code == 0, said.err
    return (folder / "out" / "compare.html").as_uri()


@pytest.mark.parametrize("width", [1280, 390])
def test_plots_are_drawn_and_the_page_fits(browser: Browser, page: str, width: int) -> None:
    browser.open(page, width)
    assert browser.run("document.querySelectorAll('.plot').length") >= 1
    assert browser.run(EMPTY_PLOTS) == []
    assert browser.run(MISFITS) == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    assert not browser.problems
    assert all(url.startswith(("file:", "data:")) for url in browser.requests)
