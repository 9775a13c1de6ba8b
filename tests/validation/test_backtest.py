"""The backtest: laws are lent as fractions of the new chip's own figures, and no row of the chips
that it hides is seen."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dse as library
from dse.accuracy import measurements
from dse.accuracy import validate as backtest
from dse.accuracy.fits import Problem, pose
from dse.accuracy.scores import ERRORS, _target
from dse.accuracy.serving_points import estimate_rows
from dse.accuracy.tables import machines_of
from dse.accuracy.training_rows import estimate_training
from dse.catalog import load_catalog
from dse.schema.calibration import NONE
from dse.schema.dtypes import CODE
from tools.accuracy_page import page as accuracy_page

B200, GB200, MI300X, _ = backtest.CASES


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """A few rows of Hopper and of the new chips: a fit and its folds take seconds."""
    table = measurements.scored_rows(measurements.shipped()[0])
    chips = ["h200_sxm", "b200_sxm", "mi300x"]
    table = table[(table["serving"] == "continuous") & table["chip"].isin(chips)]
    table = table[table["model"].isin(["llama-3-70b", "deepseek-v3"])]
    return table.groupby(["group", "metric"]).head(3).reset_index(drop=True)


@pytest.fixture(scope="module")
def problem(rows: pd.DataFrame) -> Problem:
    return pose(rows)


def test_lent_laws_are_fractions_of_the_new_chips_own_figures() -> None:
    catalog = load_catalog()
    lent = backtest.before(catalog, B200, NONE)
    machines = machines_of(lent)
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
    lent = backtest.before(catalog, GB200, NONE).efficiencies["b200_sxm:gb200_nvl72"]
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


def test_no_row_of_a_hidden_chip_is_seen(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its measured values move nothing, bit for bit; those of another chip do."""
    monkeypatch.setattr(backtest, "CASES", (B200,))
    fit = Problem.fit
    monkeypatch.setattr(Problem, "fit", lambda posed: fit(posed, rounds=1))
    ((_, known, before),) = backtest.predictions(problem)
    chips = problem.table["chip"]
    family = {c.id for c in problem.catalog.chips.values() if c.family == "blackwell"}
    assert not known.rows[chips.isin(family)].any()
    assert known.rows.sum() == (problem.weight[~chips.isin(family)] > 0.0).sum() > 0

    def moved(rows: pd.Series) -> pd.DataFrame:
        table = problem.table.copy()
        values = table["value"].astype(float) * np.where(rows, 3.0, 1.0)
        table["value"] = values.map(repr)
        ((_, _, after),) = backtest.predictions(pose(table))
        return after

    columns = ["predicted", "predicted_low", "predicted_high"]
    assert moved(chips.isin(family))[columns].equals(before[columns])
    mine = chips == "b200_sxm"
    assert not moved(chips == "h200_sxm").loc[mine, columns].equals(before.loc[mine, columns])


def test_the_table(rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "CASES", (B200, MI300X))
    monkeypatch.setattr(
        backtest, "learn", lambda _, known: backtest.Known(known, load_catalog().calibration)
    )
    said: list[str] = []
    answer = measurements.predict(rows)
    held = measurements.accuracy(answer)["scores"]
    cases = backtest.backtest(answer, held, said.append)
    assert [case["chip"] for case in cases] == ["b200_sxm", "mi300x"]
    assert any("b200_sxm" in text for text in said)
    for case in cases:
        assert set(case) == {
            "chip",
            "laws",
            "left_out",
            "fitted_rows",
            "rows",
            "interval_coverage",
            "scores",
            "speed_up",
        }
        mine = measurements.covered(answer)
        mine = mine[mine["chip"] == case["chip"]]
        assert case["rows"] == len(mine) == sum(item["rows"] for item in case["scores"])
        for item in case["scores"]:
            today = item["held_out_by_chip"]
            assert (today["by"], today["key"]) == ("chip", case["chip"])
            assert today["rows"] == item["rows"]
        inside = sum(item["interval_coverage"] * item["rows"] for item in case["scores"])
        assert case["interval_coverage"] == pytest.approx(inside / len(mine))
    assert cases[0]["fitted_rows"] < cases[1]["fitted_rows"] < len(rows)
    unknown = backtest.backtest(answer[answer["chip"] != "mi300x"], [], said.append)
    assert [case["chip"] for case in unknown] == ["b200_sxm"]
    assert all(item["held_out_by_chip"] is None for item in unknown[0]["scores"])


def test_the_command_and_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the shipped rows, folds and learning that change nothing in place of the fits."""

    def folds(problem: Problem, _: object) -> dict[str, pd.DataFrame]:
        return dict.fromkeys(("group", "chip", "model"), estimate_rows(problem.table))

    def trained_folds(rows: pd.DataFrame, *_: object) -> dict[str, pd.DataFrame]:
        return dict.fromkeys(("group", "chip", "model"), estimate_training(rows))

    shipped = load_catalog().calibration
    monkeypatch.setattr(Problem, "cross_validate", folds)
    monkeypatch.setattr(measurements, "cross_validate_training", trained_folds)
    monkeypatch.setattr(backtest, "learn", lambda _, known: backtest.Known(known, shipped))
    answer = library.validate(cross_validate=True)
    document = answer.document
    assert [(case["chip"], case["laws"]) for case in document["backtest"]] == [
        (case.chip, case.laws) for case in backtest.CASES
    ]
    page = accuracy_page(answer, "", [])
    assert page.index("## Targets") < page.index("## What the fit has seen")
    for case in document["backtest"]:
        for item in case["scores"]:
            row = f"| {case['chip']} | {case['laws']} | {item['metric']} |"
            assert row in page.replace("\\", "")
    # Nothing is held out here, so that errors agree; what falls short comes first.
    section = page.split("## Targets")[1].split("## What")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if "| at " in line]
    assert len(cells) == len(next(one for one in answer.tables if one.name == "targets").rows)
    errors = [row for row in cells if row[0] in {what for what, *_ in ERRORS}]
    assert len(errors) == len(ERRORS)
    assert all(row[-2] in {row[-3], "–"} for row in errors)
    verdicts = [row[-1] for row in cells]
    assert verdicts == sorted(verdicts, reverse=True)
    assert set(verdicts) <= {"short", "no rows", "met"}


@pytest.mark.parametrize(
    ("wanted", "most", "values", "shortfall"),
    [
        (0.2, True, [0.1, 0.3], 0.5),
        (0.2, True, [0.3], 0.5),
        (0.2, True, [0.3, 0.1], -0.5),
        (0.8, False, [1.0, 0.6], 0.25),
        (0.2, True, [None], 0.0),
    ],
)
def test_a_target_is_held_against_what_was_held_out(
    wanted: float, most: bool, values: list[float | None], shortfall: float
) -> None:
    assert _target("", wanted, values, most=most)["shortfall"] == pytest.approx(shortfall)
