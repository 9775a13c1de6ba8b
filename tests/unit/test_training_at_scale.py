"""What surrounds a training step: interruptions, input, stragglers, sites."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.catalog import load_catalog
from dse.errors import Doubt, InputError
from dse.physics.training.at_scale import (
    data_sync_s,
    goodput,
    optimal_interval_s,
    pipeline_s,
    starved_s,
    straggler_s,
)
from dse.physics.training.plan import SEARCHED, Setting, default_batch_tokens, plans
from dse.problem.training import Trainer, shape_of, trainer_of
from dse.schema.constants import Reliability
from dse.schema.model_catalog import resolve_model
from dse.schema.training import training_terms
from dse.space.batches import batch_of
from dse.space.deployments import Deployments

DAY = 86_400.0


def one(*values: float) -> list[np.ndarray]:
    return [np.array([value]) for value in values]


runs = st.tuples(
    st.floats(1.0, 1e6), st.floats(1e5, 1e9), st.floats(1e6, 1e14), st.floats(1e6, 1e13),
    st.floats(0.0, 1e4),
)  # fmt: skip


@given(runs)
def test_shares_of_the_time_add_up(run: tuple[float, ...]):
    found = goodput(*one(*run))
    parts = (found.goodput, found.writing, found.lost, found.restarting)
    assert all((part >= 0.0).all() for part in parts)
    assert sum(float(part[0]) for part in parts) == pytest.approx(1.0, abs=1e-9)


@given(runs, st.floats(1.01, 10.0))
def test_more_failures_and_slower_storage_never_help(run: tuple[float, ...], factor: float):
    before = goodput(*one(*run)).goodput
    for place, change in ((0, factor), (1, 1 / factor), (2, factor), (3, 1 / factor), (4, factor)):
        worse = [value * change if k == place else value for k, value in enumerate(run)]
        assert goodput(*one(*worse)).goodput <= before * (1 + 1e-9)


def test_youngs_interval_where_checkpoints_are_short():
    found = optimal_interval_s(*one(1.0, 1e6))
    assert found == pytest.approx(np.sqrt(2e6), rel=2e-3)


@given(st.floats(1e-3, 0.3))
def test_no_other_interval_wastes_less(ratio: float):
    """Daly's formula is an approximation: within 0.2% of the best goodput."""
    between, write = 1e4, ratio * 1e4
    run = one(1.0, between, write, 1.0, 0.0)
    best = goodput(*run).goodput
    intervals = np.geomspace(1e-2, 10.0, 400) * between
    others = goodput(*(np.full(400, v[0]) for v in run), interval_s=intervals).goodput
    assert others.max() <= best[0] * 1.002


def test_llama_3s_run():
    """419 unexpected interruptions of 16,384 chips in 54 days, over 90% of the time useful
    (arXiv 2407.21783, section 3.3.4)."""
    figures = load_catalog().reliability
    found = goodput(
        *one(
            16_384.0,
            figures.between("h100_sxm").value,
            405e9 * 14.0,
            16_384 * figures.figure("checkpoint_bandwidth_per_chip").value,
            figures.figure("restart").value,
        )
    )
    assert 54 * DAY / found.between_s == pytest.approx(419, rel=1e-3)
    assert found.write_s == pytest.approx(405e9 * 14.0 / 2e12, rel=0.01)
    assert 0.90 < found.goodput[0] < 0.95


def test_reliability_file(tmp_path):
    catalog = load_catalog()
    assert set(catalog.reliability.interruptions) <= set(catalog.chips)
    assert catalog.reliability.between("tpu_v5p").kind == "assumed"
    text = (
        "interruptions:\n- {chips: [a, a], value: 1 h, kind: measured, source: s, date: '2024'}\n"
        "other_interruptions: {value: 2 h, kind: measured, source: s, date: '2024'}\n"
        "restart: {value: 2 GB, kind: measured, source: s, date: '2024'}\n"
        "checkpoint_bandwidth_per_chip: {value: 1 GB/s, kind: measured, source: s, date: '2024'}\n"
    )
    file = tmp_path / "reliability.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=r"interruptions\[0\].chips: a stands twice"):
        Reliability.load(file)
    file.write_text(text.replace("[a, a]", "[a]"))
    with pytest.raises(InputError, match=r":4: restart.value: .*a size, not a time"):
        Reliability.load(file)


def test_input_is_a_ceiling():
    delivered = np.array([1e7])  # 10 s to deliver, 2 s to compute
    assert starved_s(*one(2.0, 1e8), tokens_per_s=delivered) == [8.0]
    assert starved_s(*one(20.0, 1e8), tokens_per_s=delivered) == [0.0]
    assert starved_s(*one(2.0, 1e8, np.inf)) == [0.0]


@given(st.floats(0.001, 0.2), st.floats(2.0, 1e5))
def test_stragglers_grow_with_the_ranks(share: float, ranks: float):
    waits = straggler_s(np.ones(3), np.array([1.0, ranks, 2 * ranks]), share)
    assert waits[0] == pytest.approx(share)
    assert waits[0] < waits[1] < waits[2]
    assert straggler_s(np.ones(1), np.array([ranks]), 0.0) == [0.0]


def test_sites_that_exchange_gradients():
    one_site = data_sync_s(*one(1.0, 1e12, 5e10, 0.02))
    four = data_sync_s(*one(4.0, 1e12, 5e10, 0.02))
    assert one_site == [0.0]
    assert four == pytest.approx(2 * 3 / 4 * 1e12 / 5e10 + 6 * 0.02)
    assert data_sync_s(*one(4.0, 1e12, 5e10, 0.02), local_steps=100.0) == pytest.approx(four / 100)


def test_a_pipeline_over_sites():
    step, sites, tokens, micro, hidden, latency = 10.0, 2.0, 1e6, 8192.0, 4096.0, 0.02
    message = micro * hidden * 2 / 1e9 + latency
    fast = pipeline_s(*one(step, sites, tokens, micro, hidden, 1e9, latency))
    assert fast == pytest.approx(2 * message)  # 8.2 s of traffic hide behind 10 s of step
    slow = pipeline_s(*one(step, sites, tokens, micro, hidden, 5e8, latency))
    half = micro * hidden * 2 / 5e8 + latency
    assert slow == pytest.approx(tokens * hidden * 2 / 5e8 - step + 2 * half)
    assert pipeline_s(*one(step, 1.0, tokens, micro, hidden, 1e9, latency)) == [0.0]


def trainer(**terms: Any) -> Trainer:
    asked = training_terms(**({"chip": "h100_sxm", "chips": 256} | terms))
    return trainer_of(load_catalog(), asked, "rental_3yr")


SITES = {"sites": 4, "site_bandwidth": "100 Gb/s", "site_latency": "10 ms"}


@pytest.mark.parametrize(
    "terms",
    [
        {},
        SITES,
        SITES | {"site_split": "pipeline"},
        {"straggler": 0.01, "input_tokens_per_s": "200k"},
    ],
    ids=["plain", "data", "pipeline", "slow"],
)
def test_losses_add_up_and_rows_do_not_depend_on_each_other(terms: dict):
    asked = trainer(**terms)
    shape = shape_of(resolve_model("llama-3-8b"))
    row, table = asked.plans(shape)
    few = np.arange(0, len(row), max(len(row) // 50, 1))
    found = asked.evaluate(shape, row[few], table.take(few))
    total = np.zeros(len(few))
    for seconds in found.run.losses.values():
        assert (seconds >= 0.0).all()
        total = total + seconds
    assert total == pytest.approx(found.run.step_s, rel=1e-12)
    for k, i in enumerate(few[:5]):
        alone = asked.evaluate(shape, row[i : i + 1], table.take(slice(i, i + 1)))
        assert alone.run.step_s == found.run.step_s[k]
        assert alone.rate == found.rate[k]


def test_a_thinner_link_between_sites_is_never_faster():
    asked = trainer(**SITES)
    shape = shape_of(resolve_model("llama-3-8b"))
    rates = []
    for bandwidth in (1e9, 1e10, 1e11):
        conditions = replace(asked.conditions, site_bytes_per_s=bandwidth)
        ranked = replace(asked, conditions=conditions).ranked(shape)
        rates.append(ranked.rate[ranked.best()[0]])
    assert rates[0] < rates[1] < rates[2]


def test_adapters_are_all_that_lora_writes():
    asked = trainer(
        task="lora", chips=8, **{k: v for k, v in SITES.items() if k != "sites"}, sites=2
    )
    shape = shape_of(resolve_model("llama-3-8b"))
    ranked = asked.ranked(shape)
    found = asked.evaluate(shape, *ranked.take(ranked.best()))
    # Rank 16 on every projection of 8B: some 40M parameters, 14 bytes each.
    assert 2e8 < found.run.checkpoint_bytes[0] < 2e9
    assert found.run.losses["sites"][0] < 0.1 * found.run.step_s[0]


def test_sites_that_split_the_batch_shard_nothing_between_them():
    shape = shape_of(resolve_model("llama-3-8b"))
    plan = {
        "tensor_parallel": 2, "context_parallel": 1, "pipeline_parallel": 1, "data_parallel": 32,
        "expert_parallel": 1, "virtual_stages": 1, "micro_batch": 1, "recompute": 0,
        "zero_stage": 1,
    }  # fmt: skip
    table = Deployments.of(**plan)
    row = np.zeros(1, dtype=np.intp)
    alone = trainer(**SITES | {"sites": 1, "site_bandwidth": None}).evaluate(shape, row, table)
    apart = trainer(**SITES | {"sites": 4}).evaluate(shape, row, table)
    for part in ("optimizer", "master"):
        assert apart.metrics.memory[part] == pytest.approx(4.0 * alone.metrics.memory[part])
    assert apart.metrics.memory["weights"] == alone.metrics.memory["weights"]


def test_a_site_between_two_others_carries_both_ways():
    step, tokens, micro, hidden, latency = 1.0, 1e7, 1e4, 8192.0, 0.01
    two, four = (
        pipeline_s(*one(step, sites, tokens, micro, hidden, 1e9, latency)) for sites in (2.0, 4.0)
    )
    crossing = tokens * hidden * 2.0 / 1e9
    assert four - two == pytest.approx(crossing + 4.0 * (micro * hidden * 2.0 / 1e9 + latency))


# The enumeration of training plans, and the best of them.


CASES = [("llama-3.1-405b", 16_384), ("deepseek-v3", 2048), ("llama-3-8b", 1), ("gpt-oss-120b", 72)]


def table(model: str, chips: int, **setting: Any):
    tokens = default_batch_tokens(chips, 8192)
    shape = shape_of(resolve_model(model))
    return plans(shape, chips, Setting(global_batch_tokens=tokens, **setting), 8.0)


@pytest.mark.parametrize(("model", "chips"), CASES)
def test_every_plan_uses_every_chip_once(model: str, chips: int):
    found = table(model, chips)
    used = np.ones(len(found["tensor_parallel"]), dtype=np.int64)
    for name in ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel"):
        used = used * found[name]
    assert (used == chips).all()
    rows = np.stack([found[name] for name in (*SEARCHED, "data_parallel")], axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_published_plans_are_among_them():
    """Llama 3 405B (arXiv 2407.21783, table 4) and DeepSeek-V3 (arXiv 2412.19437, section 3.2)."""
    axes = ("tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel",
            "virtual_stages")  # fmt: skip
    found = table("llama-3.1-405b", 16_384)
    assert np.all([found[axes[k]] == n for k, n in enumerate((8, 16, 1, 128, 8))], axis=0).any()
    axes = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "zero_stage")
    found = table("deepseek-v3", 2048)
    assert np.all([found[axes[k]] == n for k, n in enumerate((1, 16, 64, 1))], axis=0).any()


@pytest.mark.parametrize(("model", "chips"), CASES)
def test_few_are_some_of_all(model: str, chips: int):
    def rows(found: dict) -> set:
        return set(zip(*(found[name].tolist() for name in SEARCHED), strict=True))

    few, every = rows(table(model, chips, few=True)), rows(table(model, chips))
    assert few <= every
    assert len(few) < len(every) or chips == 1


def test_what_is_fixed_stays_and_is_not_refused():
    found = table("llama-3-8b", 64, fixed={"tensor_parallel": 3, "zero_stage": 2})
    assert set(found["tensor_parallel"]) == {3}
    assert set(found["zero_stage"]) == {2}


def test_an_odd_cluster_has_data_parallel_plans():
    assert default_batch_tokens(72, 8192) % (9 * 8192) == 0
    assert table("llama-3-8b", 72)["data_parallel"].max() == 72


def test_the_best_of_many_shapes_is_the_best_of_each_alone():
    names = ("llama-3-8b", "llama-3-70b", "mixtral-8x7b")
    models = [resolve_model(name) for name in names]
    together = batch_of(models, np.zeros(3, np.intp), ["bf16"] * 3, ["bf16"] * 3, {})
    terms = training_terms(chip="h200_sxm", chips=128)
    trainer = trainer_of(load_catalog(), terms, None, few=True)
    ranked = trainer.ranked(together)
    best = ranked.best()
    assert ranked.row[best].tolist() == [0, 1, 2]
    for k, model in enumerate(models):
        alone = trainer.ranked(shape_of(model))
        fits = alone.miss <= 0.0
        assert ranked.rate[best[k]] == alone.rate[fits].max()


def test_more_memory_never_slows_the_best_plan():
    rates = []
    for chip in ("h100_sxm", "h200_sxm"):
        trainer = trainer_of(load_catalog(), training_terms(chip=chip, chips=64), None)
        ranked = trainer.ranked(shape_of(resolve_model("llama-3-70b")))
        rates.append(ranked.rate[ranked.best()[0]])
    assert rates[0] < rates[1]


# From an observed MFU back to its causes.


RUN = ("llama-3-8b", "h100_sxm", 256)
MFU = 0.2
DOCUMENT = dse.train(*RUN, tokens="1T", observed_mfu="20%").document
WHY = DOCUMENT["observed"]


def test_causes_with_a_size_leave_what_was_observed() -> None:
    """Run again with that input, and with ranks that late, the run reaches the observed MFU."""
    best = DOCUMENT["best"]
    rate = best["tokens_per_s_per_chip"] * RUN[2] * MFU / best["mfu"]
    again = dse.train(*RUN, tokens="1T", input_tokens_per_s=f"{rate}").document
    assert again["best"]["mfu"] == pytest.approx(MFU, rel=1e-3)
    late = next(row["cause"] for row in WHY["causes"] if row["cause"].startswith("ranks"))
    share = float(late.split("by ")[1].split("%")[0]) / 100.0
    again = dse.train(*RUN, tokens="1T", straggler=share).document
    assert again["best"]["mfu"] == pytest.approx(MFU, rel=0.02)


def test_what_the_loss_costs() -> None:
    best = DOCUMENT["best"]
    slower = best["mfu"] / MFU
    assert WHY["days"] == pytest.approx(best["days"] * slower)
    assert WHY["usd"] == pytest.approx(best["usd"] * slower)
    for row in WHY["causes"]:
        assert 0.0 < row["explains"] <= 1.0
        assert row["saves_days"] <= WHY["days"] - best["days"] + 1e-9 or row["mfu"] < MFU
    assert [row["explains"] for row in WHY["causes"]] == sorted(
        (row["explains"] for row in WHY["causes"]), reverse=True
    )


def test_a_cause_is_the_run_with_it() -> None:
    whole = next(row for row in WHY["causes"] if row["cause"] == "all layers are recomputed")
    assert whole["mfu"] == dse.train(*RUN, tokens="1T", recompute="full").document["best"]["mfu"]


def test_a_share_is_written_as_percent_or_not() -> None:
    assert dse.train(*RUN, tokens="1T", observed_mfu="0.2").document["observed"] == WHY


def test_what_is_read_as_a_hundredth_is_noted() -> None:
    with pytest.warns(Doubt, match=r"read 0\.2%: .* \(1% to 100%\); 20% was probably meant"):
        dse.train(*RUN, tokens="1T", observed_mfu="0.2%")


@pytest.mark.parametrize("text", ["", "much", "11%%", "99%", "0"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(InputError, match="read"):
        dse.train(*RUN, tokens="1T", observed_mfu=text)
