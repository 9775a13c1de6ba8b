"""Every rule of the registry is seen by all who ask: for each, one candidate that breaks it, and
the search, `dse estimate`, `dse check`, `dse train` and `dse export` agree on it with one message;
`dse scale` and `dse fleet` leave the division out for the same rule.

A new rule needs a candidate here, or `test_every_rule_has_a_candidate` fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.catalog import Catalog, load_catalog
from dse.errors import InputError, NothingFeasible
from dse.problem import instances
from dse.problem.instances import Subject, batch_at, evaluated
from dse.problem.mix import mix_of
from dse.problem.objective import PhysicsProblem, pose
from dse.problem.training import of_terms
from dse.problem.words import violation_words
from dse.questions.check.check import checked
from dse.questions.check.subject import subject_of
from dse.questions.estimate.point import Estimate, estimate
from dse.questions.export import STACKS, export_arguments, export_command
from dse.questions.fleet import options as fleet_options
from dse.questions.fleet.options import at_rate, options_of, subject_of_class
from dse.questions.training_run import best_run
from dse.rules.case import Case, Training
from dse.rules.deployment import RACK
from dse.rules.kinds import MEGATRON, REGISTRY, SERVERS, Rule
from dse.rules.registry import MEANINGS, judge, names, row_words
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.plan import DemandClass, Plan
from dse.schema.study import load_study, resolve_space
from dse.schema.system import Rack, load_rack, shipped_racks
from dse.schema.traffic import Requests
from dse.schema.training import TrainingTerms
from dse.space.deployments import Deployments
from tests import helpers_fleet as fleet
from tests.helpers_training import plan
from tests.helpers_training import train as step_of

FORMATS = {STACKS[name].title: name for name in STACKS}
LOAD = {"prompt_tokens": 2048, "output_tokens": 512, "serving": "continuous"}


@dataclass(frozen=True)
class Candidate:
    """A model with some sizes of its blocks changed, on a deployment. What `dse check` and the
    export have no words for is `unasked` of them: they cannot be given the candidate."""

    model: str = "llama-3-8b"
    sizes: Mapping[str, float] = field(default_factory=dict)
    deployment: Mapping[str, Any] = field(default_factory=dict)
    chip: str = "h100_sxm"
    dtype: str | None = None
    cache: str | None = None
    load: Mapping[str, Any] = field(default_factory=dict)
    rack: Mapping[str, float] | None = None
    unasked: tuple[str, ...] = ()

    @property
    def shape(self) -> Model:
        return changed(self.model, **self.sizes)


def changed(name: str, **sizes: float) -> Model:
    model = resolve_model(name)
    blocks = tuple(
        replace(
            block, sizes={**block.sizes, **{k: v for k, v in sizes.items() if k in block.sizes}}
        )
        for block in model.blocks
    )
    return replace(model, blocks=blocks)


def degrees(tp: int = 1, pp: int = 1, dp: int = 1, ep: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "data_parallel": dp,
        "expert_parallel": ep,
        "concurrency": 32,
        **more,
    }


# What a larger domain takes of the rack, or what the rack has of it, is made too little.
TIGHT: dict[str, dict[str, float]] = {
    "rack_power": {"feed_w": 1e3},
    "rack_bend_radius": {"bend_depth_m": 0.01},
    "rack_weight": {"allowed_kg": 1.0},
    "rack_floor_load": {"floor_kg_per_m2": 1.0},
}
WIDE, IN_TIER = {"scale_up_domain": 16_384.0}, ("export",)
SPARSE = "qwen3-30b-a3b"
ENCODER = str(Path(__file__).parents[1] / "data" / "configs" / "bert-large.json")
SERVING: dict[str, Candidate] = {
    "memory_capacity": Candidate("llama-3-70b", deployment=degrees()),
    "heads_divide_by_tensor_parallel": Candidate("qwen2.5-7b", deployment=degrees(tp=8)),
    "kv_heads_divide_heads": Candidate(sizes={"kv_heads": 5}, deployment=degrees()),
    "kv_heads_fit_tensor_parallel": Candidate("qwen2.5-7b", deployment=degrees(tp=7)),
    "linear_key_heads_divide_value_heads": Candidate(
        "qwen3-next-80b-a3b", sizes={"key_heads": 12}, deployment=degrees(tp=4)
    ),
    "feed_forward_divides_by_tensor_parallel": Candidate(
        sizes={"intermediate_size": 14337}, deployment=degrees(tp=2)
    ),
    "experts_divide_by_expert_parallel": Candidate(SPARSE, deployment=degrees(dp=3, ep=3)),
    "experts_per_token_within_experts": Candidate(
        SPARSE, sizes={"experts_per_token": 200}, deployment=degrees()
    ),
    "expert_width_divides": Candidate(
        SPARSE, sizes={"expert_intermediate_size": 770}, deployment=degrees(tp=4)
    ),
    "expert_parallel_divides_group": Candidate(SPARSE, deployment=degrees(tp=2, ep=4)),
    "stages_within_layers": Candidate(deployment=degrees(pp=33)),
    "output_groups_divide_by_tensor_parallel": Candidate(
        "deepseek-v4-flash", chip="b200_sxm", deployment=degrees(tp=16), load={"backend": "trtllm"}
    ),
    "vocabulary_divides_by_tensor_parallel": Candidate(
        "qwen2.5-7b", deployment=degrees(tp=7), load={"backend": "vllm"}
    ),
    "chips_divide_into_instances": Candidate(deployment=degrees(replicas=1.5)),
    "backend_serves_chip": Candidate(
        chip="mi300x", deployment=degrees(), load={"backend": "trtllm"}, unasked=("check", "export")
    ),
    "requests_for_every_replica": Candidate(
        deployment=degrees(replicas=8, concurrency=4), unasked=("check",)
    ),
    "encoders_write_nothing": Candidate(ENCODER, deployment=degrees(), unasked=("check", "export")),
    "arrivals_within_capacity": Candidate(
        deployment=degrees(),
        load={"serving": "poisson", "requests_per_second": 1e4},
        unasked=("check",),
    ),
    "offload_tier_exists": Candidate(
        deployment=degrees(offload_tier="attached", weights_offloaded=0.5, kv_offloaded=0.0),
    ),
    "offload_tier_capacity": Candidate(
        "deepseek-v3",
        deployment=degrees(offload_tier="host", weights_offloaded=1.0, kv_offloaded=0.0),
    ),
    **{
        rule.name: Candidate(
            deployment=degrees(**WIDE), rack=TIGHT.get(rule.name, {}), unasked=("check",)
        )
        for rule in RACK
    },
    "fp8_blocks_whole": Candidate(SPARSE, deployment=degrees(tp=4), dtype="fp8_block"),
    "int4_groups_whole": Candidate(
        "qwen2-72b", deployment=degrees(tp=8), dtype="int4", load={"backend": "vllm"}
    ),
    "nvfp4_blocks_whole": Candidate(
        sizes={"intermediate_size": 14344},
        chip="b200_sxm",
        deployment=degrees(),
        dtype="nvfp4",
        load={"backend": "sglang"},
    ),
    "fp8_widths": Candidate(
        sizes={"intermediate_size": 14344},
        deployment=degrees(),
        dtype="fp8",
        chip="mi300x",
        load={"backend": "vllm"},
    ),
    "trtllm_format_kernels": Candidate(
        deployment=degrees(), dtype="nvfp4", load={"backend": "trtllm"}
    ),
    "sglang_format_kernels": Candidate(
        deployment=degrees(), dtype="nvfp4", chip="mi355x", load={"backend": "sglang"}
    ),
    "cache_format": Candidate(
        deployment=degrees(), cache="int4", load={"backend": "vllm"}, unasked=("check",)
    ),
    "server_names_cache_format": Candidate(
        deployment=degrees(), cache="int8", load={"backend": "sglang"}, unasked=("check",)
    ),
    "experts_over_all_ranks_or_none": Candidate(
        SPARSE, deployment=degrees(tp=4, ep=2), load={"backend": "vllm"}
    ),
    "attention_tensor_or_data_parallel": Candidate(
        SPARSE, deployment=degrees(tp=2, dp=2, ep=4), load={"backend": "trtllm"}
    ),
    "data_parallel_attention_has_experts": Candidate(deployment=degrees(dp=2)),
    "int8_widths": Candidate(
        sizes={"intermediate_size": 14344},
        deployment=degrees(),
        dtype="int8",
        load={"backend": "vllm"},
    ),
    "training_fits": Candidate(deployment=degrees(), unasked=("check", "export")),
}


@dataclass(frozen=True)
class Run:
    """What is trained, and on which terms; `step`: no plan that is tried breaks the rule, one step
    of this run does."""

    model: str = "llama-3-8b"
    sizes: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)
    step: Mapping[str, Any] | None = None


def held(chips: int = 8, **found: int) -> dict[str, Any]:
    return {"chips": chips, "degrees": found}


TRAINED: dict[str, Run] = {
    "memory_capacity": Run("llama-3.1-405b"),
    "host_memory_capacity": Run("llama-3.1-405b", terms={"offload": 1.0, "zero": 0}),
    "heads_divide_by_tensor_parallel": Run(terms=held(24, tensor_parallel=3)),
    "kv_heads_divide_heads": Run(sizes={"kv_heads": 5}),
    "kv_heads_fit_tensor_parallel": Run(terms=held(24, tensor_parallel=3)),
    "linear_key_heads_divide_value_heads": Run("qwen3-next-80b-a3b", sizes={"key_heads": 12}),
    "feed_forward_divides_by_tensor_parallel": Run(terms=held(24, tensor_parallel=3)),
    "experts_divide_by_expert_parallel": Run(
        "mixtral-8x7b", terms=held(24, expert_parallel=3, tensor_parallel=1)
    ),
    "experts_per_token_within_experts": Run("mixtral-8x7b", sizes={"experts_per_token": 9}),
    "expert_parallel_divides_group": Run(
        "mixtral-8x7b", terms=held(8, expert_parallel=8, pipeline_parallel=8)
    ),
    "stages_within_layers": Run(terms=held(64, pipeline_parallel=64)),
    "degrees_are_whole": Run(step={"data_parallel": 2.5}),
    "batch_divides": Run(terms=held(micro_batch=7)),
    "sequence_divides": Run(terms=held(24, context_parallel=3)),
    "virtual_stages_need_pipeline": Run(terms=held(virtual_stages=2, pipeline_parallel=1)),
    "schedule_has_micro_batches": Run(
        terms={**held(pipeline_parallel=8), "schedule": "dualpipe", "global_batch_tokens": 8192 * 4}
    ),
    "sequence_parallel_experts": Run(
        "mixtral-8x7b", step={"tensor_parallel": 2, "sequence_parallel": 0}
    ),
    "format_has_arithmetic": Run(terms={"precision": "nvfp4"}),
    "interruptions_leave_time": Run(terms={"chip_s_between": 3.6}),
    "sites_divide_ranks": Run(terms={"sites": 3, "site_bytes_per_s": 1e9}),
    "chips_divide": Run(terms=held(tensor_parallel=3)),
}


def of(phase: str) -> list[str]:
    return [rule.name for rule in REGISTRY if phase in rule.phases]


RULES: dict[str, Rule] = {rule.name: rule for rule in REGISTRY}


@cache
def catalog() -> Catalog:
    return load_catalog()


@cache
def problem() -> PhysicsProblem:
    return pose(load_study(resolve_space("tiny")), catalog())


def rack_of(one: Candidate) -> Rack | None:
    if one.rack is None:
        return None
    rack = load_rack(shipped_racks()["hypothetical_copper"])
    assert rack.cables is not None
    cables = {name: value for name, value in one.rack.items() if hasattr(rack.cables, name)}
    own = {name: value for name, value in one.rack.items() if name not in cables}
    return replace(rack, **own, cables=replace(rack.cables, **cables))


def estimated(one: Candidate) -> Estimate:
    mix = mix_of([{**LOAD, "backend": "generic", **one.load}], catalog().backends)
    trained = None
    if one is SERVING["training_fits"]:
        trained = of_terms(TrainingTerms("h100_sxm", 1, "rental_3yr"), None, catalog())
    return estimate(
        catalog(),
        one.shape,
        one.chip,
        mix,
        one.deployment,
        weight_dtype=one.dtype,
        kv_dtype=one.cache,
        rack=rack_of(one),
        trained=trained,
    )


def test_every_rule_has_a_candidate():
    assert set(SERVING) == set(of("serving"))
    assert set(TRAINED) == set(of("training"))
    assert len(RULES) == len(REGISTRY)


@pytest.mark.parametrize("rule", of("serving"))
def test_all_who_serve_agree(rule: str):
    one = SERVING[rule]
    answer = estimated(one)
    document = answer.as_json()
    assert document["feasible"] is False
    (row,) = (row for row in document["violations"] if row["constraint"] == rule)
    assert row["meaning"] == MEANINGS[rule]
    message = row_words(row)
    assert message in violation_words(row)

    # The search, with the same candidate on its machines.
    trained = (
        None
        if rule != "training_fits"
        else of_terms(TrainingTerms("h100_sxm", 1, "rental_3yr"), None, catalog())
    )
    posed = replace(problem(), machines=answer.machines, mix=answer.mix, trained=trained)
    found = posed.judge(posed.metrics_of(answer.batch, answer.machines))
    assert found.G.shape[1] == len(posed.constraints)
    assert found.G[0, posed.constraints.index(rule)] > 0.0

    if "check" not in one.unasked:
        _check_agrees(one, RULES[rule], row)
    if "export" not in one.unasked:
        stacks = [stack for stack in RULES[rule].stacks or SERVERS if stack in SERVERS]
        for stack in stacks:
            _export_agrees(answer, stack, message)


def _check_agrees(one: Candidate, rule: Rule, row: Mapping[str, Any]) -> None:
    """Check knows the chip's own backend alone: of another it says who refuses."""
    lengths = (LOAD["prompt_tokens"], LOAD["output_tokens"], 32)
    asked = (catalog(), one.shape, one.chip, one.deployment, *lengths)
    said = checked(subject_of(*asked, weight_dtype=one.dtype), catalog()).document
    rows = [found for found in said["rules"] if found["rule"] == rule.name]
    assert rows
    assert all(found["says"] == row["meaning"] for found in rows)
    assert "; ".join(dict.fromkeys(found["found"] for found in rows)) == row["found"]
    plain = estimated(replace(one, load={}))
    assert said["ok"] is bool(plain.metrics.feasible[0])
    if rule.by_stack:
        accepts = {each["software"]: each["accepts"] for each in said["software"]}
        assert not any(accepts[stack] for stack in rule.stacks if stack in accepts)
    else:
        assert not said["ok"]
    assert "cannot run" in said["answer"] or said["ok"]
    assert all(found["severity"] == "error" for found in rows)


def _export_agrees(answer: Estimate, stack: str, message: str) -> None:
    if answer.machines.ids[0] == "mi300x" and stack == "TensorRT-LLM":
        return  # does not run there
    with pytest.raises(InputError) as refused:
        export_command(answer, FORMATS[stack], catalog())
    assert message in str(refused.value)


@pytest.mark.parametrize("rule", of("training"))
def test_all_who_train_agree(rule: str):
    one = TRAINED[rule]
    model = changed(one.model, **one.sizes)
    if one.step is not None:
        broken = judge(Case.of_training(Training(step_of(plan(one.model, **one.step)))))
        assert broken[rule][0] > 0.0
        return
    terms = TrainingTerms(**{"chip": "h100_sxm", "chips": 8, **one.terms})
    document = best_run(catalog(), model, terms, 1e12).document(catalog(), "rental_3yr")
    assert document["feasible"] is False
    rows = {row["constraint"]: row for row in document["violations"]}
    assert rows[rule]["meaning"] == MEANINGS[rule]


# What no instance of `dse scale` and `dse fleet` can break: they rent whole instances of chips as
# they are, hold everything in the chip's own memory, and train nothing.
NO_INSTANCE = {
    "chips_divide_into_instances",
    "requests_for_every_replica",
    "offload_tier_exists",
    "offload_tier_capacity",
    "training_fits",
    *(rule.name for rule in RACK),
}


@pytest.mark.parametrize("rule", [name for name in of("serving") if name not in NO_INSTANCE])
def test_scale_and_fleet_refuse_the_same_instances(rule: str, monkeypatch: pytest.MonkeyPatch):
    one = SERVING[rule]
    table = divided(one)
    (chips,) = table.chips.tolist()
    klass, backend = asked_of(one), str(one.load.get("backend", "generic"))
    posed = plan_of(one, klass, chips, backend)
    monkeypatch.setattr(fleet_options, "resolve_model", lambda name: one.shape)
    formats = (one.dtype, one.cache, None)
    subject = subject_of_class(posed, catalog(), klass, one.model, one.chip, formats)
    if rule == "arrivals_within_capacity":
        batch = batch_at(subject, table, 1.0)
        for per_s, broken in ((1e4, True), (0.1, False)):
            served = at_rate(subject, klass, batch, np.array([per_s]))
            assert bool(served.violations[rule][0] > 0.0) is broken
            assert bool(served.feasible[0]) is not broken
        return
    violations = [row["constraint"] for row in estimated(one).as_json()["violations"]]
    found = evaluated(subject, table)
    assert not found.runs[0]
    assert bool(found.memory[0] > 0.0) is ("memory_capacity" in violations)
    legal = [name for name in violations if name != "memory_capacity"]
    assert [names()[k] for k in found.rule if k >= 0] == legal[:1]

    # The one division alone: what both say is the rule, or the memory.
    says = MEANINGS[legal[0]] if legal else "memory: at best a chip needs"
    monkeypatch.setattr(Subject, "divided", lambda self, chips: table)
    monkeypatch.setattr(instances, "sizes_up_to", lambda domain, most: [chips])
    with pytest.raises(NothingFeasible) as refused:
        instances.best_instances(subject, chips_up_to=chips)
    assert says in str(refused.value)
    options, reasons = options_of(posed, catalog())
    assert not options
    (reason,) = (row["reason"] for row in reasons)
    assert says in reason


def divided(one: Candidate) -> Deployments:
    axes = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
    return Deployments.of(**{axis: one.deployment[axis] for axis in axes}, redundant_experts=0)


def asked_of(one: Candidate) -> DemandClass:
    requests = Requests(1.0, float(LOAD["prompt_tokens"]), float(LOAD["output_tokens"]))
    return replace(
        fleet.demand(per_s=1.0),
        models=(one.model,),
        streams=(requests,),
        ttft_s=60.0,
        tpot_s=1.0,
        weight_dtypes=(one.dtype,) if one.dtype else (),
        kv_dtypes=(one.cache,) if one.cache else (),
    )


def plan_of(one: Candidate, klass: DemandClass, chips: int, backend: str) -> Plan:
    rented = fleet.chip(one.chip, fleet.rent(one.chip, 1.0), server=8)
    plan = fleet.plan(rented, quarters=1, discount_rate=0.0, demand=(klass,))
    return replace(plan, backend=backend, largest_instance=chips)


def test_a_plain_run_keeps_every_rule():
    found = step_of(plan("llama-3-8b", data_parallel=8, recompute="full"))
    kept = judge(Case.of_training(Training(found)))
    assert set(kept) == set(of("training"))
    assert all((amount == 0.0).all() for amount in kept.values())


@pytest.mark.parametrize(
    "rule", [rule.name for rule in REGISTRY if MEGATRON in rule.stacks and rule.name in SERVING]
)
def test_arguments_of_megatron_are_refused_alike(rule: str):
    one = SERVING[rule]
    axes = {
        name: int(one.deployment[f"{name}_parallel"])
        for name in ("tensor", "pipeline", "data", "expert")
    }
    (row,) = (r for r in estimated(one).as_json()["violations"] if r["constraint"] == rule)
    with pytest.raises(InputError) as refused:
        export_arguments(one.shape, axes, 2048)
    assert row_words(row) in str(refused.value)


def test_a_rule_of_one_backend_binds_where_that_is_meant():
    """Without a backend, what every one that may be meant refuses; a named one for itself alone."""
    one = SERVING["int4_groups_whole"]
    for backend, chip, feasible in (
        ("vllm", "h200_sxm", False),
        ("vllm-2023", "h200_sxm", False),
        ("trtllm", "h200_sxm", True),
        ("generic", "h200_sxm", True),  # TensorRT-LLM has no such rule
        ("generic", "mi300x", False),  # and does not run there
    ):
        point = replace(one, chip=chip, load={"backend": backend})
        assert bool(estimated(point).metrics.feasible[0]) is feasible, (backend, chip)
