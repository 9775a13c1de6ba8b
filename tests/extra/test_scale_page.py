"""scale.html in headless Chromium: every plot drawn, nothing wider than a phone."""

from __future__ import annotations

import pytest

from tests.cli.conftest import dse
from tests.extra.test_browser import Browser, browser

pytestmark = pytest.mark.extra
__all__ = ["browser"]

DENSE = ("--model", "llama-3-8b", "--chip", "h100_sxm")
SPARSE = ("--model", "deepseek-v3", "--chip", "gb200_nvl72", "--against", "b200_sxm")


@pytest.fixture(scope="module", params=[(DENSE, 2), (SPARSE, 2)], ids=["dense", "sparse"])
def page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, int]:
    flags, plots = request.param
    folder = tmp_path_factory.mktemp("scale")
    said = dse("scale", *flags, "--chips-up-to", 144, "--out", folder)
    assert said.code == 0, said.err
    return (folder / "scale.html").as_uri(), plots


@pytest.mark.parametrize("width", [1280, 390])
def test_plots_are_drawn_and_the_page_fits(
    browser: Browser, page: tuple[str, int], width: int
) -> None:
    browser.open(page[0], width)
    every = "[...document.querySelectorAll('.plot')]"
    assert browser.run(f"{every}.length") == page[1]
    assert browser.run(f"{every}.every((p) => p.querySelector('.scatterlayer .point'))")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert not browser.problems
    assert all(url.startswith(("file:", "data:")) for url in browser.requests)
