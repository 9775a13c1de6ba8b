"""What would have been picked by predictions, as it was measured."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dse as library
from dse.accuracy.scores import LAUNCH, QUESTIONS, Question, decided, supported
from tests.cli.conftest import dse

HEAD = "model,chip,tp,engine,serving,prompt_tokens,output_tokens,concurrency,metric,value\n"


def table(*rows: tuple[str, float, float, float, float]) -> pd.DataFrame:
    """Configurations of one model: chip, measured and predicted seconds a token, and rates."""
    names = ["chip", "tpot_s.value", "tpot_s.predicted", "rate.value", "rate.predicted"]
    made = pd.DataFrame(rows, columns=names)
    made[["model", "prompt_tokens", "output_tokens", "usd_per_chip_hour"]] = ["m", "1", "1", 2.0]
    return made.assign(sigma=0.1)


def of(name: str) -> Question:
    return next(one for one in QUESTIONS if one.name == name)


def test_a_pick_is_the_best_prediction_within_the_limit_and_is_judged_as_measured() -> None:
    needs = table(
        ("a", 0.008, 0.009, 10.0, 11.0),
        ("a", 0.009, 0.0095, 20.0, 22.0),
        ("a", 0.012, 0.0099, 30.0, 33.0),
        ("a", 0.013, 0.0120, 40.0, 44.0),
    )
    (half,) = decided(needs, of(LAUNCH), 0.010, 0.5)
    assert (half["picked"], half["broken"], half["lost"]) == (True, True, None)
    # at z(s) sigma = ln(10 / 9.5) the second is the last that holds
    sure = 0.5 * (1.0 + math.erf(math.log(10.0 / 9.5) / 0.1 / math.sqrt(2.0))) - 1e-6
    (held,) = decided(needs, of(LAUNCH), 0.010, sure)
    assert (held["broken"], held["lost"]) == (False, 0.0)
    (more,) = decided(needs, of(LAUNCH), 0.010, sure + 1e-5)
    assert more["lost"] == pytest.approx(0.5)
    (none,) = decided(needs, of(LAUNCH), 0.010, 0.9)
    assert (none["picked"], none["broken"], none["lost"]) == (False, False, None)


def test_the_side_of_a_pick_is_held_against_the_side_of_the_measured_best() -> None:
    needs = table(
        ("a", 0.008, 0.008, 30.0, 10.0), ("b", 0.008, 0.008, 20.0, 11.0), ("b", 0.03, 0.03, 1, 1)
    )
    (row,) = decided(needs, of("which chip"), 0.010, 0.5)
    assert (row["right"], row["lost"]) == (False, pytest.approx(1.0 / 3.0))
    needs.loc[0, "usd_per_chip_hour"] = 4.0  # a dollar, the slower chip gives more
    (row,) = decided(needs, of("which chip"), 0.010, 0.5)
    assert (row["right"], row["lost"]) == (True, 0.0)


def test_what_leaves_nothing_to_decide_is_no_need() -> None:
    alike = table(("a", 0.008, 0.008, 1.0, 1.0), ("a", 0.009, 0.009, 2.0, 2.0))
    assert decided(alike, of(LAUNCH), 0.010, 0.5) == []  # all keep the limit
    assert decided(alike, of(LAUNCH), 0.001, 0.5) == []  # none does
    apart = alike.assign(**{"tpot_s.value": [0.008, 0.012]})
    assert len(decided(apart, of(LAUNCH), 0.010, 0.5)) == 1
    assert decided(apart, of("which chip"), 0.010, 0.5) == []  # one chip


def test_the_command_scores_rows_of_ones_own(tmp_path: Path) -> None:
    """Of two loads the larger is predicted to serve more within 20 ms a token: measured at 22 ms it
    breaks the limit, measured at 20 ms it is the right pick."""
    at = {"prompt_tokens": 1024, "output_tokens": 256, "backend": "vllm"}
    few, many = (
        library.estimate("llama-3-8b", "h100_sxm", tp=1, concurrency=n, **at) for n in (8, 64)
    )
    assert few.tpot_s < many.tpot_s < 0.020
    path = tmp_path / "rows.csv"
    scored = []
    for measured in (0.022, 0.020):
        text = HEAD
        for flight, one, tpot_s in ((8, few, few.tpot_s), (64, many, measured), (512, many, 0.05)):
            row = f"llama-3-8b,h100_sxm,1,vllm,continuous,1024,256,{flight}"
            text += f"{row},ttft_s,{one.ttft_s}\n{row},tpot_s,{tpot_s}\n"
        path.write_text(text, encoding="utf-8")
        document = dse("validate", "--decisions", "--data", path, "--json").json()
        scored.append(
            next(
                row
                for row in document["decisions"]
                if (row["question"], row["sureness"]) == (LAUNCH, 0.5)
                and row["tpot_limit_s"] == 0.020
            )
        )
    assert [row["needs"] for row in scored] == [1, 1]
    assert [row["broken"] for row in scored] == [1.0, 0.0]
    assert [row["lost"] for row in scored] == [None, 0.0]


def test_rows_that_leave_nothing_to_decide_say_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    row = "llama-3-8b,h100_sxm,1,vllm,continuous,1024,256,8"
    path.write_text(f"{HEAD}{row},tpot_s,0.009\n{row},ttft_s,0.1\n", encoding="utf-8")
    said = dse("validate", "--decisions", "--data", path)
    assert said.code == 2
    assert "--decisions: nothing to decide (accepted: tpot_s and ttft_s of two ways" in said.err
    assert dse("validate", "--data", path).code == 0


def test_shipped_rows_support_a_sureness_between_the_middle_and_the_top() -> None:
    """The middle of an interval breaks limits often, its top gives rate away."""
    rows = library.validate().document["decisions"]
    launch = pd.DataFrame([row for row in rows if row["question"] == LAUNCH])
    by = launch.groupby("sureness")[["broken", "lost"]].mean()
    assert (np.diff(by["broken"]) <= 0.0).all()
    assert (np.diff(by["lost"]) >= 0.0).all()
    assert 0.5 < supported(rows) < 0.9
