"""From an observed MFU back to its causes."""

from __future__ import annotations

import pytest

import dse
from dse.errors import Doubt, InputError

RUN = ("llama-3-8b", "h100_sxm", 256)
MFU = 0.2
DOCUMENT = dse.train(*RUN, tokens="1T", observed_mfu="20%").document
WHY = DOCUMENT["observed"]


def test_causes_with_a_size_leave_what_was_observed() -> None:
    """Run again with that input, and with ranks that late, the run reaches the observed MFU."""
    best = DOCUMENT["mfu"]
    rate = DOCUMENT["tokens_per_s"] * MFU / best
    again = dse.train(*RUN, tokens="1T", input_tokens_per_s=f"{rate}").document
    assert again["mfu"] == pytest.approx(MFU, rel=1e-3)
    late = next(row["cause"] for row in WHY["causes"] if row["cause"].startswith("ranks"))
    share = float(late.split("by ")[1].split("%")[0]) / 100.0
    again = dse.train(*RUN, tokens="1T", straggler=share).document
    assert again["mfu"] == pytest.approx(MFU, rel=0.02)


def test_what_the_loss_costs() -> None:
    slower = DOCUMENT["mfu"] / MFU
    assert WHY["days"] == pytest.approx(DOCUMENT["days"] * slower)
    assert WHY["usd"] == pytest.approx(DOCUMENT["usd"] * slower)
    for row in WHY["causes"]:
        assert 0.0 < row["explains"] <= 1.0
        assert row["saves_days"] <= WHY["days"] - DOCUMENT["days"] + 1e-9 or row["mfu"] < MFU
    assert [row["explains"] for row in WHY["causes"]] == sorted(
        (row["explains"] for row in WHY["causes"]), reverse=True
    )


def test_a_cause_is_the_run_with_it() -> None:
    whole = next(row for row in WHY["causes"] if row["cause"] == "all layers are recomputed")
    assert whole["mfu"] == dse.train(*RUN, tokens="1T", recompute="full").document["mfu"]


def test_a_share_is_written_as_percent_or_not() -> None:
    assert dse.train(*RUN, tokens="1T", observed_mfu="0.2").document["observed"] == WHY


def test_what_is_read_as_a_hundredth_is_noted() -> None:
    with pytest.warns(Doubt, match=r"read 0\.2%: .* \(1% to 100%\); 20% was probably meant"):
        dse.train(*RUN, tokens="1T", observed_mfu="0.2%")


@pytest.mark.parametrize("text", ["", "much", "11%%", "99%", "0"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(InputError, match="read"):
        dse.train(*RUN, tokens="1T", observed_mfu=text)
