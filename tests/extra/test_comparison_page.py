"""compare.html in headless Chromium: roofs drawn, names stay text, nothing wider than a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import dse
from tests.extra.test_browser import EMPTY_PLOTS, HOSTILE, MISFITS, Browser, browser

pytestmark = pytest.mark.extra
__all__ = ["browser"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("compared")
    own = folder / "own.yaml"
    own.write_text(
        f"id: mine\nname: '{HOSTILE.replace(chr(39), '')}'\nefficiency: class_gpu\n"
        "memory_capacity: 96 GB\nmemory_bandwidth: 4 TB/s\npeak_bf16: 1000 TFLOP/s\n"
        "system: {chips: 8, bandwidth_per_direction: 450 GB/s}\n",
        encoding="utf-8",
    )
    said = dse(
        "compare", "h200_sxm", own, "--set", "hbm_bandwidth=2x", "--tp", 2,
        "--model", "llama-3-8b", "--out", folder,
    )  # fmt: skip
    assert said.code == 0, said.err
    return (folder / "compare.html").as_uri()


@pytest.mark.parametrize("width", [1280, 390])
def test_roofs_are_drawn_and_the_page_fits(browser: Browser, page: str, width: int) -> None:
    browser.open(page, width)
    assert browser.run(EMPTY_PLOTS) == []
    assert browser.run(MISFITS) == []
    assert browser.run("document.querySelectorAll('.plot .scatterlayer .lines').length") >= 3
    assert browser.run("document.documentElement.scrollWidth") <= width
    legend = "[...document.querySelectorAll('.legendtext')].map((t) => t.textContent)"
    assert "hypothetical H200 SXM 141GB" in browser.run(legend)
    assert not browser.problems
    assert all(url.startswith(("file:", "data:")) for url in browser.requests)
