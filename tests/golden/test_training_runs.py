"""Three public training runs from their published configuration, none of which a fit has seen."""

from __future__ import annotations

import pytest

from tools.fits.published import RUNS, PublicRun, estimate_run


@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_chip_hours_within_15_percent_of_the_published_total(run: PublicRun) -> None:
    found = estimate_run(run)
    assert found["predicted_chip_hours"] == pytest.approx(run.published, rel=0.15)
    low, high = found["interval"]
    assert low < run.published < high


def test_their_published_figures_agree_with_each_other() -> None:
    """Llama 3.1: 30.84M hours on 16,384 chips are 78 days, of the 54 days' snapshot and the rest;
    DeepSeek-V3: 180K hours a trillion tokens, and 0.119M + 0.005M after pre-training; PaLM: 6ND and
    attention at 238.3k tokens a second are 46.2% of 275 TFLOP/s."""
    llama, deepseek, palm = RUNS
    assert llama.published / 16384 / 24 == pytest.approx(78.4, abs=0.1)
    assert deepseek.published == pytest.approx(180e3 * 14.8 + 0.119e6 + 0.005e6, rel=1e-3)
    per_token = 6.0 * 540.35e9 + 12.0 * 118 * 48 * 256 * 2048
    rate = palm.tokens / palm.published / 3600.0
    assert rate * per_token == pytest.approx(0.462 * 275e12, rel=0.01)
