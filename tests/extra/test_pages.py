"""Pages of dse compare and dse scale in headless Chromium: every plot drawn, names stay text,
nothing wider than a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import dse
from tests.cli.test_compare_prices import SPACE, fleet, study
from tests.cli.test_fleet import PLAN, written
from tests.extra.test_browser import EMPTY_PLOTS, HOSTILE, MISFITS, Browser, browser

pytestmark = pytest.mark.extra
__all__ = ["browser"]

NAME = HOSTILE.replace("/", " ")
OWN = (
    f"id: mine\nname: '{HOSTILE.replace(chr(39), '')}'\nefficiency: class_gpu\n"
    "memory_capacity: 96 GB\nmemory_bandwidth: 4 TB/s\npeak_bf16: 1000 TFLOP/s\n"
    "system: {chips: 8, bandwidth_per_direction: 450 GB/s}\n"
)


def chips(folder: Path) -> tuple[object, ...]:
    (folder / "own.yaml").write_text(OWN, encoding="utf-8")
    changed = ("--set", "hbm_bandwidth=2x", "--tp", 2, "--model", "llama-3-8b")
    return ("compare", "h200_sxm", folder / "own.yaml", *changed)


def studies(folder: Path) -> tuple[object, ...]:
    space = folder / "renting.yaml"
    space.write_text(SPACE.replace("<on>", NAME), encoding="utf-8")
    june = study(space, "june", "--as-of", "2026-06", h100_sxm=3.0, h200_sxm=2.0)
    return ("compare", june, study(space, NAME, h100_sxm=1.2, h200_sxm=2.0, b200_sxm=4.5))


def fleets(folder: Path) -> tuple[object, ...]:
    return ("compare", fleet(folder / "june", 3.0, 16), fleet(folder / NAME, 2.4, 24))


def dense(folder: Path) -> tuple[object, ...]:
    return ("scale", "--model", "llama-3-8b", "--chip", "h100_sxm", "--chips-up-to", 144)


def sparse(folder: Path) -> tuple[object, ...]:
    asked = ("--model", "deepseek-v3", "--chip", "gb200_nvl72", "--against", "b200_sxm")
    return ("scale", *asked, "--chips-up-to", 144)


@pytest.fixture(scope="module", params=[chips, studies, fleets, dense, sparse])
def page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Callable[..., object]]:
    folder = tmp_path_factory.mktemp("pages")
    said = dse(*request.param(folder), "--out", folder / "out")
    assert said.code == 0, said.err
    return next((folder / "out").glob("*.html")).as_uri(), request.param


@pytest.mark.parametrize("width", [1280, 390])
def test_plots_are_drawn_and_the_page_fits(
    browser: Browser, page: tuple[str, Callable[..., object]], width: int
) -> None:
    url, asked = page
    browser.open(url, width)
    assert browser.run("document.querySelectorAll('.plot').length") >= (2 if asked is sparse else 1)
    assert browser.run(EMPTY_PLOTS) == []
    assert browser.run(MISFITS) == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    if asked is chips:
        assert browser.run("document.querySelectorAll('.plot .scatterlayer .lines').length") >= 3
        legend = "[...document.querySelectorAll('.legendtext')].map((t) => t.textContent)"
        assert "hypothetical H200 SXM 141GB" in browser.run(legend)
    assert not browser.problems
    assert all(url.startswith(("file:", "data:")) for url in browser.requests)


def test_paper_unfolds_the_answer_and_a_screen_folds_it_again(
    browser: Browser, tmp_path: Path
) -> None:
    assert dse("fleet", written(tmp_path, PLAN), "--out", tmp_path / "out").code == 0
    browser.open((tmp_path / "out/fleet.html").as_uri())
    folded = "document.querySelectorAll('details:not([open])').length"
    assert browser.run(folded) > 0
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run(folded) == 0
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.run(folded) > 0
    assert not browser.problems
