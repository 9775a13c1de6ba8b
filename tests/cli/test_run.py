"""`dse run`: what it writes, prints and repeats."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dse as library
from dse.schema.study import resolve_space
from dse.study.folder import FRONT, STUDY, read_json
from tests.cli.conftest import ask, dse, fits

FILES = ("front.csv", "front.json", "journal.log", "report.html", "report.md", "study.json")
KEYS = (
    *("space", "size", "seed", "engine", "price_basis", "versions", "data_digest", "trials"),
    *("evaluations", "seconds", "hypervolume", "reference_point", "exact_front_size"),
    *("resolution", "decisions", "front_size", "constraint_tallies"),
)


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """`dse run` in another process."""
    return subprocess.Popen(
        [sys.executable, "-m", "dse", "run", *arguments, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_trials(folder: Path, running: subprocess.Popen[str]) -> None:
    """Until some trials are stored."""
    journal = folder / "journal.log"
    while running.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        time.sleep(0.01)


def test_json_is_study_json(space: Callable[..., Path], tmp_path: Path):
    document = ask("run", space(), "--out", tmp_path / "out")
    assert document == json.loads((tmp_path / "out" / STUDY).read_text(encoding="utf-8"))
    assert set(KEYS) <= set(document)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    parts = {"evaluate", "sample", "store", "proof", "report", "total"}
    assert set(document["seconds"]) == parts
    assert document["size"] == document["evaluations"] == 18
    assert document["true_hypervolume_share"] == 1.0
    assert document["versions"]["dse"] == dse("--version").out.split()[1]


# What differs from every design to the next: its name and layers, and how long it was trained.
DESIGN = ("name", "blocks", "training_tokens")
MTOKEN = "usd_per_million_total_tokens"


def test_the_exact_front_and_the_front_at_its_resolution(tiny: Path, tmp_path: Path):
    """With a resolution of 0 front.csv holds every design that nothing beats; by default those of
    them that no other can stand for."""
    usual = read_json(tiny, STUDY)
    text = resolve_space("tiny").read_text(encoding="utf-8")
    (tmp_path / "exact.yaml").write_text(f"{text}\nresolution: 0\n", encoding="utf-8")
    exact = ask("run", tmp_path / "exact.yaml", "--out", tmp_path / "exact")
    assert exact["front_size"] == exact["exact_front_size"] == usual["exact_front_size"]
    assert set(exact["resolution"].values()) == {"0"}
    assert exact["hypervolume"] == usual["hypervolume"]
    assert exact["fingerprint"] == usual["fingerprint"]
    assert usual["front_size"] < usual["exact_front_size"]
    every = [one["metrics"] for one in read_json(tmp_path / "exact", FRONT)["items"]]
    kept = [one["metrics"] for one in read_json(tiny, FRONT)["items"]]
    assert len(every) == exact["front_size"]
    for metrics in every:
        assert any(
            one["predicted_loss"] <= metrics["predicted_loss"] + 0.001 + 1e-9
            and one["tpot_s"] <= metrics["tpot_s"] * 1.005 * (1 + 1e-9)
            and one[MTOKEN] <= metrics[MTOKEN] * 1.005 * (1 + 1e-9)
            for one in kept
        )


def test_decisions_of_a_study(tiny: Path):
    """The start is of the first decision; every design of the front is of one."""
    study, items = read_json(tiny, STUDY), read_json(tiny, FRONT)["items"]
    found = study["decisions"]
    start = study["chosen"]["start"]["point"]
    assert found["start"]["point"] == found["families"][0]["point"] == start
    assert "start" in items[start - 1]["names"]
    assert 3 <= len(found["families"]) <= 7
    for one in found["families"]:
        assert sum(item["decision"] == one["decision"] for item in items) == one["designs"]
        assert items[one["point"] - 1]["decision"] == one["decision"]
    assert sum(one["probability"] for one in found["families"]) == pytest.approx(1.0)
    again = ask("estimate", tiny, "start")
    assert again["tpot_s"] == pytest.approx(items[start - 1]["metrics"]["tpot_s"])
    with (tiny / "front.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["decision"]) for row in rows] == [item["decision"] for item in items]


def test_a_wish_moves_the_start_and_nothing_else(tiny: Path, tmp_path: Path):
    text = resolve_space("tiny").read_text(encoding="utf-8")
    wished = tmp_path / "wished.yaml"
    wished.write_text(f"{text}\nwish: cheapest at predicted_loss <= 2.05\n", encoding="utf-8")
    study = ask("run", wished, "--out", tmp_path / "wished")
    usual = read_json(tiny, STUDY)
    items = read_json(tmp_path / "wished", FRONT)["items"]
    start = items[study["chosen"]["start"]["point"] - 1]["metrics"]
    knee = items[study["chosen"]["knee"]["point"] - 1]["metrics"]
    assert start["predicted_loss"] <= 2.05
    assert start[MTOKEN] <= knee[MTOKEN] or knee["predicted_loss"] > 2.05
    assert study["front_size"] == usual["front_size"]
    assert study["fingerprint"] == usual["fingerprint"]
    assert {turn["objective"] for turn in study["decisions"]["turns"]} <= {"predicted_loss"}
    said = (tmp_path / "wished" / "report.md").read_text(encoding="utf-8")
    said = said.replace("\\", "").replace("&lt;", "<")
    assert "for the wish “cheapest at predicted_loss <= 2.05”" in said


def test_front_json_has_what_a_point_needs(tiny: Path):
    items = read_json(tiny, FRONT)["items"]
    assert [item["point"] for item in items] == list(range(1, len(items) + 1))
    assert {"knee", "best", "cheapest", "fastest"} <= {n for item in items for n in item["names"]}
    for item in items:
        assert {"model", "deployment", "metrics", "command"} <= set(item)
        assert item["command"] == f"dse estimate {tiny} {item['point']}"


def test_front_csv_has_a_row_a_point_and_no_trace_of_the_folder(tiny: Path):
    text = (tiny / "front.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == read_json(tiny, STUDY)["front_size"]
    assert str(tiny) not in text
    assert "nan" not in text.lower()
    assert "seconds" not in rows[0]


def test_the_folder_is_named_after_the_space_file(
    space: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert dse("run", space(name="with space.yaml")).code == 0
    assert (tmp_path / "studies" / "with space" / "report.html").exists()
    command = read_json(tmp_path / "studies" / "with space", FRONT)["items"][0]["command"]
    assert command == "dse estimate 'studies/with space' 1"


@pytest.mark.parametrize("name", ["...yaml", "..yaml"])
def test_the_folder_stays_inside(
    space: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.chdir(tmp_path)
    assert dse("run", space(name=name)).code == 0
    assert (tmp_path / "studies" / "study" / "study.json").exists()
    assert not (tmp_path / "study.json").exists()


@pytest.mark.parametrize("name", ["../../evil", "<script>alert(1)</script>"])
def test_a_hostile_name_goes_nowhere(space: Callable[..., Path], tmp_path: Path, name: str):
    path = space("name: small\ntitle: A dense model", f"name: '{name}'\ntitle: '{name}'\nx: A")
    path.write_text(path.read_text(encoding="utf-8").replace("\nx: A on one server", ""))
    out = tmp_path / "deep" / "out"
    said = dse("run", path, "--out", out)
    assert said.code == 0, said.err
    assert {path.name for path in tmp_path.iterdir()} == {"small.yaml", "deep"}
    for report in ("report.html", "report.md"):
        assert "<script>alert" not in (out / report).read_text(encoding="utf-8")


def test_five_objectives_are_weighed_and_six_are_refused(tmp_path: Path):
    text = resolve_space("tiny").read_text().replace("name: tiny", "name: five")
    last, more = "  tpot_s: minimize\n", "  ttft_s: minimize\n  joules_per_output_token: minimize\n"
    path = tmp_path / "five.yaml"
    path.write_text(text.replace(last, last + more))
    said = dse("run", path, "--engine", "pareto-local", "--no-prove", "--out", tmp_path / "five")
    assert said.code == 0
    study = json.loads((tmp_path / "five" / STUDY).read_text())
    assert len(study["objectives"]) == 5
    assert study["front_size"] > 300
    assert len(study["decisions"]["families"]) >= 3
    path.write_text(text.replace(last, last + more + "  output_tokens_per_s: maximize\n"))
    refused = dse("run", path, "--out", tmp_path / "six")
    assert refused.code == 2
    assert "6 objectives" in refused.err
    assert "1 to 5 lines" in refused.err


def test_a_finished_study_is_reported_again_and_nothing_added(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
):
    """Within a narrow console."""
    monkeypatch.setenv("COLUMNS", "60")
    before = {name: (tiny / name).read_bytes() for name in ("front.csv", "journal.log")}
    trials = read_json(tiny, STUDY)["trials"]
    said = dse("run", "tiny", "--seed", 1, "--out", tiny)
    assert said.code == 0
    assert read_json(tiny, STUDY)["trials"] == trials
    assert {name: (tiny / name).read_bytes() for name in before} == before
    assert fits(said.out, 60)
    assert "knee" in said.out
    assert f"Report: {tiny / 'report.html'}" in " ".join(said.out.split())


def test_a_point_again_is_the_point(tiny: Path):
    """Every value of every axis, and every chosen design: the points that have them first."""
    seen: set[tuple[str, str]] = set()
    for item in read_json(tiny, FRONT)["items"]:
        axes = {**item["model"], **item["deployment"], **dict.fromkeys(item["names"])}
        new = {(axis, str(value)) for axis, value in axes.items() if axis not in DESIGN} - seen
        if not new:
            continue
        seen |= new
        again = library.estimate(tiny, item["point"]).document
        assert again["violations"] == []
        assert again["feasible"]
        stored = {key: value for key, value in item["metrics"].items() if key != "assumed"}
        assert {key: again[key] for key in stored} == stored
        assert again["deployment"] == item["deployment"]


def test_a_journal_cut_in_half_is_filled_up_again(tiny: Path, tmp_path: Path):
    folder = tmp_path / "cut"
    shutil.copytree(tiny, folder)
    journal = folder / "journal.log"
    os.truncate(journal, journal.stat().st_size // 2)
    (folder / "front.csv").unlink()
    again = ask("run", "tiny", "--seed", 1, "--out", folder)
    assert (folder / "front.csv").read_bytes() == (tiny / "front.csv").read_bytes()
    assert again["trials"] == read_json(tiny, STUDY)["trials"]


def test_a_killed_run_goes_on(tiny: Path, tmp_path: Path):
    """The same seed gives the same bytes, begun in another process and ended here."""
    folder = tmp_path / "killed"
    running = start("tiny", "--seed", "1", folder=folder)
    wait_for_trials(folder, running)
    while not (folder / "journal.log.lock").exists():  # as it writes, so that its lock is left
        assert running.poll() is None
        time.sleep(0.001)
    running.kill()
    running.communicate()
    assert not (folder / "study.json").exists(), "the run ended before it was killed"
    said = dse("run", "tiny", "--seed", 1, "--out", folder)
    assert said.code == 0, said.err
    assert (folder / "front.csv").read_bytes() == (tiny / "front.csv").read_bytes()


def test_an_interrupted_run_says_so(tmp_path: Path):
    folder = tmp_path / "stopped"
    running = start("tiny", "--seed", "1", folder=folder)
    wait_for_trials(folder, running)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert "dse: stopped" in err
    assert (folder / "journal.log").stat().st_size > 100_000


def test_nothing_feasible_counts_the_reasons_and_keeps_the_trials(
    space: Callable[..., Path], tmp_path: Path
):
    out = tmp_path / "out"
    said = dse("run", space("ttft_s <= 2 s", "ttft_s <= 1 us"), "--out", out)
    assert said.code == 3
    assert said.out == ""
    assert "none of 18 points is feasible" in said.err
    assert "18 (18)  ttft_s <= 1 us" in said.err
    assert "The nearest miss: Llama-3-8B" in said.err
    assert "h100_sxm (" in said.err
    assert (out / "journal.log").read_bytes().count(b'"op_code"') > 1
    assert not (out / "front.csv").exists()


@pytest.mark.parametrize(
    ("change", "argument", "named"),
    [
        (("", ""), ("--seed", "2"), "another seed"),
        (("", ""), ("--engine", "random"), "another engine"),
        (("[1, 16, 64]", "[1, 16, 32]"), (), "another space"),
        (("name: small", "name: large"), (), "another space"),
    ],
)
def test_another_study_is_refused_and_nothing_lost(
    space: Callable[..., Path],
    tmp_path: Path,
    change: tuple[str, str],
    argument: tuple[str, ...],
    named: str,
):
    out = tmp_path / "out"
    assert dse("run", space(), "--out", out).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    said = dse("run", space(*change), "--out", out, *argument)
    assert said.code == 4
    assert named in said.err
    assert "--fresh" in said.err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert dse("run", space(*change), "--out", out, *argument, "--fresh").code == 0


def test_an_unfinished_study_of_another_space_is_refused(
    space: Callable[..., Path], tmp_path: Path
):
    out = tmp_path / "out"
    assert dse("run", space("ttft_s <= 2 s", "ttft_s <= 1 us"), "--out", out).code == 3
    said = dse("run", space("name: small", "name: large"), "--out", out)
    assert said.code == 4
    assert "holds study 'small', not 'large'" in said.err


def test_a_study_of_another_version_is_refused(
    space: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert dse("run", space(), "--out", tmp_path / "out").code == 0
    monkeypatch.setattr("dse.study.run.__version__", "99.0.0")
    said = dse("run", space(), "--out", tmp_path / "out")
    assert said.code == 4
    assert "another model version" in said.err
    assert "99.0.0" in said.err


def test_damaged_documents_are_written_anew(space: Callable[..., Path], tmp_path: Path):
    out = tmp_path / "out"
    assert dse("run", space(), "--out", out).code == 0
    before = (out / "front.json").read_bytes()
    (out / "study.json").write_text("{", encoding="utf-8")
    (out / "front.json").write_text("[]", encoding="utf-8")
    assert dse("run", space(), "--out", out).code == 0
    assert (out / "front.json").read_bytes() == before


def test_a_database_holds_the_study_as_well(space: Callable[..., Path], tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    document = ask("run", space(), "--out", tmp_path / "out", "--storage", url)
    assert document["trials"] > 0
    assert not (tmp_path / "out" / "journal.log").exists()


def test_an_objective_without_a_value_is_no_front(space: Callable[..., Path], tmp_path: Path):
    path = space("usd_per_million_total_tokens: min", "predicted_loss: min")
    config = Path(__file__).parents[1] / "data" / "configs" / "llama-3-8b.json"
    path.write_text(path.read_text(encoding="utf-8").replace("llama-3-8b", str(config)))
    said = dse("run", path, "--out", tmp_path / "out")
    assert said.code == 3
    assert "18 (18)  every objective has a value" in said.err
    assert "predicted_loss has none" in said.err


def test_operators_count_their_flops_and_stay_under_the_roof(tiny: Path):
    study, items = read_json(tiny, STUDY), read_json(tiny, FRONT)["items"]
    for name, chosen in study["chosen"].items():
        item, detail = items[chosen["point"] - 1], ask("estimate", tiny, name, "--detail")
        split = item["deployment"]
        peaks = library.load_catalog().chip(split["chip"]).peak_flops_per_s.values()
        for phase in ("prefill", "decode"):
            for row in detail["breakdown"]:
                if row.get(f"{phase}_peak_flops_per_s"):
                    peak = row[f"{phase}_peak_flops_per_s"]
                    assert min(abs(peak / known - 1) for known in peaks) < 1e-9
                    seconds = row[f"{phase}_s"] * (1 + 1e-9)
                    assert row[f"{phase}_flops"] <= peak * seconds
        # A multiplication and an addition for each active parameter and token, and attention.
        tokens = min(study["workload"]["prompt_tokens"], 8192)
        flops = sum(row.get("prefill_flops", 0.0) for row in detail["breakdown"])
        # One prompt alone: its experts are spread over attention ranks that have no prompt.
        whole = 2 * item["metrics"]["active_parameters"] * tokens / split["tensor_parallel"]
        assert 0.7 * whole / split["data_parallel"] < flops < 4 * whole
