"""`--loss-runs` and `loss_runs:`, as a person uses them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from tests.cli.conftest import ask, dse

TINY = Path(__file__).parents[2] / "search_spaces" / "tiny.yaml"
# Ten runs drawn from the law leverage, moved by TRUTH, with noise of 0.006: nobody trained them.
SHIPPED = TINY.parent / "loss_runs.csv"
TRUTH = (0.12, 0.10, -0.15, 0.15)
LINES = SHIPPED.read_text().splitlines(keepends=True)
HEAD, DENSE, SPARSE = LINES[0], "".join(LINES[1:6]), "".join(LINES[6:])
POINT = ("--model", "deepseek-v3", "--chip", "h200_sxm", "--tp", 8)
Json = dict[str, Any]


@pytest.fixture(scope="module")
def runs() -> Path:
    return SHIPPED


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dense") / "runs.csv"
    path.write_text(HEAD + DENSE)
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, dense: Path) -> Path:
    """`dse run` of a space that names runs without experts; nobody writes into it."""
    folder = tmp_path_factory.mktemp("space")
    shutil.copy(dense, folder / "mine.csv")
    (folder / "space.yaml").write_text(TINY.read_text() + "\nloss_runs: mine.csv\n")
    said = dse("run", folder / "space.yaml", "--out", folder / "study")
    assert said.code == 0, said.err
    assert "Moved to 5 runs" in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    return folder / "study"


def both(folder: Path) -> tuple[Json, list[Json]]:
    written = json.loads((folder / "study.json").read_text())
    return written, json.loads((folder / "front.json").read_text())["items"]


# -- one point ---------------------------------------------------------------------------------


def test_estimate_says_what_the_runs_do_to_the_law(runs: Path):
    law = ask("estimate", *POINT)
    answer = ask("estimate", *POINT, "--set", f"loss_runs={runs}")
    found = answer["loss_runs"]
    assert [one["name"] for one in found["posterior"]] == [
        "floor",
        "parameters",
        "tokens",
        "leverage",
    ]
    for one, true in zip(found["posterior"], TRUTH, strict=True):
        assert abs(one["mean"] - true) < 3.0 * one["sd"]
        assert one["sd"] < one["prior_sd"]
    low, high = answer["intervals"]["predicted_loss"]
    assert low < answer["predicted_loss"] < high
    assert 0.09 < answer["predicted_loss"] - law["predicted_loss"] < 0.14
    same = ("predicted_loss", "dense_equivalent_parameters", "intervals", "loss_runs")
    assert {**law, **dict.fromkeys(same)} == {
        **answer,
        **dict.fromkeys(same),
        "compute_optimal_tokens": law["compute_optimal_tokens"],
        "overtraining_ratio": law["overtraining_ratio"],
        "loss_given_up": law["loss_given_up"],
    }


@pytest.mark.parametrize("law", ["hoffmann", "abnar", "joint"])
def test_every_law_is_moved(runs: Path, law: str):
    answer = ask("estimate", *POINT, "--set", f"law={law}", "--set", f"loss_runs={runs}")
    assert answer["quality_law"] == law
    assert answer["loss_runs"]["noise"] < 0.2
    assert answer["predicted_loss"] > 1.0


def test_a_bad_file_is_one_line(tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text(HEAD + DENSE.replace("3.452", "far"))
    run = ("run", "tiny", "--out", tmp_path / "study", "--loss-runs", path)
    for command in (("estimate", *POINT, "--set", f"loss_runs={path}"), run):
        said = dse(*command)
        assert said.code == 2
        assert f"{path}:3: loss: read 'far'" in " ".join(said.err.split())
        assert "Traceback" not in said.err
    said = dse("run", "tiny", "--out", tmp_path / "study", "--loss-runs", tmp_path / "none.csv")
    assert said.code == 2
    assert "no such file" in said.err


def test_a_space_names_the_line_of_its_file(tmp_path: Path):
    (tmp_path / "mine.csv").write_text(HEAD + DENSE.replace("3.452", "far"))
    space = tmp_path / "space.yaml"
    space.write_text(TINY.read_text() + "\nloss_runs: mine.csv\n")
    said = dse("run", space, "--out", tmp_path / "study")
    assert said.code == 2
    assert "loss_runs" in said.err
    assert "'far'" in said.err


# -- a study -----------------------------------------------------------------------------------


def test_a_point_again_is_the_point(study: Path):
    written, items = both(study)
    answer = ask("estimate", study, "best")
    item = next(item for item in items if "best" in item["names"])
    assert answer["predicted_loss"] == item["metrics"]["predicted_loss"]
    assert answer["intervals"] == item["metrics"]["intervals"]
    assert answer["loss_runs"]["digest"] == written["loss_runs"]["digest"]
    said = dse("estimate", study, "best", "--set", "loss_runs=x.csv")
    assert said.code == 2


def test_runs_are_part_of_the_study(tiny: Path, tmp_path: Path, dense: Path, runs: Path):
    """The digest holds what the file says; the report, `dse whatif` and another file know it."""
    folder = tmp_path / "study"
    shutil.copy(dense, tmp_path / "mine.csv")
    command = ("run", "tiny", "--out", folder, "--loss-runs", tmp_path / "mine.csv")
    assert dse(*command).code == 0
    plain, written = both(tiny)[0], both(folder)[0]
    assert written["fingerprint"] != plain["fingerprint"]
    assert "loss_runs" not in plain
    assert "--loss-runs" in written["command"]
    assert "Moved to 5 runs" in dse("run", folder).out
    assert dse("whatif", folder, "--set", "chip.h100_sxm.price=-20%").code == 0
    (tmp_path / "mine.csv").write_text(HEAD + DENSE + SPARSE)
    said = dse(*command)
    assert said.code == 4
    assert "loss runs" in " ".join(said.err.split())


def test_whatif_draws_whether_a_shape_keeps_its_loss(tmp_path: Path, dense: Path):
    """A shape misses a limit on loss as often as what the runs leave of the law says."""
    text = TINY.read_text()
    assert "constraints:\n" in text
    space = tmp_path / "space.yaml"
    space.write_text(
        text.replace("constraints:\n", "constraints:\n  - predicted_loss <= 2.2\n", 1)
        + f"\nloss_runs: {dense}\n"
    )
    folder = tmp_path / "study"
    assert dse("run", space, "--out", folder).code == 0
    items = both(folder)[1]
    near = max(items, key=lambda item: item["metrics"]["predicted_loss"])
    metrics, points = near["metrics"], f"{near['point']}"
    low, high = metrics["intervals"]["predicted_loss"]
    sd = (high - low) / 2.0 / 1.2815515594
    misses = NormalDist().cdf((metrics["predicted_loss"] - 2.2) / sd)
    document = ask("whatif", folder, "--uncertain", "--point", points)
    assert any("drawn from what 5 runs of yours leave" in one for one in document["rests_on"])
    assert misses > 0.05
    for choice in document["choices"]:
        # Latency limits may be missed besides.
        assert choice["chance_misses_limits"] >= misses - 0.02
    surest = min(choice["chance_misses_limits"] for choice in document["choices"])
    assert surest == pytest.approx(misses, abs=0.02)
    assert document["share_without_answer"] >= misses - 0.02
