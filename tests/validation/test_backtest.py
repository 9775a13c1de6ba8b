"""The backtest: laws are lent as fractions of the new chip's own figures, and no row of the chips
that it hides is seen."""

from __future__ import annotations

import numpy as np
import pytest

from dse.accuracy import backtest
from dse.accuracy import validate as measurements
from dse.accuracy.fits import Problem
from dse.catalog import load_catalog
from dse.physics.machines import compile_machines
from dse.schema.backend import UNCALIBRATED
from dse.schema.dtypes import CODE

B200, GB200, MI300X, _ = backtest.CASES


def test_lent_laws_are_fractions_of_the_new_chips_own_figures() -> None:
    catalog = load_catalog()
    lent = backtest.before(catalog, B200, UNCALIBRATED)
    machines = compile_machines(lent, ["b200_sxm"])
    code, chip = machines.code("b200_sxm"), lent.chips["b200_sxm"]
    laws = catalog.efficiencies["h200_sxm"].operators["gemm"]
    gemm = machines.laws["gemm"]
    for dtype, like in (("bf16", "bf16"), ("fp8", "fp8"), ("nvfp4", "fp8"), ("mxfp4", "fp8")):
        flops = laws[like].compute * chip.peak_flops_per_s[dtype]
        assert gemm.s_per_flop[code, CODE[dtype]] == pytest.approx(1.0 / flops), dtype
        bytes_per_s = laws[like].memory * chip.memories[0].bytes_per_s
        assert gemm.s_per_byte[code, CODE[dtype]] == pytest.approx(1.0 / bytes_per_s), dtype
    assert (machines.law_kind[code] > 0).all()  # derived at best
    for name in ("h200_sxm", "mi300x", "trn1"):
        assert lent.chips[name] == catalog.chips[name]
    assert lent.chips["rtx_pro_6000"].efficiency == "h200_sxm:rtx_pro_6000"


def test_a_format_that_the_older_chip_computes_in_keeps_its_law() -> None:
    catalog = load_catalog()
    lent = backtest.before(catalog, GB200, UNCALIBRATED).efficiencies["b200_sxm:gb200_nvl72"]
    own = catalog.efficiencies["b200_sxm"].operators
    for operator in ("gemm", "experts"):
        for dtype in ("nvfp4", "mxfp4"):
            assert lent.operators[operator][dtype].compute == own[operator][dtype].compute


@pytest.mark.parametrize(
    ("case", "hidden"),
    [
        (B200, {"b200_sxm", "gb200_nvl72", "b300_sxm", "gb300_nvl72", "rtx_pro_6000"}),
        (GB200, {"gb200_nvl72"}),
        (MI300X, {"mi300x", "mi325x", "mi355x"}),
    ],
)
def test_what_a_case_hides(case: backtest.Case, hidden: set[str]) -> None:
    chips = load_catalog().chips.values()
    found = {chip.id for chip in chips if case.hides(chip)}
    assert hidden <= found
    assert not found & {"h100_sxm", "h200_sxm", "a100_80_sxm", "trn1"}


def test_no_row_of_a_hidden_chip_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured on it moves no prediction, only the error; that of another chip does."""
    fit = Problem.fit
    monkeypatch.setattr(Problem, "fit", lambda posed: fit(posed, rounds=1))
    table = measurements.scored_rows(measurements.shipped()[0])
    chips = ["h200_sxm", "b200_sxm"]
    table = table[(table["serving"] == "continuous") & table["chip"].isin(chips)]
    table = table[table["model"] == "llama-3-70b"]
    rows = measurements.predict(table.groupby(["group", "metric"]).head(3).reset_index(drop=True))

    def found(moved: str | None = None) -> dict:
        by = np.where(rows["chip"] == moved, 3.0, 1.0)
        (case,) = backtest.backtest(rows.assign(value=(rows["value"] * by).map(repr)), (B200,))
        return case

    case, own, other = found(), found("b200_sxm"), found("h200_sxm")
    assert case["chip"] == "b200_sxm"
    assert case["rows"] == sum(item["rows"] for item in case["scores"])
    assert 0 < case["fitted_rows"] < len(rows)
    for before, mine, theirs in zip(case["scores"], own["scores"], other["scores"], strict=True):
        # Three times the measured value: the same prediction is off to a third of the ratio.
        assert 1.0 + mine["bias"] == pytest.approx((1.0 + before["bias"]) / 3.0, rel=1e-12)
        assert mine["interval_width"] == before["interval_width"]
        assert theirs["bias"] != before["bias"]
    assert backtest.backtest(rows[rows["chip"] != "b200_sxm"], (B200,)) == []
