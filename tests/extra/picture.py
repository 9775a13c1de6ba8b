"""The picture of the README: `python -m tests.extra.picture` draws docs/quickstart.png, the first
screen of reports/quickstart/report.html in headless Chromium."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.extra.test_browser import Browser

ROOT = Path(__file__).parents[2]


def main() -> None:
    profile = tempfile.mkdtemp(prefix="dse-chromium-")
    browser = Browser(profile)
    try:
        browser.open((ROOT / "reports/quickstart/report.html").as_uri(), 1400, 900)
        browser.screenshot(ROOT / "docs/quickstart.png")
    finally:
        browser.close()
        shutil.rmtree(profile, ignore_errors=True)


if __name__ == "__main__":
    main()
