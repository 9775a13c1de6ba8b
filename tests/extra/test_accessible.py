"""axe-core (npm) on every kind of page, light and dark, with all that opens on a click opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import dse
from tests.extra.test_browser import Browser, browser, report

pytestmark = pytest.mark.extra
__all__ = ["browser", "report"]
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
FOUND = """axe.run({resultTypes: ["violations"]}).then(({violations}) =>
    violations.map(({id, nodes}) => `${id}: ${nodes[0].target.join(" ")}`))"""
SERVED = ("--model", "llama-3-8b", "--chip", "h100_sxm")
PAGES = {
    "estimate": ("estimate", *SERVED),
    "check": ("check", "llama-3-8b", "--chip", "h100_sxm"),
    "train": ("train", "llama-3-8b", "--chip", "h100_sxm", "--chips", 64, "--tokens", "1T"),
    "compare": ("compare", "h100_sxm", "h200_sxm", "--model", "llama-3-8b"),
    "scale": ("scale", *SERVED),
    "whatif": ("whatif", "deploy-llama-3-70b", "--sensitivities"),
    "risk": ("whatif", "deploy-llama-3-70b", "--uncertain"),
    "fleet": ("fleet", "dense-70b-billion-tokens"),
}


def violations(browser: Browser, url: str) -> list[str]:
    found: list[str] = []
    for scheme in ("light", "dark"):
        preferred = {"name": "prefers-color-scheme", "value": scheme}
        browser.call("Emulation.setEmulatedMedia", features=[preferred])
        browser.open(url, 1400, 900)
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        browser.run(f"{AXE.read_text(encoding='utf-8')};1")
        found += browser.run(FOUND)
    return found


@pytest.fixture(autouse=True)
def installed() -> None:
    if not AXE.is_file():
        pytest.skip("no axe-core here: sh tests/extra/install.sh installs it with npm")


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_breaks_no_rule(browser: Browser, tmp_path: Path, kind: str) -> None:
    said = dse(*PAGES[kind], "--out", tmp_path)
    assert said.code == 0, said.err
    assert violations(browser, next(tmp_path.glob("*.html")).as_uri()) == []


def test_the_page_of_a_study_breaks_no_rule(browser: Browser, report: str) -> None:
    assert violations(browser, report) == []
