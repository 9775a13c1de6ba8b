"""The fields of a deployment, alike in spaces, plans and options; what was not searched."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from dse.schema.axes import AXES
from dse.schema.backend import TUNINGS
from dse.schema.plan import NOT_OF_A_PLAN, Plan
from dse.schema.workloads import FIELDS, PREFILL_FIELDS, SERVED, WorkloadSpec
from tests.cli.conftest import ask, dse

pytestmark = pytest.mark.usefixtures("few_futures")
SPACE: dict[str, Any] = {
    "name": "narrow",
    "title": "What was left out",
    "workload": {"prompt_tokens": 8192, "output_tokens": 1024, "serving": "continuous"},
    "price_basis": "rental_3yr",
    "model": "deepseek-v3",
    "deployment": {
        "chip": ["h200_sxm"],
        "replicas": 1,
        "tensor_parallel": [1, 2, 4, 8],
        "expert_parallel": {"ratio_of": "tensor_parallel", "values": [1]},
        "weight_dtype": ["fp8"],
        "kv_dtype": ["bf16"],
        "concurrency": {"from": 1, "to": 256, "powers_of": 2},
    },
    "objectives": {"usd_per_million_total_tokens": "minimize", "tpot_s": "minimize"},
    "constraints": ["ttft_s <= 5 s", "tpot_s <= 50 ms"],
}
FLEET = ("fleet", "--model", "llama-3-70b", "--chip", "h100_sxm,h200_sxm", "--demand", "1B/day")
LENGTHS = ("--prompt-tokens", "2048", "--output-tokens", "512", "--peak-over-average", "3")
CLASS: dict[str, Any] = {
    "name": "chat",
    "model": "deepseek-v3",
    "requests_per_second": 40,
    "prompt_tokens": 2048,
    "output_tokens": 512,
    "ttft": "2 s",
    "tpot": "50 ms",
    "weight_dtype": "fp8",
    "kv_dtype": "fp8",
}


def fleet_of(tmp_path: Path, *, code: int = 0, **more: Any) -> Any:
    """What `dse fleet` says of a plan of one class with further fields: its JSON, or its error."""
    own = {name: more.pop(name) for name in list(more) if name in Plan.table.names}
    plan = {"name": "p", "title": "p", "quarters": 1, "price_basis": "rental_3yr", **own}
    plan |= {"demand": [CLASS | more], "chips": [{"chip": "h200_sxm"}]}
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(plan), encoding="utf-8")
    said = dse("fleet", str(path), "--json")
    assert said.code == code, said.err
    return said.err if code else json.loads(said.out)


def rate(answer: Any) -> float:
    """The most requests a second and chip of an option."""
    return max(one["requests_per_s"] / sum(one["chips"].values()) for one in answer["options"])


def test_every_field_of_a_deployment_is_one_of_a_plan_or_named_with_the_reason():
    listed: Any = next(field.kind for field in Plan.table.fields if field.name == "demand")
    demand = listed.kind.table
    here = {*Plan.table.names, *demand.names, *demand.elsewhere, *NOT_OF_A_PLAN}
    there = {name for name, rule in AXES.items() if rule.section != "model"}
    assert there | {*WorkloadSpec.table.names} <= here


def taken(verb: str) -> set[str | None]:
    """The options of a verb, and the fields of its --set."""
    command = import_module(f"dse.cli.{verb}").command
    return {param.name for param in command.params} | {*getattr(command, "settings", ())}


@pytest.mark.parametrize("verb", ["estimate", "compare", "fleet", "whatif", "scale"])
def test_every_verb_has_the_options_of_a_deployment(verb: str):
    assert {field.name for field in (*FIELDS, *PREFILL_FIELDS)} <= taken(verb)


@pytest.mark.parametrize(
    ("field", "reason"),
    [("tensor_parallel", "every division"), ("backend", "beside"), ("pool_chips", "disaggregated")],
)
def test_a_plan_says_why_it_does_not_take_a_field(tmp_path: Path, field: str, reason: str):
    demand = {field: 8} if field != "backend" else {}
    if field == "backend":
        text = yaml.safe_dump({"demand": [CLASS | {"backend": "vllm"}]})
        (tmp_path / "plan.yaml").write_text(text, encoding="utf-8")
        said = dse("fleet", str(tmp_path / "plan.yaml")).err
    else:
        said = fleet_of(tmp_path, code=2, **demand)
    assert f"demand[0].{field}: '{field}'" in said
    assert reason in said


def test_fields_of_a_deployment_move_a_plan_as_they_must(tmp_path: Path):
    plain = rate(fleet_of(tmp_path))
    assert rate(fleet_of(tmp_path, max_running_requests=1)) < plain
    assert rate(fleet_of(tmp_path, network_overlap=1.0)) >= plain
    none, sure = (
        rate(fleet_of(tmp_path, draft_tokens=1, acceptance=accepted)) for accepted in (0.0, 1.0)
    )
    assert none < plain < sure
    drafted = fleet_of(tmp_path, draft_tokens=[0, 1])
    assert rate(drafted) >= plain
    assert "drafted" in drafted["instances"][0]["formats"]
    copies = fleet_of(tmp_path, redundant_experts=[32])
    assert any("+32" in one["division"] for one in copies["options"])


def test_workers_of_the_pools_of_a_plan_are_those_that_it_names(tmp_path: Path):
    pools = {"disaggregated": True, "largest_instance": 8}
    free = fleet_of(tmp_path, **pools)
    bound = fleet_of(tmp_path, **pools, prefill={"tensor_parallel": 8, "pipeline_parallel": 1})
    for answer, every in ((free, False), (bound, True)):
        split = [one["division"] for one in answer["options"] if "prefill" in one["division"]]
        assert split
        assert all("x (tp8" in one.split(", decode")[0] for one in split) is every
    assert rate(free) >= rate(bound)
    said = fleet_of(tmp_path, code=2, prefill={"tensor_parallel": 8})
    assert "demand[0].prefill: of one pool" in said
    said = fleet_of(tmp_path, code=2, disaggregated=True, decode={"chip": "h200"})
    assert "demand[0].decode.chip: 'h200' is not among `chips`; did you mean h200_sxm?" in said
    said = fleet_of(tmp_path, code=2, disaggregated=True, prefill={"tensor_paralel": 8})
    assert "did you mean tensor_parallel?" in said


def test_whatif_and_scale_take_pools_of_their_own():
    model = ("--model", "llama-3-70b", "--chip", "h100_sxm")
    pools = ("--set", "disaggregated=true", "--set", "prefill_tp=4")
    one, two = (ask("whatif", *model, "--set", "tp=8", *more)["winner"] for more in ((), pools))
    cost = "usd_per_million_total_tokens"
    assert two[cost] < one[cost]
    assert two["deployment"]["prefill"]["tensor_parallel"] == 4
    assert " -> " in two["deployed"]
    set_pools = ("--disaggregated", "--set", "prefill_tp=4")
    scaled = ask("scale", *model, "--chips-up-to", "32", *set_pools)
    rows = scaled["pools"]
    assert rows
    assert all(row["prefill_division"].startswith("tp4") for row in rows)
    assert all(row["used_chips"] <= row["chips"] for row in rows)
    assert all(row["tpot_s"] <= 0.05 and row["ttft_s"] <= 2.0 for row in rows)
    for verb in ("whatif", "scale", "fleet"):
        steady = ("--demand", "1B/day", *LENGTHS[:4], "--percentile", "steady")
        more = steady if verb == "fleet" else ()
        tp, ep = ("--set", "prefill_tp=4"), ("--set", "prefill_ep=8")
        said = dse(verb, *model, *more, *tp)
        assert said.code == 2
        assert "--prefill-tp: given for one pool (accepted: also --disaggregated)" in said.err
        apart = ("--set", "disaggregated=true") if verb == "whatif" else ("--disaggregated",)
        said = dse(verb, *model, *more, *ep, *apart)
        assert said.code == 2
        assert "prefill-ep: " in said.err.replace("_", "-")
        assert "no experts" in said.err
    said = dse("whatif", *model, "--set", "disaggregated=true", "--set", "prefill_chip=h100")
    assert "--prefill-chip: read 'h100'; did you mean h100_sxm?" in said.err


def test_what_a_model_cannot_be_served_with_is_refused(tmp_path: Path):
    said = dse(*FLEET, *LENGTHS, "--set", "draft_tokens=3")
    assert said.code == 2
    assert "no figure for llama-3-70b" in said.err
    assert dse(*FLEET, *LENGTHS, "--set", "redundant_experts=8").code == 2
    assert dse(*FLEET, *LENGTHS, "--set", "acceptance=0.7").code == 2
    said = dse("scale", "--model", "llama-3-8b", "--chip", "h100_sxm", "--set", "draft_tokens=2")
    assert said.code == 2
    assert "what share of its drafted tokens is accepted" in said.err


def test_what_a_plan_did_not_choose_from_is_what_it_gives_when_it_may():
    plain = ask(*FLEET, *LENGTHS)
    row = next(one for one in plain["not_searched"] if one["what"] == "fp8 weights and cache")
    assert row["predicted_loss_added"] == pytest.approx(0.0, abs=1e-3)
    line = next(one for one in plain["answer"] if one.startswith("Not searched: "))
    assert line.startswith("Not searched: fp8 weights and cache (-")
    assert row["result"] in line
    both = ("--set", "weight_dtype=bf16,fp8", "--set", "kv_dtype=bf16,fp8")
    free = ask(*FLEET, *LENGTHS, *both)
    assert free["usd"] == pytest.approx(plain["usd"] * (1.0 - row["saves"]), rel=0.011)
    assert free["not_searched"] == []


def test_a_study_says_what_was_searched(tmp_path: Path):
    path = tmp_path / "space.yaml"
    worker = {name: one for name, one in SPACE["deployment"].items() if name != "replicas"}
    first = {name: one for name, one in worker.items() if name != "concurrency"}
    pools = {"pool_chips": [16], "prefill": first | {"busy_percent": 80}, "decode": worker}
    for more, drafts, apart in (
        ({}, "and no drafts", "Separate pools were not searched."),
        ({"draft_tokens": [0, 1]}, "and drafts of 1 token", "Separate pools were not searched."),
        (pools, "and no drafts", "One pool and separate pools were searched."),
    ):
        space = SPACE | {"deployment": SPACE["deployment"] | more}
        path.write_text(yaml.safe_dump(space), encoding="utf-8")
        said = dse("run", str(path), "--out", str(tmp_path / "out"), "--fresh")
        assert said.code == 0, said.err
        asked = " ".join(said.out[: said.out.index("\n- ")].split())
        assert f"designs on h200_sxm, with fp8 weights, bf16 KV cache {drafts}. {apart}" in asked


@pytest.mark.parametrize("verb", ["estimate", "fleet", "whatif", "scale"])
def test_every_field_of_serving_is_an_option_of_every_verb(verb: str):
    assert {field.name for field in SERVED} <= taken(verb)


def test_a_launch_that_nobody_knows_is_refused():
    asked = ("--model", "llama-3-8b", "--chip", "h100_sxm")
    for verb, option in (
        ("estimate", ("--set", "tuning=wild")),
        ("scale", ("--set", "tuning=wild")),
    ):
        said = dse(verb, *asked, *option)
        assert said.code == 2
        assert all(name in said.err for name in TUNINGS)
