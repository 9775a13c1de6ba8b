"""Reports from a study folder alone: the answer in words, one safe file, nothing lost."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from dse.answer.numbers import show, significant
from dse.cli import cli
from dse.problem.words import deployment_words, shape_words
from dse.questions.study.cards import cards, quantisation
from dse.questions.study.chosen import StudyFolder
from dse.questions.study.words import lead, limits, price_basis, summary
from tests.finished_reports import REPORTS, command_of
from tests.helpers_report import both, folder_of, sample

__all__ = ["sample"]

# -- the answer ------------------------------------------------------------------------------


def test_cards_say_what_to_build_and_what_it_costs(sample: StudyFolder) -> None:
    names = [chosen.label for chosen in sample.chosen]
    assert names == ["cheapest", "fastest", "best", "knee"]
    by_name = dict(zip(names, cards(sample), strict=True))
    metric = "usd_per_million_total_tokens"
    least = min(item["metrics"][metric] for item in sample.items)
    text = dict(by_name["cheapest"].rows)
    assert f"${significant(least)} total" in text["It costs"]
    assert "rental_3yr" in text["It costs"]
    chips = sample.chosen[0].item["deployment"]
    rate = next(
        row["usd_per_chip_hour"]
        for row in sample.study["price"]["rows"]
        if row["chip"] == chips["chip"]
    )
    assert f"${significant(rate * chips['chips'])} an hour" in text["It costs"]


def test_every_card_states_bound_interval_and_extrapolation(sample: StudyFolder) -> None:
    for card in cards(sample):
        text = dict(card.rows)
        assert re.search(r"(Memory bandwidth|Compute|Network|Fixed overhead) in", text["Bound by"])
        assert "80% interval" in text["Certainty"]
        assert "Extrapolated: predicted loss" in text["Certainty"]
        assert re.search(r"rests \d+% on \w+ efficiencies", text["Certainty"])
        assert "dense-equivalent" in text["It gives"]
        assert card.command.startswith("dse estimate ")
        assert ("Against the start" in text) == ("Knee" not in card.title)


def test_the_lead_starts_from_the_knee(sample: StudyFolder) -> None:
    first, second, third = lead(sample)
    knee = next(chosen for chosen in sample.chosen if "knee" in chosen.names)
    assert knee.item["deployment"]["chip"] in first
    assert show("predicted_loss", knee.metrics["predicted_loss"]) in first
    assert second.startswith("Bound by ")
    assert third.startswith(f"{len(sample.items)} designs make the front, out of")


def test_one_point_of_two_names_is_one_card() -> None:
    front, study = both()
    study["chosen"]["knee"] = study["chosen"]["cheapest"]
    names = [tuple(chosen.names) for chosen in folder_of(front, study).chosen]
    assert ("cheapest", "knee") in names
    assert len(names) == 3


def test_limits_know_their_direction(sample: StudyFolder) -> None:
    front, study = both()
    study["constraints"] = [
        {"text": f"{metric} {sign} {limit}", "metric": metric, "limit": limit, "sign": direction}
        for metric, sign, limit, direction in (
            ("output_tokens_per_s", ">=", 100.0, -1.0),
            ("tpot_s", "<=", 0.03, 1.0),
            ("ttft_s", "<=", 2.0, 1.0),
        )
    ]
    metrics = {"output_tokens_per_s": 400.0, "tpot_s": 0.015, "ttft_s": None}
    found = dict(limits(folder_of(front, study), {"metrics": metrics}))
    assert sorted(found.values()) == [0.25, 0.5]
    assert "at least" in min(found, key=lambda sentence: found[sentence])


def test_a_shape_is_told_from_the_keys_it_has() -> None:
    sparse = {
        "name": "searched-7",
        "hidden_size": 4096,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "num_shared_experts": 1,
        "vocab_size": 128256,
    }
    counts = {"total_parameters": 30.5e9, "active_parameters": 3.4e9}
    text = shape_words({"point": 7, "model": sparse, "metrics": counts})
    assert text.startswith("sparse model, 48 layers")
    assert "128 experts of width 768, 8 of them used per token beside 1 shared" in text
    assert "30.5B in all, 3.4B active" in text
    dense = {"name": "llama", "num_hidden_layers": 32, "hidden_size": 4096}
    text = shape_words({"point": 7, "model": dense, "metrics": {}})
    assert text == "llama: dense model, 32 layers of hidden size 4,096."


def test_a_deployment_names_degrees_above_one() -> None:
    d = {
        "chip": "h200_sxm",
        "chips": 16,
        "tensor_parallel": 4,
        "pipeline_parallel": 1,
        "data_parallel": 2,
        "expert_parallel": 8,
        "replicas": 2,
        "weight_dtype": "fp8",
        "kv_dtype": "bf16",
        "concurrency": 2048,
    }
    text = deployment_words(d)
    assert "16 x h200_sxm: TP 4, attention DP 2, EP 8, 2 replicas" in text
    assert "PP" not in text
    assert "fp8 weights, bf16 KV, 2,048 in flight" in text


def test_the_summary_has_a_row_for_each_point(sample: StudyFolder) -> None:
    rows = summary(sample).texts()
    assert len(rows) == len(sample.chosen)
    for row, chosen in zip(rows, sample.chosen, strict=True):
        assert row[0] == f"{chosen.label} ({chosen.item['point']})"
        assert show("tpot_s", chosen.metrics["tpot_s"]) in row
        assert chosen.item["deployment"]["chip"] in row[-1]


def test_more_tokens_than_any_model_had_are_told() -> None:
    front, study = both()
    for k, item in enumerate(front["items"]):
        item["metrics"]["training_tokens"] = 80e12 if k % 2 else 15e12
    assert len(lead(folder_of(front, study))) == 4
    assert "up to 80T" in lead(folder_of(front, study))[2]
    for item in front["items"]:
        item["metrics"]["training_tokens"] = 40e12
    assert len(lead(folder_of(front, study))) == 3
    item = {**front["items"][0], "metrics": {"training_tokens": 15e12}}
    assert shape_words(item).endswith("Trained on 15T tokens.")
    item["metrics"]["training_tokens"] = 80e12
    assert "more than any published model" in shape_words(item)


def test_what_quantising_costs_is_told_apart() -> None:
    assert quantisation({"predicted_loss": 2.0, "quantisation_loss": 0.0}) == 0.0
    assert quantisation({"predicted_loss": 2.0, "quantisation_loss": 0.0004}) == 0.0
    assert quantisation({"predicted_loss": 2.25, "quantisation_loss": 0.25}) == 0.25
    assert quantisation({"predicted_loss": None, "quantisation_loss": None}) == 0.0


@pytest.mark.parametrize("dtype", ["bf16", "int4"])
def test_the_interval_of_the_loss_holds_the_loss(dtype: str) -> None:
    flags = f"--model llama-3-8b --chip h100_sxm --weight-dtype {dtype} --concurrency 8 --json"
    workload = "--prompt-tokens 1024 --output-tokens 256"
    result = CliRunner().invoke(cli, ["estimate", *flags.split(), *workload.split()])
    answer = json.loads(result.stdout)
    low, high = answer["intervals"]["predicted_loss"]
    assert low < answer["predicted_loss"] < high


def test_owned_chips_state_their_terms() -> None:
    front, study = both()
    study["price"]["basis"] = "owned_tco"
    values = {"life": 4 * 31536000.0, "utilisation": 0.6, "electricity": 0.12}
    study["costs"] = {"inputs": {name: {"value": value} for name, value in values.items()}}
    text = price_basis(folder_of(front, study))
    assert "over 4 years of which they serve 60%, at $0.12 per kWh" in text


def test_finished_reports_are_made_by_their_first_line() -> None:
    assert command_of("tiny") == [
        "dse",
        "run",
        "tiny",
        "--out",
        "reports/tiny",
        "--seed",
        "0",
        "--engine",
        "auto",
    ]
    for folder in (path for path in REPORTS.iterdir() if path.is_dir()):
        words = command_of(folder.name)
        assert words[0] == "dse"
        assert words[1] != "run" or words[2] == folder.name
        assert words[words.index("--out") + 1] == f"reports/{folder.name}"
