"""`--law`, `quality_law:` and the fronts under every law, as a person uses them."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from dse.quality import LAWS
from tests.cli.conftest import ask, dse
from tests.helpers_report import Page

POINT = ("--model", "deepseek-v3", "--chip", "h200_sxm", "--tp", 8)
TINY = Path(__file__).parents[2] / "search_spaces" / "tiny.yaml"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dse run tiny --law all`; nobody writes into it."""
    folder = tmp_path_factory.mktemp("laws") / "study"
    said = dse("run", "tiny", "--out", folder, "--law", "all")
    assert said.code == 0, said.err
    assert "under each of 6 laws" in said.out
    assert "The robust choice is point" in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    return folder


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dse run tiny --law joint`; nobody writes into it."""
    folder = tmp_path_factory.mktemp("joint")
    assert dse("run", "tiny", "--law", "joint", "--out", folder).code == 0
    return folder


def both(folder: Path) -> tuple[Json, list[Json]]:
    study = json.loads((folder / "study.json").read_text())
    return study, json.loads((folder / "front.json").read_text())["items"]


# -- one law ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "loss", "outside"),
    [
        ("leverage", 1.901, "training_tokens"),
        ("tian", 1.893, "training_tokens"),
        ("hoffmann", 1.821, "training_tokens"),
        ("cautious", 1.910, "training_tokens"),
        ("joint", 1.814, "granularity"),
        ("abnar", 1.659, "training_flops"),
    ],
)
def test_estimate_names_its_law_and_where_it_extrapolates(law: str, loss: float, outside: str):
    answer = ask("estimate", *POINT, "--set", f"law={law}")
    assert answer["quality_law"] == law
    assert answer["predicted_loss"] == pytest.approx(loss, abs=2e-3)
    assert outside in answer["extrapolates"]
    assert set(answer["extrapolates"]) <= set(answer["quality_law_fit"]) == set(LAWS[law].fit)
    low, high = answer["intervals"]["predicted_loss"]
    assert low < answer["predicted_loss"] < high
    said = dse("estimate", *POINT, "--set", f"law={law}").out
    assert f"Loss by the quality law {law}" in said
    assert outside.replace("_", " ") in said
    assert "times the compute-optimal" in said


def test_the_penalty_of_quantised_weights_is_said_with_its_range():
    """The factor rests on checkpoints of 7 billion parameters and more: half a billion lie
    beyond."""
    point = ("estimate", "--model", "qwen2.5-0.5b", "--chip", "h100_sxm")
    plain = ask(*point)
    four = ask(*point, "--weight-dtype", "int4")
    added = four["predicted_loss"] - plain["predicted_loss"]
    assert added == pytest.approx(four["quantisation_loss"], rel=1e-9)
    assert added > 0.02
    assert plain["quantisation_loss"] == 0.0
    assert set(four["extrapolates"]) - set(plain["extrapolates"]) == {"quantised_parameters"}
    assert four["quality_law_fit"]["quantised_parameters"] == [7e9, 4.5e11]
    assert "quantised_parameters" not in plain["quality_law_fit"]
    # The equivalent dense model is that of the loss before the penalty.
    assert four["dense_equivalent_parameters"] == plain["dense_equivalent_parameters"]
    said = " ".join(dse(*point, "--weight-dtype", "int4").out.split())
    assert f"{added:.4f} nats from quantising the weights after training" in said
    assert "fitted on 7B to 450B" in said
    assert "quantising" not in dse(*point).out


def test_a_loss_inside_the_law_and_outside_the_penalty_is_extrapolated():
    """The dense equivalent, which the penalty does not touch, is not."""
    point = (
        "estimate",
        "--model",
        "qwen2.5-0.5b",
        "--chip",
        "h100_sxm",
        "--set",
        "training_tokens=100B",
    )
    plain = ask(*point)["provenance"]
    four = ask(*point, "--weight-dtype", "int4")["provenance"]
    assert plain["predicted_loss"] == plain["dense_equivalent_parameters"] == "fitted"
    assert four["predicted_loss"] == "extrapolated"
    assert four["dense_equivalent_parameters"] == "fitted"


def test_the_law_moves_nothing_but_the_quality():
    plain = ask("estimate", *POINT)
    other = ask("estimate", *POINT, "--set", "law=abnar")
    assert plain["quality_law"] == "leverage"
    moved = {key for key, value in plain.items() if other[key] != value}
    assert moved == {
        "predicted_loss", "dense_equivalent_parameters", "quality_law", "quality_law_fit",
        "extrapolates", "intervals", "compute_optimal_tokens", "overtraining_ratio",
        "loss_given_up", "at_bounds",
    }  # fmt: skip


def test_overtraining_of_a_model_that_is_trained_long():
    """At Llama-3-8B's compute the default law's optimum has 18 to 22 tokens a parameter."""
    answer = ask("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm")
    best, ratio = answer["compute_optimal_tokens"], answer["overtraining_ratio"]
    assert ratio == pytest.approx(15e12 / best)
    assert 18 < best / (6.98e9 * ratio) < 22
    assert 0 < answer["loss_given_up"] < 0.1
    shown = ask("catalog", "models", "show", "llama-3-8b")
    assert shown["compute_optimal_tokens"] == best
    assert "11 times the compute-optimal" in dse("catalog", "models", "show", "llama-3-8b").out


def test_a_model_of_unknown_tokens_says_nothing_of_them():
    point = ("--model", "mixtral-8x7b", "--chip", "h200_sxm", "--tp", 2)
    answer = ask("estimate", *point)
    assert answer["predicted_loss"] is None
    assert answer["overtraining_ratio"] is answer["quantisation_loss"] is None
    assert "Loss by" not in dse("estimate", *point).out
    assert ask("catalog", "models", "show", "mixtral-8x7b")["loss_given_up"] is None


def test_an_unknown_law_is_refused_with_the_nearest(tmp_path: Path):
    estimate = ("estimate", *POINT, "--set", "law=hofmann")
    for command in (estimate, ("run", "tiny", "--out", tmp_path / "study", "--law", "hofmann")):
        said = dse(*command)
        assert said.code == 2
        assert "--law: unknown quality law 'hofmann', did you mean 'hoffmann'?" in said.err
        assert ", ".join(LAWS) in said.err
    assert not (tmp_path / "study").exists()


def test_two_laws_and_another_law_of_a_report_are_refused(tmp_path: Path, compared: Path):
    said = dse("run", "tiny", "--out", tmp_path / "s", "--law", "joint", "--law", "abnar")
    assert said.code == 2
    assert "read joint, abnar (accepted: one law, and all beside it)" in said.err
    said = dse("run", compared, "--law", "joint")
    assert said.code == 2
    assert "dse run SPACE --law joint" in said.err


# -- a space of another law -------------------------------------------------------------------


def test_the_law_of_a_space_is_part_of_the_study(tmp_path: Path, joint: Path):
    space = tmp_path / "space.yaml"
    text = TINY.read_text(encoding="utf-8").replace(
        "price_basis:", "quality_law: joint\nprice_basis:"
    )
    space.write_text(text, encoding="utf-8")
    folder = tmp_path / "study"
    study = ask("run", space, "--out", folder)
    assert study["quality_law"] == "joint"
    assert study["law"]["name"] == LAWS["joint"].title
    assert set(study["law"]["fit"]) == set(LAWS["joint"].fit)
    asked = both(joint)[0]
    assert asked["fingerprint"] == study["fingerprint"]
    assert asked["command"].endswith("--law joint")
    front = (folder / "front.csv").read_bytes()
    assert (joint / "front.csv").read_bytes() == front
    again = ask("estimate", folder, "best")
    best = next(item for item in both(folder)[1] if "best" in item["names"])
    assert again["quality_law"] == "joint"
    assert again["predicted_loss"] == best["metrics"]["predicted_loss"]
    other = ask("estimate", folder, "best", "--set", "law=leverage")
    assert other["predicted_loss"] != again["predicted_loss"]
    said = dse("run", "tiny", "--out", folder)
    assert said.code == 4
    assert "quality law" in said.err


def test_a_wrong_law_in_a_space_is_named_with_its_line(tmp_path: Path):
    space = tmp_path / "space.yaml"
    text = TINY.read_text(encoding="utf-8").replace(
        "price_basis:", "quality_law: jiont\nprice_basis:"
    )
    space.write_text(text, encoding="utf-8")
    said = dse("catalog", "spaces", "check", space)
    assert said.code == 2
    line = text.splitlines().index("quality_law: jiont") + 1
    assert f"space.yaml:{line}: quality_law: unknown quality law 'jiont'" in said.err
    assert "did you mean 'joint'?" in said.err


# -- every law --------------------------------------------------------------------------------


def test_every_point_says_on_whose_front_it_is(compared: Path):
    study, items = both(compared)
    laws = study["laws"]
    assert [row["law"] for row in laws["compared"]] == list(LAWS)
    fronts = dict.fromkeys(LAWS, 0)
    for item in items:
        on = item["laws"]["on_fronts"]
        assert "leverage" in on
        for name in LAWS:
            fronts[name] += name in on
    for row in laws["compared"]:
        assert row["shared"] == fronts[row["law"]] <= row["front_size"]
    everywhere = sum(len(item["laws"]["on_fronts"]) == len(LAWS) for item in items)
    assert laws["on_every_front"] == everywhere
    assert 0 < everywhere < len(items)


def test_the_front_of_a_law_is_what_a_study_of_it_finds(compared: Path, joint: Path):
    row = next(r for r in both(compared)[0]["laws"]["compared"] if r["law"] == "joint")
    study, items = both(joint)
    assert row["front_size"] == study["exact_front_size"]
    knee = next(item for item in items if "knee" in item["names"])
    for metric in ("predicted_loss", "dense_equivalent_parameters", "tpot_s"):
        assert knee["metrics"][metric] == row[metric]


def test_the_robust_choice_has_the_least_regret_under_its_worst_law(compared: Path):
    study, items = both(compared)
    worst = [max(item["laws"]["regret"].values()) for item in items]
    assert worst == [item["worst_regret"] for item in items]
    robust = study["laws"]["robust"]
    assert worst[robust - 1] == min(worst) > 0
    assert "robust" in items[robust - 1]["names"]
    row = next(row for row in study["laws"]["chosen"] if row["name"] == "robust")
    assert row["regret"][row["worst_law"]] == row["worst_regret"] == min(worst)
    assert ask("estimate", compared, "robust")["feasible"]
    assert {row["name"] for row in study["laws"]["chosen"]} == {*study["chosen"], "robust"}


def test_front_csv_has_the_laws_and_the_regret(compared: Path):
    items = both(compared)[1]
    rows = list(csv.DictReader((compared / "front.csv").read_text().splitlines()))
    assert [row["laws"].split() for row in rows] == [i["laws"]["on_fronts"] for i in items]
    for row, item in zip(rows, items, strict=True):
        assert float(row["worst_regret"]) == pytest.approx(item["worst_regret"], rel=1e-8)


def test_the_report_answers_whether_the_law_matters(compared: Path):
    page = Page(compared / "report.html")
    assert "Does the answer depend on the law?" in page.text
    assert "table-regret" in {attrs.get("id") for _, attrs in page.tags}
    text = (compared / "report.md").read_text(encoding="utf-8")
    assert "## Does the answer depend on the law?" in text
    for name in LAWS:
        assert f"| {name} |" in text


def test_a_finished_study_is_held_against_every_law(tiny: Path, tmp_path: Path, compared: Path):
    folder = tmp_path / "study"
    shutil.copytree(tiny, folder)
    before, items = both(folder)
    refused = dse("run", folder, "--law", "all")
    assert refused.code == 2
    every = shlex.split(refused.err.split("(accepted: dse ")[1].split(" --law all")[0])
    said = dse(*every, "--law", "all")
    assert said.code == 0, said.err
    after, now = both(folder)
    assert after["trials"] == before["trials"]
    assert after["command"].endswith("--law all")
    for old, new in zip(items, now, strict=True):
        assert old["metrics"] == new["metrics"]
    # The same seed draws the same errors.
    said = dse(*every, "--law", "all")
    assert both(folder)[0]["laws"] == after["laws"]
    assert after["laws"]["compared"] == both(compared)[0]["laws"]["compared"]


def test_a_study_that_reads_no_loss_says_so(tmp_path: Path):
    folder = tmp_path / "study"
    said = dse("run", "rack-domain", "--law", "all", "--no-prove", "--out", folder)
    assert said.code == 0, said.err
    assert "No: no objective and no limit of this study reads a predicted loss." in said.out
    assert both(folder)[0]["laws"]["depends"] is False
    assert "Does the answer depend on the law?" in (folder / "report.md").read_text()


def test_a_law_under_which_nothing_is_feasible(tmp_path: Path):
    """A limit on the loss that only the law with the lowest floor meets: of the others no design is
    on a front, and no choice is robust."""
    space = tmp_path / "space.yaml"
    text = TINY.read_text(encoding="utf-8").replace(
        "price_basis:", "quality_law: abnar\nprice_basis:"
    )
    space.write_text(f"{text}  - predicted_loss <= 1.8\n", encoding="utf-8")
    said = dse("run", space, "--law", "all", "--out", tmp_path / "study")
    assert said.code == 0, said.err
    laws = both(tmp_path / "study")[0]["laws"]
    assert laws["robust"] is None
    assert [row["law"] for row in laws["compared"] if row["front_size"]] == ["abnar"]
    assert "no design meets the limits" in said.out


def test_a_function_of_the_user_has_no_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine.py").write_text("def cost(point):\n    return {}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    said = dse("run", "tiny", "--out", tmp_path / "s", "--evaluator", "mine:cost", "--law", "all")
    assert said.code == 2
    assert "--law: --evaluator predicts by itself" in said.err
