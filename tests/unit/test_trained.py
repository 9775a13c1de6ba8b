"""`training:` and `lifetime:` of a space file: what is read, what is refused, what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dse.catalog import load_catalog
from dse.economics.tco import price_by_parts
from dse.problem.objective import PhysicsProblem, demanded, pose
from dse.problem.training import OF_TRAINING
from dse.questions.whatif.inputs import Subject, apply, changes_of, inputs_of
from dse.schema.study import Study, load_study
from tests.cli.conftest import dse
from tests.helpers_files import refusal, write

SPACE: dict[str, Any] = {
    "name": "life",
    "workload": {"prompt_tokens": 2048, "output_tokens": 512, "serving": "continuous"},
    "price_basis": "rental_3yr",
    "training_compute": "1e23 FLOP",
    "training": {"chip": "h100_sxm", "chips": 256},
    "lifetime": {"tokens": "10T"},
    "model": {
        "vocab_size": 128256,
        "sparse": [False, True],
        "hidden_size": [2048, 3072, 4096],
        "num_hidden_layers": {"ratio_of": "hidden_size", "values": ["1/128"], "multiple_of": 4},
        "head_dim": 128,
        "num_attention_heads": {"ratio_of": "hidden_size / head_dim", "values": [1]},
        "num_key_value_heads": 8,
        "intermediate_size": {
            "ratio_of": "hidden_size", "values": [3.5], "multiple_of": 256,
            "when": {"sparse": False},
        },
        "num_experts": [32, 64],
        "num_experts_per_tok": 4,
        "moe_intermediate_size": {"ratio_of": "hidden_size", "values": [0.5], "multiple_of": 256},
    },
    "deployment": {
        "chip": "h200_sxm", "chips": 8, "tensor_parallel": [1, 8],
        "weight_dtype": ["bf16", "fp8"], "kv_dtype": "fp8", "concurrency": [64, 1024],
    },
    "objectives": {"predicted_loss": "minimize", "lifetime_usd": "minimize"},
    "constraints": ["tpot_s <= 50 ms"],
}  # fmt: skip


def written(folder: Path, **changes: Any) -> Path:
    space = {key: value for key, value in (SPACE | changes).items() if value is not None}
    return write(folder, yaml.safe_dump(space, sort_keys=False), "life.yaml")


def study(folder: Path, **changes: Any) -> Study:
    return load_study(written(folder, **changes))


def problem(folder: Path, **changes: Any) -> PhysicsProblem:
    return pose(study(folder, **changes), load_catalog())


def test_without_the_sections_nothing_changes(tmp_path: Path):
    plain = problem(tmp_path, training=None, lifetime=None, objectives={"tpot_s": "minimize"})
    assert plain.trained is None
    metrics = plain.metrics(plain.space.unrank(np.arange(8)))
    assert not set(OF_TRAINING) & set(metrics.values)
    assert "training_fits" not in plain.constraints


def test_terms_decide_the_fingerprint(tmp_path: Path):
    prints = {
        study(tmp_path, **changes).fingerprint
        for changes in (
            {},
            {"training": {"chip": "h100_sxm", "chips": 512}},
            {"lifetime": {"tokens": "20T"}},
            {"lifetime": {"tokens": "10T", "input_share": "50 %"}},
        )
    }
    assert len(prints) == 4
    assert study(tmp_path, title="another").fingerprint in prints


def test_figures_hang_together(tmp_path: Path):
    posed = problem(tmp_path)
    metrics = posed.metrics(posed.space.unrank(np.arange(posed.space.size)))
    values = {name: metrics.values[name] for name in metrics.values}
    hours = values["training_chip_hours"]
    assert values["training_days"] * 24 * 256 == pytest.approx(hours)
    price = load_catalog().prices.select("rental_3yr")["h100_sxm"].usd_per_chip_hour
    assert values["training_usd"] == pytest.approx(hours * price)
    served = 10e12 * values["usd_per_million_total_tokens"] / 1e6
    assert values["lifetime_usd"] == pytest.approx(values["training_usd"] + served)
    assert values["lifetime_serving_share"] == pytest.approx(served / values["lifetime_usd"])
    assert values["lifetime_flops"] == pytest.approx(1e23 + 2 * 10e12 * values["active_parameters"])
    watts = values["training_kwh"] * 1e3 / hours
    assert ((watts > 100.0) & (watts < 800.0)).all()
    # One shape is trained one way, however it is served.
    shapes = np.unique(np.stack([values["total_parameters"], values["training_usd"]]), axis=1)
    assert shapes.shape[1] == 9


@pytest.mark.parametrize("basis", ["rental_3yr", "owned_tco"])
def test_training_may_be_owned_on_either_basis(tmp_path: Path, basis: str):
    terms = {"chip": "h100_sxm", "chips": 256, "price_basis": "owned_tco"}
    posed = problem(tmp_path, price_basis=basis, training=terms)
    metrics = posed.metrics(posed.space.unrank(np.arange(4)))
    catalog = load_catalog()
    owned = price_by_parts(catalog, "h100_sxm", "owned_tco")["usd_per_chip_hour"]
    hours = metrics.values["training_chip_hours"]
    assert metrics.values["training_usd"] == pytest.approx(hours * owned)
    if basis == "owned_tco":
        subject = Subject(demanded(posed, catalog, None), catalog)
        changes = changes_of({"costs.electricity": "2x"}, inputs_of(subject))
        dearer = apply(subject, changes).metrics(posed.space.unrank(np.arange(4)))
        costs = catalog.costs.changed({"electricity": 2 * catalog.costs.value("electricity")})
        usd = price_by_parts(catalog, "h100_sxm", "owned_tco", costs)["usd_per_chip_hour"]
        assert dearer.values["training_usd"] == pytest.approx(hours * usd)


def test_a_shape_that_cannot_be_trained_breaks_a_rule(tmp_path: Path):
    posed = problem(tmp_path, training={"chip": "h100_sxm", "chips": 1})
    metrics = posed.metrics(posed.space.unrank(np.arange(posed.space.size)))
    refused = metrics.violations["training_fits"] > 0.0
    assert refused.any()
    assert np.isnan(metrics.values["training_usd"][refused]).all()
    assert not metrics.feasible[refused].any()
    found = posed.judge(metrics)
    assert found.G.shape[1] == len(posed.constraints)
    assert (found.G[refused, posed.constraints.index("training_fits")] > 0.0).all()


def test_a_forecast_by_year_and_by_share(tmp_path: Path):
    yearly = {"tokens_per_year": "2T", "years": 3, "growth": "100 %", "input_share": "90 %"}
    posed = problem(tmp_path, lifetime=yearly)
    assert posed.trained is not None
    assert posed.trained.served_tokens == pytest.approx(14e12)
    values = posed.metrics(posed.space.unrank(np.arange(4))).values
    price = (
        0.9 * values["usd_per_million_input_tokens"] + 0.1 * values["usd_per_million_output_tokens"]
    )
    served = 14e12 * price / 1e6
    assert values["lifetime_usd"] - values["training_usd"] == pytest.approx(served)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study."""
    folder = tmp_path_factory.mktemp("life")
    said = dse("run", written(folder), "--out", folder / "study")
    assert said.code == 0, said.err
    return folder / "study"


def test_demand_moves_the_cheapest_design(tmp_path: Path, lived: Path):
    posed = problem(tmp_path)
    demand = json.loads((lived / "study.json").read_text())["lifetime"]["demand"]
    assert demand["from_whole_space"]
    # Every level against the whole space, design by design.
    metrics = posed.metrics(posed.space.unrank(np.arange(posed.space.size)))
    F = posed.judge(metrics)
    fits = (F.G <= 0.0).all(axis=1)
    values = {
        name: metrics.values[name][fits]
        for name in ("predicted_loss", "training_usd", "usd_per_million_total_tokens")
    }
    for level in demand["levels"]:
        able = values["predicted_loss"] <= level["loss"]
        assert len(level["demands"]) > 3
        for row in level["demands"]:
            assert row["tokens"] == pytest.approx(row["factor"] * 10e12)
            usd = (
                values["training_usd"]
                + row["tokens"] / 1e6 * (values["usd_per_million_total_tokens"])
            )
            assert row["lifetime_usd"] == pytest.approx(usd[able].min(), rel=1e-6)
            dense = able & (metrics.quality.efficiency_leverage[fits] == 1.0)
            assert (row["dense_lifetime_usd"] is not None) == dense.any()
            if dense.any():
                assert row["dense_lifetime_usd"] == pytest.approx(usd[dense].min(), rel=1e-6)
        prices = [row["usd_per_million_served_tokens"] for row in level["designs"]]
        assert prices == sorted(prices, reverse=True)
    for front in demand["fronts"]:
        assert (np.diff(front["loss"]) > 0).all()
        assert (np.diff(front["usd"]) < 0).all()


def test_a_study_with_a_life(lived: Path):
    """Run, report, and a point again."""
    out = lived
    document = json.loads((out / "study.json").read_text())
    assert document["training"]["chips"] == 256
    assert document["lifetime"]["served_tokens"] == 10e12
    tallied = [row["constraint"] for row in document["constraint_tallies"]]
    assert "training_fits" in tallied
    page = (out / "report.html").read_text()
    for words in ("Over the model&#39;s whole life", "demand-plot", "Forecast", "Trained on"):
        assert words in page or words.replace("&#39;", "'") in page
    text = (out / "report.md").read_text()
    assert "## Over the model's whole life" in text
    item = json.loads((out / "front.json").read_text())["items"][0]
    low, high = item["metrics"]["intervals"]["lifetime_usd"]
    assert low < item["metrics"]["lifetime_usd"] < high
    assert item["metrics"]["provenance"]["training_usd"] == "assumed"
    again = dse("estimate", out, "1", "--json").json()
    assert again["lifetime_usd"] == item["metrics"]["lifetime_usd"]
    said = dse("estimate", out, "1")
    assert "cost of training and serving" in said.out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training": None}, "lifetime: a life without training"),
        ({"training": {"chip": "h100_smx", "chips": 8}}, "did you mean h100_sxm?"),
        ({"training": {"chip": "h100_sxm"}}, "training.chips"),
        ({"training": {"chip": "h100_sxm", "chips": "many"}}, "training.chips: read 'many'"),
        ({"training": {"chip": "h100_sxm", "chips": 8, "zero": 4}}, "training.zero: read 4"),
        ({"training": {"chip": "h100_sxm", "chips": 8, "tp": 8}}, "training.tp"),
        ({"training": {"chip": "rtx4090", "chips": 8}}, "no price on basis rental_3yr"),
        ({"training": {"chip": "h100_sxm", "chips": 8, "price_basis": "rent"}}, "rental_3yr"),
        ({"lifetime": {}}, "lifetime.tokens: neither given"),
        ({"lifetime": {"tokens": "1T", "years": 3}}, "lifetime.years"),
        ({"lifetime": {"tokens_per_year": "1T"}}, "lifetime.years: missing"),
        ({"lifetime": {"tokens": "1T", "input_share": "150 %"}}, "lifetime.input_share"),
        ({"lifetime": {"tokens": "1 TB"}}, "lifetime.tokens"),
        ({"lifetime": None}, "objectives.lifetime_usd: lifetime_usd without lifetime:"),
        (
            {"training": None, "lifetime": None, "objectives": {"tpot_s": "minimize"},
             "constraints": ["training_days <= 30 days"]},
            "constraints[0]: training_days without training:",
        ),
        ({"constraints": ["training_days <= 30 s"]}, "not a limit in days"),
    ],
)  # fmt: skip
def test_mistakes_name_their_line(tmp_path: Path, changes: dict, words: str):
    text = str(refusal(study, tmp_path, **changes))
    assert words in text
    assert "life.yaml:" in text
