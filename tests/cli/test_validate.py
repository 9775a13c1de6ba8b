"""dse validate as a person uses it."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dse as library
from dse.accuracy import backtest
from dse.accuracy import validate as measurements
from dse.accuracy.fits import FOLDS, Problem
from dse.data import hardware_dir
from tests.cli.conftest import ask, dse, fits
from tools.accuracy_page import page as accuracy_page

SCORE = {
    "metric", "serving", "by", "key", "groups", "rows", "group_median_error", "median_error",
    "p90_error", "bias", "rank_correlation", "interval_coverage", "interval_width",
}  # fmt: skip
INFERENCE = hardware_dir() / "measurements" / "inference.csv"
HEAD = "model,chip,tp,engine,serving,prompt_tokens,output_tokens,concurrency,metric,value,exclude\n"
ROW = "llama-3-8b,h100_sxm,1,vllm,continuous,1024,256,8,tpot_s,0.009,\n"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every 50th shipped row, and three that are not covered."""
    head, *lines = INFERENCE.read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    kept = [line for line in lines if "disaggregated" not in line][::50]
    strange = [kept[0].replace("llama-4-scout,", "<b>nothing</b>,", 1) for _ in range(3)]
    path.write_text("".join([head, *kept, *strange]), encoding="utf-8")
    return path


@pytest.fixture
def few_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 20th of the shipped rows, as if there were no others."""
    tables = [table.iloc[::20].reset_index(drop=True) for table in measurements.shipped()]
    monkeypatch.setattr(measurements, "shipped", lambda: tables)


def test_the_document(rows: Path) -> None:
    document = ask("validate", "--data", rows)
    assert {"rows", "covered", "not_covered", "scores"} <= set(document)
    assert document["rows"] == document["covered"] + sum(
        item["rows"] for item in document["not_covered"]
    )
    assert {"reason": "no model '<b>nothing</b>'", "rows": 3} in document["not_covered"]
    scores = document["scores"]
    assert all(set(item) == SCORE for item in scores)
    overall = [item for item in scores if item["by"] == "all"]
    pairs = {(item["metric"], item["serving"]) for item in scores}
    assert len(overall) == len(pairs)
    for by in ("all", "chip", "model", "backend"):
        assert sum(item["rows"] for item in scores if item["by"] == by) == document["covered"]


def test_excluded_rows_are_in_no_count(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + ROW * 3 + ROW.replace(",\n", ",warm-up\n") * 2, encoding="utf-8")
    document = ask("validate", "--data", path)
    assert (document["rows"], document["covered"], document["not_covered"]) == (3, 3, [])


@pytest.mark.parametrize("columns", [100, 60])
def test_text_answers_first_and_fits(
    rows: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = dse("validate", "--data", rows)
    assert said.code == 0, said.err
    assert said.out.startswith("How far off: time ")
    assert fits(said.out, columns)
    for word in ("Worst groups", "Not covered", "no model '<b>nothing</b>'", "80% interval"):
        assert word in said.out
    assert "nan" not in said.out.lower()


def test_page_and_tables(rows: Path, tmp_path: Path) -> None:
    said = ask("validate", "--data", rows, "--out", tmp_path)
    assert said["covered"]
    html = (tmp_path / "validate.html").read_text(encoding="utf-8")
    assert len(html.encode()) < 6e6
    own = html.replace(re.findall(r"<script>.*?</script>", html, re.DOTALL)[0], "")
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", own)
    assert "<b>nothing</b>" not in own
    assert "NaN" not in own
    answer = own.split('<section id="answer">')[1]
    assert answer.index("How far off") < answer.index("<table")
    page = (tmp_path / "validate.md").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "## Not covered" in page


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEAD.replace("value", "number") + ROW, ("rows.csv", "no column 'value'", "accepted")),
        (HEAD.replace("serving", "kind") + ROW, ("rows.csv", "no column 'serving'")),
        (HEAD + ROW.replace(",\n", ",warm-up\n"), ("rows.csv", "no row to score", "exclude")),
        (HEAD, ("no row to score",)),
        ("task,model,metric,value\npretrain,llama-3-8b,mfu,0.4\n", ("no column 'chip'",)),
        ("", ("rows.csv", "cannot be read as CSV")),
        ("\0\1\2", ("rows.csv",)),
    ],
)
def test_bad_files(tmp_path: Path, content: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content, encoding="utf-8")
    said = dse("validate", "--data", path)
    assert said.code == 2
    assert all(word in said.err for word in words), said.err


@pytest.mark.usefixtures("few_shipped")
def test_held_out_scores_stand_beside_the_fits_own(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the user's own enter no fit; with folds that predict as the shipped model does, or
    that have none for a row, held-out scores are the model's own."""

    made: list[pd.DataFrame] = []

    def folds(problem: Problem, progress: Callable[[str], None]) -> dict[str, pd.DataFrame]:
        progress("said every two seconds at most")
        assert (problem.table["exclude"] != "").sum() == document["covered"]
        if not made:
            made.append(measurements.estimate_table(problem.table))
        same = made[0]
        unseen = same.assign(predicted=np.nan, predicted_low=np.nan, predicted_high=np.nan)
        names = ["predicted", "predicted_low", "predicted_high"]
        worse = same.assign(**{name: 100.0 * same[name] for name in names})
        return {"group": same, "chip": worse, "model": unseen, "source": same}

    document = ask("validate", "--data", rows)
    monkeypatch.setattr(Problem, "cross_validate", folds)
    held = ask("validate", "--data", rows, "--cross-validate")["cross_validation"]
    assert held["group"] == held["model"] == document["scores"]
    assert all(
        worse["group_median_error"] > item["group_median_error"]
        for worse, item in zip(held["chip"], document["scores"], strict=True)
    )
    said = dse("validate", "--data", rows, "--cross-validate")
    assert "Held out" in said.out
    assert fits(said.out, 100)


@pytest.mark.usefixtures("few_shipped")
def test_the_page_of_accuracy_shows_every_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """With folds that predict as the shipped model does, and one case of the backtest."""
    scores = library.validate().document["scores"]
    rows = pd.concat(map(measurements.predict, measurements.shipped()), ignore_index=True)
    held = dict.fromkeys(FOLDS, measurements.covered(rows))
    monkeypatch.setattr(measurements, "cross_validated", lambda *_, **__: held)
    case = {"chip": "b200_sxm", "laws": "h200_sxm", "speed_up": None, "scores": scores[:1]}
    monkeypatch.setattr(backtest, "backtest", lambda *_, **__: [case])
    answer = library.validate(cross_validate=True)
    page = accuracy_page(answer, "").replace("\\", "")
    for table in answer.tables:
        for cells in table.texts():
            assert cells[0] in page, table.name


def test_nothing_covered_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + ROW.replace("h100_sxm", "abacus"), encoding="utf-8")
    out = tmp_path / "out"
    said = dse("validate", "--data", path, "--out", out)
    assert said.code == 0, said.err
    assert "0 of 1 measured rows predicted" in said.out
    assert "no chip 'abacus'" in said.out
    document = ask("validate", "--data", path)
    assert document["scores"] == []


def test_rows_that_cannot_run_say_so(tmp_path: Path) -> None:
    """Shapes that no machine has are refused; what breaks a rule is predicted, and infeasible."""
    wrong = {
        "2.5": "tp is not a whole number", "1e9": "tp is above 100,000", "-1": "tp is not a pos",
    }  # fmt: skip
    head = "model,chip,tp,prompt_tokens,output_tokens,concurrency,serving,metric"
    rows = [f"llama-3-70b,h100_sxm,{tp},1000,100,8,continuous,tpot_s" for tp in (*wrong, 1, 7, 8)]
    rows.append("llama-3-70b,h100_sxm,8,1e300,100,8,continuous,tpot_s")
    path, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    path.write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    counted = ask("estimate", "--points", path, "--out", out)
    assert counted == {"rows": 7, "ok": 1, "infeasible": 2}
    with out.open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    for row, said in zip(found, wrong.values(), strict=False):
        assert row["status"].startswith(said)
        assert row["predicted"] == ""
    assert found[3]["status"] == "infeasible: memory_capacity"
    assert "heads_divide_by_tensor_parallel" in found[4]["status"]
    assert all(float(row["predicted"]) > 0.0 for row in found[3:6])
    assert found[5]["status"] == "ok"
    assert found[6]["status"] == "prompt_tokens is above 100,000,000"


@pytest.mark.parametrize("serving", ["continuous", "offline", "static"])
@pytest.mark.parametrize("tp", [1, 4, 8])
def test_a_row_is_feasible_where_estimate_says_so(tmp_path: Path, serving: str, tp: int) -> None:
    """671 GB of weights, and the same point asked in both ways."""
    path, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    head = "model,chip,tp,engine,serving,prompt_tokens,output_tokens,concurrency,metric,value\n"
    row = f"deepseek-v3,b200_sxm,{tp},vllm,{serving},1000,100,1,output_tokens_per_s,100\n"
    path.write_text(head + row, encoding="utf-8")
    dse("estimate", "--points", path, "--out", out)
    point = ("--model", "deepseek-v3", "--chip", "b200_sxm", "--tp", str(tp), "--serving", serving)
    load = ("--prompt-tokens", "1000", "--output-tokens", "100", "--concurrency", "1")
    asked = ask("estimate", *point, *load, "--backend", "vllm")
    with out.open(encoding="utf-8") as file:
        (found,) = csv.DictReader(file)
    names = ", ".join(row["constraint"] for row in asked["violations"])
    assert found["status"] == (f"infeasible: {names}" if names else "ok")
    assert asked["feasible"] == (found["status"] == "ok") == (tp > 1)
    document = ask("validate", "--data", path)
    assert document["infeasible"] == (not asked["feasible"])
    assert document["rows"] == document["covered"] + document["infeasible"]


def test_an_open_loop_has_no_burst(tmp_path: Path) -> None:
    """The same load as a closed loop of ten rounds, as Poisson arrivals by their rate, by a note of
    it, and by the requests in flight alone."""
    head = (
        "model,chip,tp,engine,serving,prompt_tokens,output_tokens,concurrency,requests_per_s,"
        "notes,metric,value\n"
    )
    point = "llama-3-8b,h100_sxm,1,vllm"
    rows = [
        f"{point},continuous,1024,256,64,,,ttft_s,0.05",
        f"{point},continuous,1024,256,64,24.0,,ttft_s,0.05",
        f"{point},continuous,1024,256,64,,Poisson arrivals at 24.0/s,ttft_s,0.05",
        f"{point},poisson,1024,256,64,,,ttft_s,0.05",
        f"{point},poisson,1024,256,,14.0,,ttft_s,0.05",
        f"{point},poisson,1024,256,,,,ttft_s,0.05",
    ]
    path, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    path.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")
    dse("estimate", "--points", path, "--out", out)
    with out.open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    closed, *opened = (float(row["predicted"]) for row in found[:5])
    assert opened[0] == opened[1] == opened[2] < closed / 1.5
    assert opened[3] < closed / 1.5
    assert found[5]["status"] == "requests_per_s is empty"
    document = ask("validate", "--data", path)
    overall = {s["serving"]: s["rows"] for s in document["scores"] if s["by"] == "all"}
    assert overall == {"continuous": 1, "poisson": 4}


def test_groups_too_small_to_count_are_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + ROW, encoding="utf-8")
    said = dse("validate", "--data", path)
    assert "has 5 rows: theirs is over all groups." in " ".join(said.out.split())
    path.write_text(HEAD + ROW * 5, encoding="utf-8")
    assert "No group of" not in dse("validate", "--data", path).out


def test_missing_file_and_folder_that_is_a_file(tmp_path: Path) -> None:
    assert dse("validate", "--data", tmp_path / "none.csv").code == 2
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + ROW, encoding="utf-8")
    taken = tmp_path / "taken"
    taken.touch()
    assert dse("validate", "--data", path, "--out", taken).code == 4
    assert dse("validate", "--data", path, "--out", path).code == 2


def test_the_accuracy_page_is_todays() -> None:
    """Its first table, within half a percentage point of what is predicted now."""
    page = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")
    command = "python -m tools.accuracy_page docs/accuracy.md"
    assert f"Written by `{command}`." in page
    table = page.split("## By metric")[1].split("##")[0].replace("\\", "")
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    told = {(cells[0], cells[1]): cells[2:] for cells in lines[2:]}
    scores = next(one for one in library.validate().tables if one.name == "scores")
    today = {(cells[0], cells[1]): cells[2:] for cells in replace(scores, shown=()).texts()}
    assert told.keys() == today.keys()
    for key, cells in today.items():
        numbers = [float(cell.strip("%+").replace(",", "")) for cell in cells if cell != "–"]
        before = [float(cell.strip("%+").replace(",", "")) for cell in told[key] if cell != "–"]
        assert before == pytest.approx(numbers, abs=0.5, rel=0.01), f"{key}: run {command}"


@pytest.mark.parametrize(
    ("metric", "serving"),
    [("tpot_s", "continuous"), ("ttft_s", "continuous"), ("output_tokens_per_s", "offline")],
)
def test_asked_as_a_person_would_is_little_worse_than_told(metric: str, serving: str) -> None:
    document = library.validate().document["asked"]
    asked, told = (
        next(
            one["median_error"]
            for one in document[name]
            if (one["metric"], one["serving"], one["by"]) == (metric, serving, "all")
        )
        for name in ("scores", "told")
    )
    assert told < asked <= 1.3 * told
