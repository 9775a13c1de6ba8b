"""`dse train`: the answer, the contract of --json, and what is refused."""

from __future__ import annotations

import pytest

from tests.cli.conftest import ask, dse, fits

RUN = ("train", "llama-3-8b", "--chip", "h100_sxm", "--chips", "64", "--tokens", "1T")
LLAMA = ("train", "llama-3.1-405b", "--chip", "h100_sxm", "--chips", "16384", "--tokens", "15.6T")
CONTRACT = (
    "step_s",
    "mfu",
    "tokens_per_s_per_chip",
    "days",
    "chip_hours",
    "goodput",
    "usd",
    "memory_bytes_per_chip",
    "parallelism",
    "intervals",
)


def sets(**fields: object) -> list[str]:
    return [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]


def test_the_run_of_llama_3():
    answer = ask(*LLAMA)
    assert set(CONTRACT) <= set(answer)
    assert answer["feasible"]
    # Published: 30.84M chip-hours (model card), with a plan that no search had chosen.
    assert 20e6 < answer["chip_hours"] < 35e6
    assert answer["chip_hours"] == pytest.approx(answer["days"] * 24 * 16_384)
    assert answer["usd"] == pytest.approx(answer["chip_hours"] * answer["usd_per_chip_hour"])
    assert sum(answer["losses_s"].values()) == pytest.approx(answer["step_s"])
    assert sum(answer["goodput_parts"].values()) == pytest.approx(1.0)
    assert sum(answer["memory_bytes_per_chip_parts"].values()) == pytest.approx(
        answer["memory_bytes_per_chip"]
    )
    tokens = answer["tokens_per_s"] * answer["goodput"] * answer["days"] * 86_400
    assert tokens == pytest.approx(15.6e12)
    assert any("Llama 3 ended at 16M tokens" in text for text in answer["assumed"])
    best, *others = answer["plans"]
    assert (best["step_s"], best["training_days"]) == (answer["step_s"], answer["days"])
    assert all(one["training_days"] >= best["training_days"] for one in others)
    # What is usual: the published total lies in the range of published runs.
    usual, (least, most) = answer["usual"], answer["usual"]["over_best_range"]
    assert least <= usual["over_best"] <= most
    for name in ("days", "chip_hours", "usd"):
        assert usual[name] == pytest.approx(usual["over_best"] * answer[name])
    assert least < 30.84e6 / answer["chip_hours"] <= 1.02 * most
    assert ask(*RUN, "--task", "lora")["usual"] is None


def test_stages_that_wait_long_are_named():
    """DeepSeek-V3 on 2,048 chips: few micro-batches of the default batch fill 32 stages."""
    run = ("train", "deepseek-v3", "--chip", "h800_sxm", "--chips", "2048", "--tokens", "14.8T")
    assert ask(*run)["loss_shares"]["bubble"] > 0.1
    assert "Pipeline stages wait for " in dse(*run).out
    assert "stages wait" not in dse(*run, "--global-batch-tokens", "256M").out


def test_a_person_reads_it():
    said = dse(*RUN)
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    for words in ("days (", "MFU", "Where a step goes", "Memory of the fullest chip", "Rests on"):
        assert words in said.out


def test_the_model_may_be_an_option():
    assert ask("train", "--model", *RUN[1:]) == ask(*RUN)
    assert "MODEL is missing" in dse("train", *RUN[2:]).err
    assert "--chips is missing" in dse(*RUN[:4]).err


def test_a_held_plan():
    held = ("--tp", "8", "--pp", "2", "--cp", "1", *sets(virtual_stages=1, micro_batch=1))
    answer = ask(*RUN, *held, "--recompute", "full", "--zero", "3")
    plan = answer["parallelism"]
    assert (plan["tensor_parallel"], plan["pipeline_parallel"]) == (8, 2)
    assert (plan["data_parallel"], plan["zero_stage"]) == (4, 3)
    assert (plan["recompute"], plan["micro_batch"]) == ("full", 1)
    assert ask(*RUN)["step_s"] < answer["step_s"]


def test_the_memory_of_a_70b_model():
    """Claim 16: 140 + 140 + 560 = 840 GB, here of the model's 70.6B parameters."""
    asked = ("train", "llama-3-70b", "--chip", "h100_sxm", "--chips", "8")
    whole = ask(*asked)["memory_unsharded_bytes"]
    assert whole["total"] == pytest.approx(840e9 * 70.55 / 70, rel=1e-3)
    assert whole["optimizer"] == 4 * whole["weights"] == 4 * whole["gradients"]
    said = dse(*asked)
    assert "847 GB" in said.out
    assert "Not feasible" in said.out


def test_nothing_fits_is_an_answer():
    asked = ("train", "llama-3.1-405b", "--chip", "l40s", "--chips", "8", "--tokens", "1T")
    said = dse(*asked)
    assert said.code == 0
    assert "Its memory is mostly" in said.out
    answer = ask(*asked)
    assert (answer["feasible"], answer["step_s"], answer["usd"]) == (False, None, None)
    assert answer["violations"][0]["constraint"] == "memory_capacity"
    assert answer["violations"][0]["amount"] > 0.5


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        (("--pp", "200"), "chips_divide"),
        (sets(mtbf_chip_hours=0.001), "interruptions_leave_time"),
        (sets(micro_batch=7), "batch_divides"),
        (("--precision", "nvfp4"), "format_has_arithmetic"),
        (sets(sites=3, site_bandwidth="1GB/s"), "sites_divide_ranks"),
    ],
)
def test_why_nothing_fits_is_named(flags: tuple[str, ...], rule: str):
    said = dse(*RUN, *flags)
    assert said.code == 0
    assert fits(said.out, 100)
    answer = ask(*RUN, *flags)
    assert not answer["feasible"]
    assert rule in [row["constraint"] for row in answer["violations"]]


@pytest.mark.parametrize(("flag", "degree"), [("--tp", 3), ("--pp", 9), ("--cp", 3)])
def test_the_nearest_miss_of_a_degree_that_does_not_divide_is_the_plainest(flag: str, degree: int):
    """Nothing is added to what was asked: no 192 chips of 8."""
    answer, free = ask(*RUN, flag, degree), ask(*RUN)
    plan = answer["parallelism"]
    assert "chips_divide" in [row["constraint"] for row in answer["violations"]]
    used = plan["tensor_parallel"] * plan["context_parallel"] * plan["pipeline_parallel"]
    assert used == degree
    assert free["without_degrees"] is None
    assert answer["without_degrees"]["parallelism"] == free["parallelism"]
    assert answer["without_degrees"]["days"] == pytest.approx(free["days"])


def test_a_pipeline_that_keeps_up_costs_nothing_and_no_minus():
    text = dse(*RUN, "--json").out
    assert '"input_pipeline": 0.0' in text
    assert "-0.0" not in text


def test_a_slow_input_pipeline_and_interruptions_are_named():
    fast = ask(*RUN)
    half = int(fast["tokens_per_s"] / 2)
    slow = ask(*RUN, *sets(input_tokens_per_s=half))
    assert slow["tokens_per_s"] == pytest.approx(fast["tokens_per_s"] / 2, rel=1e-4)
    assert slow["loss_shares"]["input_pipeline"] == pytest.approx(0.5, rel=1e-3)
    often = ask(*RUN, *sets(mtbf_chip_hours=100))
    assert often["goodput"] < fast["goodput"]
    assert often["interruptions"]["hours_between"] == pytest.approx(100 / 64)


def test_data_centres_apart():
    sites = sets(sites=2, site_bandwidth="10Gb/s", site_latency="20ms")
    whole, apart = ask(*RUN), ask(*RUN, *sites)
    local = ask(*RUN, *sites, *sets(local_steps=100))
    assert apart["step_s"] > local["step_s"] > whole["step_s"]
    assert any("what that does to the loss is not modelled" in text for text in local["assumed"])


@pytest.mark.parametrize("chip", ["rtx4090", "a100_80_pcie", "mi250x", "tpu_v4", "gb200_nvl72"])
def test_older_and_consumer_chips(chip: str):
    answer = ask("train", "llama-3.2-1b", "--chip", chip, "--chips", "4", "--tokens", "1T")
    assert answer["feasible"]
    assert 0.05 < answer["mfu"] < 0.8


def test_many_consumer_chips_need_sites():
    asked = ("train", "llama-3-8b", "--chip", "rtx4090", "--chips", "64", "--tokens", "1T")
    found = ask(*asked, *sets(sites=8, site_bandwidth="25Gb/s"))
    assert found["feasible"]
    assert found["parallelism"]["data_parallel"] % 8 == 0
