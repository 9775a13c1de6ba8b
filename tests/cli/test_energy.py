"""Energy of `dse estimate`: the table of --detail, tokens per joule by batch, power caps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.accuracy.validate import energy
from dse.catalog import load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.schema.constants import EnergyConstants
from dse.schema.dtypes import CODE
from tests.cli.conftest import ask, dse
from tests.helpers import CHIPS, deploy, run, workload
from tools.fits.published import published_energy

POINT = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--concurrency", 32)


def test_explain_as_json_adds_up() -> None:
    document = ask("estimate", "--detail", *POINT)
    rows = document["energy"]["joules_per_output_token"]
    assert [row["level"] for row in rows] == [
        "arithmetic", "on_chip", "memory", "links", "network", "idle",
    ]  # fmt: skip
    joules = sum(row["joules"] for row in rows)
    assert joules == pytest.approx(document["joules_per_output_token"], rel=1e-9)
    for row in rows:
        assert row["prefill"] + row["decode"] == pytest.approx(row["joules"], rel=1e-9)
    assert document["energy"]["clock"] == {"prefill": None, "decode": None}
    assert document["watts_per_chip"] < 700
    known = document["provenance"]
    assert known["watts_per_chip"] == "assumed"
    low, high = document["intervals"]["joules_per_output_token"]
    assert low < document["joules_per_output_token"] < high


def test_a_power_cap_slows_and_is_said() -> None:
    full = ask("estimate", *POINT)
    capped = ask("estimate", *POINT, "--set", "power_cap=400W")
    assert capped["power_cap_w"] == 400
    assert capped["watts_per_chip"] <= 400
    assert capped["prefill_s"] > full["prefill_s"]
    assert capped["tokens_per_joule"] > full["tokens_per_joule"]
    assert any("power cap" in sentence for sentence in capped["assumed"])
    said = dse("estimate", "--detail", *POINT, "--set", "power_cap=400W")
    assert "each at 400 W at most" in said.out
    assert "The cap leaves" in said.out


def test_a_chip_without_a_rated_power() -> None:
    point = ("--model", "llama-3-8b", "--chip", "tpu_v6e", "--tp", 4)
    answer = ask("estimate", *point)
    assert answer["joules_per_output_token"] is None
    assert answer["watts_per_chip"] is None
    assert "no power figure" in dse("estimate", "--detail", *point).out
    said = dse("estimate", *point, "--set", "power_cap=200W")
    assert said.code == 2
    assert "has no tdp" in said.err


def test_disaggregated_pools_have_energy() -> None:
    answer = ask(
        "estimate --serving disaggregated --model llama-3-8b --chip h100_sxm --set "
        "prefill_workers=2 --set decode_workers=2 --concurrency 64"
    )
    assert answer["provenance"]["watts_per_chip"] == "assumed"
    drawn = answer["watts_per_chip"] * 4 / answer["output_tokens_per_s"]
    assert drawn == pytest.approx(answer["joules_per_output_token"], rel=0.02)
    assert 142 < answer["watts_per_chip"] < 700


# Energy: laws of physics, a step by hand, published figures, caps, and bad input.


CATALOG = load_catalog()
ON = compile_machines(CATALOG, CHIPS)
DECODE = workload(16, 512, "static")
PREFILL = workload(8192, 1, "static")


def capped(watts: float) -> Machines:
    """H100 alone is asked for below; chips rated below the cap keep their rated power."""
    return compile_machines(CATALOG, CHIPS, power_cap_w=watts)


def levels_of(found: Metrics, i: int = 0) -> dict[str, float]:
    energy = found.performance.energy
    output = found.values["joules_per_output_token"][i] / energy.joules[i]
    levels = ("arithmetic", "on_chip", "memory", "links", "network")
    both = {
        name: float(getattr(energy.prefill, name)[i] + getattr(energy.decode, name)[i])
        for name in levels
    }
    return {name: joules * output for name, joules in (both | {"idle": energy.idle[i]}).items()}


def test_one_dense_decode_step_by_hand() -> None:
    """Llama-3-8B in 16 bits on one H100, 4 requests of 1,024 tokens: 7.5e9 weights are read once a
    step (32 layers and the output head), 128 KiB of cache a token, at 7.03 + 1.88 pJ/bit."""
    load = workload(768, 512, "static")  # the mean context of the answer is 1,024
    found = run(deploy("llama-3-8b", "h100_sxm", concurrency=4), load, ON)
    layer = 4096 * (4096 + 1024 + 1024) + 4096 * 4096 + 3 * 4096 * 14336
    weights = 32 * layer + 128256 * 4096
    cache = 4 * 1024 * 32 * 2 * 1024 * 2
    bytes_ = 2 * weights + cache
    ledger = found.performance.detail.decode_ledger
    assert ledger.bytes[0] == pytest.approx(bytes_, rel=0.01)  # the rest is activations
    # 2 operations a weight and row, and 4 x the width of all query heads a cached token and layer.
    flops = 4 * 2 * weights + 4 * 4 * 1024 * 4096 * 32
    assert ledger.peak_s[0] == pytest.approx(flops / 989e12, rel=0.01)
    # 511 of the 512 tokens are decoded; each step serves 4 of them.
    memory_j = 7.03e-12 * 8 * bytes_ * 511 / 512 / 4
    prefill_j = found.performance.energy.prefill.memory[0] / 512
    assert levels_of(found)["memory"] == pytest.approx(memory_j + prefill_j, rel=0.01)
    idle_j = 142 / found.values["output_tokens_per_s"][0]
    assert levels_of(found)["idle"] == pytest.approx(idle_j, rel=1e-9)


def test_a_large_product_draws_the_rated_power() -> None:
    """C a + idle + (m + s) x bandwidth of the product = rated power, for every chip."""
    power = ON.power
    for k, chip in enumerate(CHIPS):
        spec = CATALOG.chip(chip)
        fraction = float(ON.laws["gemm"].floor_of_compute[k, CODE["bf16"]])
        bytes_per_s = fraction * spec.peak_flops_per_s["bf16"] * 3 / 8192
        per_byte = power.memory_j_per_byte[k] + power.on_chip_j_per_byte[k]
        watts = (
            power.idle_w[k]
            + (power.arithmetic_w[k] + power.operand_w[k]) * fraction
            + per_byte * bytes_per_s
        )
        expected = spec.matmul_w if spec.matmul_w is not None else spec.tdp_w
        if expected is not None:
            assert watts == pytest.approx(expected, rel=1e-9), chip


@pytest.mark.parametrize(
    ("model", "chip", "axes"),
    [
        ("llama-3-8b", "h100_sxm", {}),
        ("llama-3-70b", "b200_sxm", {"tensor_parallel": 4, "pipeline_parallel": 2}),
        ("deepseek-v3", "h200_sxm", {"tensor_parallel": 1, "data_parallel": 8}),
        ("mixtral-8x7b", "mi300x", {"tensor_parallel": 2, "replicas": 3}),
    ],
)
@pytest.mark.parametrize("serving", ["continuous", "static", "offline"])
def test_levels_add_up_and_power_times_time_is_energy(model, chip, axes, serving) -> None:
    found = run(deploy(model, chip, concurrency=24, **axes), workload(1024, 256, serving), ON)
    joules = found.values["joules_per_output_token"][0]
    parts = levels_of(found)
    assert sum(parts.values()) == pytest.approx(joules, rel=1e-12)
    assert min(parts.values()) >= 0.0
    assert found.values["tokens_per_joule"][0] == pytest.approx(1 / joules, rel=1e-12)
    drawn = found.values["watts_per_chip"] * found.values["chips"]
    per_token = drawn[0] / found.values["output_tokens_per_s"][0]
    assert per_token == pytest.approx(joules - parts["network"], rel=1e-12)
    moved = parts["on_chip"] + parts["memory"] + parts["links"] + parts["network"]
    share = found.values["energy_data_movement_share"][0]
    assert share == pytest.approx(moved / joules, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    chip=st.sampled_from([name for name in CHIPS if CATALOG.chip(name).tdp_w]),
    model=st.sampled_from(["llama-3-8b", "mixtral-8x7b", "gpt-oss-120b"]),
    tp=st.sampled_from([1.0, 2.0, 8.0]),
    concurrency=st.sampled_from([1.0, 16.0, 512.0]),
    prompt=st.sampled_from([16.0, 2048.0, 30000.0]),
    serving=st.sampled_from(["continuous", "static"]),
    share=st.floats(0.3, 1.0),
)
def test_power_is_between_idle_and_the_cap(
    chip, model, tp, concurrency, prompt, serving, share
) -> None:
    k = CHIPS.index(chip)
    cap = share * float(ON.power.rated_w[k])
    batch = deploy(model, chip, tensor_parallel=tp, concurrency=concurrency)
    found = run(batch, workload(prompt, 128, serving), capped(cap))
    watts = found.values["watts_per_chip"][0]
    assert ON.power.idle_w[k] <= watts * (1 + 1e-9)
    assert watts <= cap * (1 + 1e-9)
    energy = found.performance.energy
    for of_phase in (energy.prefill_w[0], energy.decode_w[0]):
        assert of_phase <= cap * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@example(model="llama-3-8b", concurrency=32.0, prompt=4096.0, caps=[559.0, 566.0])
@given(
    model=st.sampled_from(["llama-3-8b", "mixtral-8x7b"]),
    concurrency=st.sampled_from([1.0, 32.0, 256.0]),
    prompt=st.sampled_from([16.0, 4096.0]),
    caps=st.tuples(st.floats(180, 700), st.floats(180, 700)).map(sorted),
)
def test_a_lower_cap_is_never_faster(model, concurrency, prompt, caps) -> None:
    batch = deploy(model, "h100_sxm", tensor_parallel=2, concurrency=concurrency)
    low, high = (run(batch, workload(prompt, 128), capped(cap)) for cap in caps)
    for metric in ("prefill_s", "decode_step_s", "tpot_s"):
        assert low.values[metric][0] >= high.values[metric][0] * (1 - 1e-12), metric
    # Requests whose own prompt is quicker are back a little sooner: one more often meets another's.
    assert low.values["ttft_s"][0] >= high.values["ttft_s"][0] * (1 - 1e-4)


def test_a_cap_at_the_rated_power_changes_nothing() -> None:
    batch = deploy("llama-3-8b", "h100_sxm", concurrency=64)
    on = compile_machines(CATALOG, CHIPS)
    at = capped(float(np.nanmax(on.power.rated_w)))
    assert not on.power.capped
    one, other = run(batch, workload(2048, 512), on), run(batch, workload(2048, 512), at)
    for name, array in one.values.items():
        assert array.tobytes() == other.values[name].tobytes(), name


def test_a_cap_slows_prefill_more_than_memory_bound_decode() -> None:
    """At 400 of 700 W."""
    slower = {}
    for name, load, metric in (("prefill", PREFILL, "prefill_s"), ("decode", DECODE, "tpot_s")):
        batch = deploy("llama-3-8b", "h100_sxm", concurrency=4)
        full, low = (run(batch, load, on).values[metric][0] for on in (ON, capped(400.0)))
        slower[name] = low / full
    assert slower["decode"] < 1.01
    assert 1.15 < slower["prefill"] < 1.5


def test_dynamic_power_falls_with_the_cube_of_the_clock() -> None:
    """A prefill that is all arithmetic takes 1 / f of the time for f^2 of the energy."""
    batch = deploy("llama-3-8b", "h100_sxm", concurrency=8)
    full, low = (run(batch, PREFILL, on) for on in (ON, capped(450.0)))
    clock = low.performance.detail.prefill_ledger.clock
    assert clock is not None
    assert 0.5 < clock[0] < 0.95
    one, other = (found.performance.energy.prefill.arithmetic[0] for found in (full, low))
    assert other / one == pytest.approx(clock[0] ** 2, rel=1e-9)
    time = low.values["prefill_s"][0] / full.values["prefill_s"][0]
    assert 1.0 < time <= 1.0 / clock[0] * (1 + 1e-9)


def test_a_capped_batch_equals_its_rows() -> None:
    on = capped(500.0)
    count = np.array([1.0, 8.0, 64.0, 256.0])
    batch = deploy("mixtral-8x7b", "h100_sxm", tensor_parallel=2.0, concurrency=list(count))
    whole = run(batch, workload(1024, 256), on)
    for i in range(len(count)):
        one = run(batch[i : i + 1], workload(1024, 256), on)
        for name, array in whole.values.items():
            assert array[i : i + 1].tobytes() == one.values[name].tobytes(), name


def test_joules_fall_with_the_batch_in_decode() -> None:
    """The same weights are read for all: down to a twentieth, and never up again."""
    count = [2.0**k for k in range(8)]
    batch = deploy("llama-3-70b", "h100_sxm", tensor_parallel=8.0, concurrency=count)
    joules = run(batch, DECODE, ON).values["joules_per_output_token"]
    assert (np.diff(joules) < 0.0).all()
    assert joules[0] > 20 * joules[-1]


def test_replicas_without_work_draw_their_idle_power() -> None:
    """Two requests on eight replicas: six draw 142 W for nothing."""
    batch = deploy("llama-3-8b", "h100_sxm", replicas=[2.0, 8.0], concurrency=2.0)
    busy, idle = run(batch, workload(512, 256), ON).values["joules_per_output_token"]
    rate = run(batch, workload(512, 256), ON).values["output_tokens_per_s"]
    assert idle - busy == pytest.approx(6 * 142 / rate[1], rel=1e-9)


def test_few_arrivals_cost_idle_power() -> None:
    backend = CATALOG.backends["generic"]
    batch = deploy("llama-3-8b", "h100_sxm")

    def at(rate: float) -> Metrics:
        load = Workload.of(512, 256, "poisson", backend, requests_per_second=rate)
        return evaluate(batch, load, ON)

    rare, often = at(0.01), at(10.0)
    assert rare.values["watts_per_chip"][0] == pytest.approx(142, rel=0.03)
    assert levels_of(rare)["idle"] / sum(levels_of(rare).values()) > 0.95
    assert often.values["watts_per_chip"][0] > 300
    assert (
        often.values["joules_per_output_token"][0] < rare.values["joules_per_output_token"][0] / 50
    )


def test_prompts_that_share_a_step_read_the_weights_once() -> None:
    """Short prompts beside decodes must not pay for the weights again: the memory's energy of a
    mixed scheduler stays near that of its decode steps."""
    backend = CATALOG.backends["generic"]
    assert backend.scheduler == "mixed"
    batch = deploy("llama-3-8b", "h100_sxm", concurrency=64)
    found = run(batch, workload(32, 32), ON).performance.energy
    assert found.prefill.memory[0] < 0.2 * found.decode.memory[0]


def test_a_figure_that_nobody_measured_is_named() -> None:
    assert CATALOG.energy.assumed(CATALOG.chip("h100_sxm")) == []
    (sentence,) = CATALOG.energy.assumed(CATALOG.chip("a100_80_sxm"))
    assert "idle power 76 W, 19% of its rated power" in sentence
    (memory,) = CATALOG.energy.assumed(CATALOG.chip("rtx5090"))[1:]
    assert "GDDR7" in memory


def test_the_idle_share_is_the_median_of_the_measured_chips() -> None:
    shares = [c.idle_w / c.tdp_w for c in CATALOG.chips.values() if c.idle_w and c.tdp_w]
    assert len(shares) == 7
    assert round(float(np.median(shares)), 2) == CATALOG.energy.value("idle_share")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("value: 7.5 pJ/bit\n  kind: claimed", "value: 7.5 pJ\n  kind: claimed", "links"),
        ("value: '0.19'", "value: '1.9'", "idle_share"),
        ("kinds: [GDDR6X]", "kinds: [GDDR6]", "stands twice"),
        ("on_chip:", "on_chips:", "on_chip"),
        ("value: 35 pJ/bit", "value: 0 pJ/bit", "network"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = (hardware_dir() / "energy.yaml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "energy.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        EnergyConstants.load(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


# Jouppi et al. 2021, Table 2: what 8 of 64 bits cost over an int8 multiply of 0.07 pJ.
@pytest.mark.parametrize(
    ("memory", "ratio"), [("1 MB SRAM", 25), ("HBM2", 446), ("HBM2, upper", 804), ("DDR4", 2321)]
)
def test_reading_against_multiplying(memory: str, ratio: float) -> None:
    found = energy(catalog=CATALOG)
    int8, fp16, fp32 = (found[f"{one} multiply, 7 nm"][memory] for one in ("int8", "fp16", "fp32"))
    assert int8 == pytest.approx(ratio, rel=0.01)
    assert fp32 < fp16 < int8


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_prefill_draws_what_was_measured_on_h200(dtype: str) -> None:
    """662.8 W in 16-bit and 661.7 W in 8-bit arithmetic (serialalice.pt, June 2026), of 700."""
    batch = deploy("llama-3-8b", "h200_sxm", weight_dtype=dtype, concurrency=8)
    watts = run(batch, PREFILL, ON).performance.energy.prefill_w[0]
    assert watts == pytest.approx(662, rel=0.15)


def test_published_watts_and_joules() -> None:
    """Eight figures that no fit has seen: most inside the interval, none beyond a factor of 2.2."""
    rows = published_energy(CATALOG)
    assert len(rows) == 8
    assert rows["value"].between(rows["low"], rows["high"]).sum() >= 6
    assert rows["ratio"].between(1 / 2.2, 2.2).all()
