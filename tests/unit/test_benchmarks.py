"""The bench of temptations: its spaces are valid, and its oracle knows bad designs from good."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import dse
from benchmarks import search as benchmark
from benchmarks.same_numbers.__main__ import differences
from benchmarks.shipped.__main__ import main as shipped
from benchmarks.shipped.__main__ import study_of
from benchmarks.shipped.designs import design
from benchmarks.shipped.servable import servable
from benchmarks.temptations.__main__ import main
from benchmarks.temptations.judge import object_to, spaces
from benchmarks.temptations.published import measure, outside
from benchmarks.temptations.rules import Case, bought_for_nothing, widths
from dse.catalog import load_catalog
from dse.errors import InputError
from dse.schema.model import Model
from dse.schema.model_catalog import load_models
from dse.schema.study import load_study
from tests.helpers_files import write
from tests.helpers_spaces import space

REFUSED_WHEN_READ = "zero-length-answers"
SERVED = {
    "llama-3-70b": ("h100_sxm", "fp8"),
    "deepseek-v3": ("h200_sxm", "fp8"),
    "gpt-oss-120b": ("mi355x", "mxfp4"),
    "qwen3-235b-a22b": ("b200_sxm", "bf16"),
}


@cache
def served(name: str) -> Case:
    """A published model where it is served, all formats being offered."""
    chip, dtype = SERVED[name]
    document = dse.estimate(
        name, chip, tp=8, weight_dtype=dtype, kv_dtype="fp8", concurrency=64, training_tokens="15T"
    ).document
    return Case(
        dse.load_model(name),
        document["deployment"],
        document,
        {"prompt_tokens": 2048, "output_tokens": 512},
        frozenset(("bf16", "fp8", "int8", "nvfp4", "mxfp4")),
        load_catalog(),
    )


def sized(model: Model, kind: str, **sizes: float) -> Model:
    """The model with other sizes in its blocks of a kind."""
    return replace(
        model,
        blocks=tuple(
            replace(block, sizes={**block.sizes, **sizes}) if block.kind == kind else block
            for block in model.blocks
        ),
    )


def blocks(name: str, kind: str, **sizes: float) -> Case:
    case = served(name)
    return replace(case, model=sized(case.model, kind, **sizes))


def with_degrees(name: str, **degrees: Any) -> Case:
    case = served(name)
    return replace(case, deployment={**case.deployment, **degrees})


def metrics(name: str, **values: float) -> Case:
    case = served(name)
    return replace(case, metrics={**case.metrics, **values})


def one_layer() -> Case:
    case = served("llama-3-70b")
    once = tuple(replace(block, count=min(block.count, 1)) for block in case.model.blocks)
    return replace(case, model=replace(case.model, blocks=once))


def of_model(name: str, **fields: Any) -> Case:
    case = served(name)
    return replace(case, model=replace(case.model, **fields))


@cache
def pooled() -> Case:
    """A published model whose prefill and decode are on pools of two kinds of chip."""
    worker = {"tensor_parallel": 8, "weight_dtype": "fp8", "kv_dtype": "fp8"}
    load = {"prompt_tokens": 32768, "output_tokens": 256}
    study = dse.run({
        "name": "pooled", "price_basis": "rental_3yr", "model": "llama-3-70b",
        "workload": {**load, "serving": "continuous", "backend": "current"},
        "deployment": {"pool_chips": 512, "prefill": {**worker, "chip": "h200_sxm"},
                       "decode": {**worker, "chip": "b200_sxm", "concurrency": 16}},
        "objectives": {"usd_per_million_total_tokens": "minimize"},
    })  # fmt: skip
    (point,) = study.front
    return replace(
        served("llama-3-70b"), deployment=point.deployment, metrics=point.metrics, workload=load
    )


def prefilled_by(**changes: Any) -> Case:
    case = pooled()
    prefill = {**case.deployment["prefill"], **changes}
    return replace(case, deployment={**case.deployment, "prefill": prefill})


def at_once() -> Case:
    case = pooled()
    return replace(case, metrics={**case.metrics, "ttft_s": case.metrics["prefill_s"]})


def a_hundred_times() -> Case:
    case = pooled()
    rate = 100 * case.metrics["output_tokens_per_s"]
    return replace(case, metrics={**case.metrics, "output_tokens_per_s": rate})


def bad() -> Mapping[str, tuple[Case, str]]:
    """{space: a design of the kind that it tempts with, what refuses it}."""
    moe = "deepseek-v3"
    return {
        "blind-attention": (blocks("llama-3-70b", "gqa", window=16), "window"),
        "disguised-dense": (
            blocks(moe, "moe", shared_intermediate_size=48 * 2048),
            "shared_over_expert",
        ),
        "endless-tokens": (metrics("llama-3-70b", training_tokens=107e12), "tokens"),
        "extreme-granularity": (
            blocks(moe, "moe", experts=16384, expert_intermediate_size=128),
            "granularity",
        ),
        "foreign-formats": (with_degrees("gpt-oss-120b", weight_dtype="nvfp4"), "formats"),
        "giant-vocabulary": (of_model("llama-3-70b", vocab_size=10**7), "vocabulary"),
        "giants": (blocks("llama-3-70b", "mlp", intermediate_size=2e6), "total_parameters"),
        "idle-replicas": (with_degrees(moe, replicas=128), "idle"),
        "just-past": (blocks("qwen3-235b-a22b", "gqa", heads=65, kv_heads=5), "divides"),
        "million-heads": (blocks("llama-3-70b", "gqa", heads=2**20), "attention_share"),
        "minimum-batch": (metrics("llama-3-70b", decode_step_s=1e-5), "physics"),
        "misaligned-widths": (of_model("llama-3-70b", hidden_size=8196), "widths"),
        "one-layer": (one_layer(), "layers"),
        "starved-prefill": (prefilled_by(replicas=1, chips=8), "pools"),
        "free-transfer": (at_once(), "pools"),
        "switched-formats": (prefilled_by(kv_dtype="bf16"), "pools"),
        "slivers": (
            metrics(moe, dense_equivalent_parameters=444e9, total_parameters=74e9),
            "equivalent",
        ),
        REFUSED_WHEN_READ: (
            replace(served(moe), workload={"prompt_tokens": 2048, "output_tokens": 0}),
            "answers",
        ),
    }


@pytest.mark.parametrize("name", sorted(spaces()))
def test_every_space_is_valid_and_says_what_it_tempts_with(name: str) -> None:
    path = spaces()[name]
    if name == REFUSED_WHEN_READ:
        with pytest.raises(InputError, match="output_tokens"):
            load_study(str(path), load_catalog())
        return
    study = load_study(str(path), load_catalog())
    assert study.name == name
    assert "Tempts with" in path.read_text()


@pytest.mark.parametrize("name", sorted(spaces()))
def test_the_oracle_refuses_what_each_space_tempts_with(name: str) -> None:
    case, rule = bad()[name]
    assert rule in object_to([case])[0]


@pytest.mark.parametrize("name", SERVED)
def test_the_oracle_accepts_published_models_as_they_are_served(name: str) -> None:
    assert object_to([served(name)]) == [{}]


def test_published_shapes_are_aligned_and_few_stand_alone() -> None:
    models = list(load_models().values())
    alone = [found for found in map(outside, measure(models)) if found]
    assert len(alone) < len(models) / 8
    assert max(map(len, alone)) <= 2
    case = served("deepseek-v3")
    assert [list(widths(replace(case, model=model))) for model in models] == [[]] * len(models)


def test_a_gain_below_the_resolution_is_bought_for_nothing() -> None:
    front = np.array(
        [
            [2.0, 1.0],
            [2.0 - 2e-4, 5.0],  # 0.0002 nats for five times the price
            [2.0 - 2e-2, 5.1],  # 0.02 nats
            [2.0 + 2e-4, 0.99],  # as little of both
        ]
    )
    assert [bool(words) for words in bought_for_nothing(front, [False, True])] == [
        False,
        True,
        False,
        False,
    ]
    assert bought_for_nothing(front[:0], [False, True]) == []


def test_a_published_model_as_it_is_served_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, yaml.safe_dump(space({})), "published.yaml")
    assert main([str(file), REFUSED_WHEN_READ]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| published | 2 | 2 | 0 | – | – |"
    assert lines[3].startswith(f"| {REFUSED_WHEN_READ} | 0 | 0 | 0 | the space is refused |")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (lambda: prefilled_by(replicas=1, chips=8), "FLOP/s of prompts on 8 chips"),
        (lambda: prefilled_by(replicas=0.5), "0.5 prefill workers"),
        (lambda: prefilled_by(replicas=10_000, chips=80_000), "an hour paid"),
        (a_hundred_times, "bytes of cache a second"),
        (at_once, "a first token after"),
        (lambda: prefilled_by(kv_dtype="bf16"), "a cache in bf16"),
    ],
)
def test_the_oracle_counts_what_pools_cost(case: Any, words: str) -> None:
    assert not object_to([pooled()])[0]
    assert words in object_to([case()])[0]["pools"]


# The benchmark of the engines: what it measures, keeps and prints.


ONE = ("--spaces", "deploy-llama-3-70b", "--engines", "exhaustive,pareto-local", "--seeds", "2")


def test_rows_are_measured_once_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"
    benchmark.main([*ONE, "--only-engines", "--rows", str(rows)])
    kept = json.loads(rows.read_text())
    assert [(row["engine"], row["seed"]) for row in kept] == [
        ("exhaustive", 0),
        ("pareto-local", 0),
        ("pareto-local", 1),
    ]
    assert kept[0]["share"] == 1.0
    assert all(0.99 <= row["share"] <= 1.0 for row in kept)
    assert all(row["evaluations"] <= row["points"] == 5_940 for row in kept)
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| deploy")]
    assert table[0].startswith("| deploy-llama-3-70b (5,940, 35) | `exhaustive` | 1 | 35 | 5,940 |")
    benchmark.main([*ONE, "--only-engines", "--rows", str(rows)])
    assert json.loads(rows.read_text()) == kept


# What the shipped studies offer: nothing on a front is refused by check or export.


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> dse.Study:
    return study_of("deploy-llama-3-70b", None, tmp_path_factory.mktemp("studies"))


def test_two_small_studies_are_served_as_they_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = shipped(["attention-kinds", "rack-domain", "--studies", str(tmp_path), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["space"] for row in document["served"]] == ["attention-kinds", "rack-domain"]
    assert all(row["points"] and not row["check"] + row["export"] for row in document["served"])
    assert [row["space"] for row in document["designs"]] == ["attention-kinds"]


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
def test_a_named_server_takes_the_whole_front(backend: str, tmp_path: Path) -> None:
    """Chips of all vendors, tensor beside data parallelism, experts in part: each server refuses
    some of them, so its front may not have them."""
    row = servable(study_of("deploy-deepseek-v3", backend, tmp_path))
    assert row["backend"] == backend
    assert (row["check"], row["export"]) == (0, 0), row["examples"]
    assert row["by"][backend] == row["points"] > 0


def test_what_is_refused_is_counted_and_named(deployed: dse.Study) -> None:
    """Three ranks for 64 heads, in a place where the search put one that divides."""
    kept = servable(deployed)
    assert (kept["check"], kept["export"]) == (0, 0)
    items: list[dict[str, Any]] = deployed.front.items
    first = items[0]
    broken = {**first, "deployment": {**first["deployment"], "tensor_parallel": 3}}
    changed = dse.Study(deployed.folder)
    changed.front.items[0] = broken
    row = servable(changed)
    assert (row["check"], row["export"]) == (1, 1)
    assert all("64 heads over 3 ranks" in words for words in row["examples"])


def test_a_design_beyond_published_models_is_named(tmp_path: Path) -> None:
    study = study_of("attention-kinds", None, tmp_path)
    assert not design(study)["beyond"]
    item = next(one for one in study.front.items if one["point"] == study.start.point)
    for block in item["model"]["blocks"]:
        block["count"] = 20  # of a hidden size of 4,096: 204.8 a layer
    words = [one for one in design(study)["beyond"] if one.startswith("hidden size over layers")]
    assert words == [
        "hidden size over layers 204.8; published: to 153.6; Snowflake-Arctic alone has as much"
    ]


# The comparator of recordings finds what differs, and only that.


ROWS = [{"chip": "a", "tpot_s": 1.0}, {"chip": "b", "n": 3}]
BEFORE = {"usd": 1.5, "fits": True, "rows": ROWS}


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (BEFORE, []),
        (BEFORE | {"usd": 1.5 + 1e-13, "seconds": 3}, []),
        (BEFORE | {"rows": ROWS[::-1]}, []),
        (BEFORE | {"usd": 1.51}, ["differs usd"]),
        (BEFORE | {"fits": 1}, ["differs fits"]),
        (BEFORE | {"new": 1}, ["new     new"]),
        ({"usd": 1.5, "rows": ROWS}, ["gone    fits"]),
        (BEFORE | {"rows": ROWS[:1]}, ["gone    rows[b].chip", "gone    rows[b].n"]),
    ],
)
def test_what_differs_is_named(after: dict[str, Any], found: list[str]) -> None:
    lines, _ = differences(BEFORE, after, {})
    assert [line.partition(":")[0] for line in lines] == found


def test_what_is_declared_may_differ() -> None:
    after = {"usd": 2.0, "fits": True, "table": ROWS, "more": 1}
    declared = {
        "changed": {"usd": "a reason"},
        "new": {"more": "a reason"},
        "renamed": {"rows[": {"to": "table[", "reason": "a reason"}},
    }
    assert differences(BEFORE, after, declared) == ([], 6)
