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
    # Published: 30.84M chip-hours (model card).
    assert answer["chip_hours"] == pytest.approx(30.84e6, rel=0.15)
    low, high = answer["intervals"]["chip_hours"]
    assert low < 30.84e6 < high
    assert answer["chip_hours"] == pytest.approx(answer["days"] * 24 * 16_384)
    assert answer["usd"] == pytest.approx(answer["chip_hours"] * answer["usd_per_chip_hour"])
    assert sum(answer["losses_s"].values()) == pytest.approx(answer["step_s"])
    assert sum(answer["goodput_parts"].values()) == pytest.approx(1.0)
    assert sum(answer["memory_bytes_per_chip_parts"].values()) == pytest.approx(
        answer["memory_bytes_per_chip"]
    )
    over, (least, most) = answer["whole_run"]["over_steps"], answer["whole_run"]["range"]
    assert 1.0 <= least < over < most
    tokens = answer["tokens_per_s"] * answer["goodput"] * answer["days"] / over * 86_400
    assert tokens == pytest.approx(15.6e12)
    assert any("Llama 3 ended at 16M tokens" in text for text in answer["assumed"])
    usual, *others = answer["plans"]
    assert (usual["step_s"], usual["training_days"]) == (answer["step_s"], answer["days"])
    assert answer["best"]["days"] == min(one["training_days"] for one in others)
    assert answer["best"]["days"] < answer["days"]
    assert answer["best"]["chip_hours"] == pytest.approx(answer["best"]["days"] * 24 * 16_384)
    lora = ask(*RUN, "--task", "lora")
    assert lora["whole_run"]["over_steps"] == 1.0


# Published tokens per second and chip of current releases, with the software that they name
# (docs.nvidia.com/nemo/megatron-bridge, performance summary).
QWEN = (
    ("h100_sxm", 16, "fp8", 8_960, "megatron-eager"),
    ("b200_sxm", 8, "mxfp8", 27_136, "megatron"),
    ("gb200_nvl72", 8, "mxfp8", 40_960, "megatron-fused"),
)


@pytest.mark.parametrize(("chip", "chips", "precision", "published", "stack"), QWEN)
def test_what_is_current_for_a_model_on_a_chip(
    chip: str, chips: int, precision: str, published: float, stack: str
):
    batch = 4096 * (1024 if chips == 16 else 512)
    run = ("train", "qwen3-30b-a3b", "--chip", chip, "--chips", chips, "--precision", precision)
    run = (*run, "--sequence-length", 4096, "--global-batch-tokens", batch)
    answer = ask(*run)
    assert answer["stack"] == stack
    assert answer["plan_of"] is not None
    assert answer["tokens_per_s_per_chip"] == pytest.approx(published, rel=0.05)
    low, high = answer["intervals"]["tokens_per_s_per_chip"]
    assert low < published < high
    said = dse(*run).out
    assert f"current stack {stack}" in said
    assert "Usual plan, of Megatron-Bridge" in " ".join(said.split())
    stock = ask(*run, "--tuning", "stock")
    assert (stock["stack"], stock["plan_of"]) == ("generic", None)
    held = ask(*run, *sets(stack="megatron"))
    assert held["stack"] == "megatron"


def test_the_order_of_chips_is_the_published_one():
    """By the published rates GB200 trains a token for the fewest chip-seconds, then B200."""
    run = ("train", "qwen3-30b-a3b", "--chips", 64, "--tokens", "1T")
    rates = [
        ask(*run, "--chip", chip, "--precision", precision)["tokens_per_s_per_chip"]
        for chip, _, precision, _, _ in QWEN
    ]
    assert rates == sorted(rates)


def test_a_model_that_nobody_published_keeps_to_habits_with_a_wider_interval():
    run = ("--chip", "h100_sxm", "--chips", "64", "--tokens", "1T")
    known, other = (ask("train", name, *run) for name in ("llama-3-8b", "mistral-7b"))
    assert known["plan_of"]
    assert other["plan_of"] is None
    plan = other["parallelism"]
    assert plan["zero_stage"] <= 1
    assert plan["recompute"] in ("none", "selective")
    assert other["memory_bytes_per_chip"] <= 0.8 * other["memory_capacity_bytes_per_chip"]
    near, far = (
        one["intervals"]["step_s"][1] / one["intervals"]["step_s"][0] for one in (known, other)
    )
    assert far > near


@pytest.mark.parametrize(
    ("tokens", "basis"), [("1T", "on_demand"), ("60T", "rental_1yr"), ("300T", "rental_3yr")]
)
def test_the_price_fits_the_length_of_the_run(tokens: str, basis: str):
    run = ("train", "llama-3-8b", "--chip", "h100_sxm", "--chips", "512", "--tokens", tokens)
    answer = ask(*run)
    days = answer["days"]
    assert basis == ("on_demand" if days < 91 else "rental_1yr" if days < 365 else "rental_3yr")
    assert answer["price_basis"] == basis
    assert answer["owned_usd"] == ask(*run, "--price-basis", "owned_tco")["usd"]
    assert ask(*run, "--price-basis", "spot")["price_basis"] == "spot"


def test_a_tier_without_a_price_is_named():
    run = ("train", "llama-3-8b", "--chip", "b200_sxm", "--chips", "64", "--tokens", "15T")
    answer = ask(*run)
    assert (answer["price_basis"], answer["usd"]) == ("rental_1yr", None)
    said = " ".join(dse(*run).out.split())
    assert "b200_sxm has no price on rental_1yr, which fits the length of the run" in said
    assert "rental_3yr" in answer["priced"]


def test_a_deadline_finds_the_fewest_chips():
    run = ("train", "llama-3-8b", "--chip", "h100_sxm", "--tokens", "1T")
    found = ask(*run, "--within", "10days")
    chips, smaller = found["chips"], {4: 7 / 8, 5: 4 / 5, 6: 5 / 6, 7: 6 / 7}
    assert found["days"] <= 10.0
    assert found == ask(*run, "--chips", chips)
    octave = 4 * chips // 2 ** (chips.bit_length() - 1)
    fewer = ask(*run, "--chips", round(chips * smaller[octave]))
    assert not fewer["feasible"] or fewer["days"] > 10.0


def test_stages_that_wait_long_are_named():
    """DeepSeek-V3 on 2,048 chips: few micro-batches of the default batch fill 16 stages."""
    run = ("train", "deepseek-v3", "--chip", "h800_sxm", "--chips", "2048", "--tokens", "14.8T")
    run = (*run, "--pp", "16", *sets(virtual_stages=1))
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
    answer = ask(*RUN, *held, "--recompute", "full", "--set", "zero=3")
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
