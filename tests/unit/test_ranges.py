"""Values that are far from any of their kind: one that could be real is noted once and taken, one
that cannot be is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL, dse
from tests.cli.test_fleet import PLAN
from tests.cli.test_hypotheticals import PRICED
from tests.fuzz import kinds
from tests.fuzz.kinds import OWN_CHIP

ROOT = Path(__file__).parents[2]
HARDWARE = ROOT / "hardware"
USUAL = "far from what is usual"
SPACE = (SMALL, ("catalog", "spaces", "check", "FILE"), "space.yaml")
CHIP = (PRICED, ("catalog", "chips", "check", "FILE"), "chip.yaml")
LINKED = (PRICED + "system: {chips: 8, bandwidth_per_direction: 450 GB/s}\n", *CHIP[1:])
RACK = (
    (HARDWARE / "racks" / "hgx_air.yaml").read_text("utf-8"),
    ("catalog", "racks", "show", "FILE"),
    "rack.yaml",
)
POINT = ("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm")
OWNED = ("--set", "price_basis=owned_tco")
PRICES = (
    "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
    "h100_sxm,rental_3yr,2.1,quote,2026-11,mail,\n",
    (*POINT, "--prices", "FILE"),
    "prices.csv",
)
COSTS = (
    "chips: {h100_sxm: {price: 25000 USD}}\nlife: {value: 4 years, source: books, date: 2026-11}\n"
    "cost_of_capital: 8 %\n",
    (*POINT, *OWNED, "--costs", "FILE"),
    "costs.yaml",
)
LAWS = (
    (HARDWARE / "efficiency" / "h100_sxm.yaml").read_text("utf-8"),
    (*POINT, "--efficiency-file", "FILE"),
    "laws.yaml",
)
CONFIG = (
    (ROOT / "tests" / "data" / "configs" / "llama-3-8b.json").read_text("utf-8"),
    ("check", "FILE", "--chip", "h100_sxm"),
    "config.json",
)
CLAIM = (
    """\
title: A title
statement: A statement.
parts:
  - says: faster
    rule: at least twice
    holds: ">= 2"
    ask: estimate
    with: {model: llama-3-8b, chip: h100_sxm, tp: 1}
    take: tpot_s
    over: {with: {tp: 2}}
    scale: 1
""",
    ("claims", "check", "FILE"),
    "claim.yaml",
)
LIMITED = (
    PLAN + "limits: {power: 400 kW, budget_total: 40000000 USD}\n",
    ("fleet", "FILE"),
    "plan.yaml",
)
WHATIF = (
    "scenarios:\n  one: {chip.h100_sxm.price: 2 USD/h}\n",
    ("whatif", ROOT / "search_spaces" / "tiny.yaml", "--scenario", "FILE"),
    "scenarios.yaml",
)
POINTS = (
    "id,model,chip,weight_dtype,serving,metric,prompt_tokens,output_tokens,concurrency,n_chips,tp\n"
    "a,llama-3-8b,h100_sxm,bf16,continuous,tpot_s,1024,256,8,1,1\n"
    "b,llama-3-8b,h100_sxm,bf16,continuous,ttft_s,1024,256,8,1,1\n",
    ("estimate", "--points", "FILE", "--out", "out.csv"),
    "points.csv",
)
LAUGHS = "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 41))
RUNS = (
    "hidden_size,num_hidden_layers,num_attention_heads,vocab_size,intermediate_size,"
    "training_tokens,loss\n2048,24,16,50000,8192,20B,2.6\n",
    ("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm", "--set", "loss_runs=FILE"),
    "runs.csv",
)

OWN = (OWN_CHIP, *CHIP[1:])
OF_FUZZ = (kinds.COSTS, *COSTS[1:])
PLANNED = (kinds.PLAN, *LIMITED[1:])
NVL72 = ((HARDWARE / "racks" / "gb200_nvl72.yaml").read_text("utf-8"), *RACK[1:])
FURTHER = (POINTS, RUNS, OWN, OF_FUZZ, PLANNED, NVL72)

NOTED = {
    "memory bandwidth": (OWN, "4 TB/s", "4 GB/s", "4 TB/s was probably"),
    "a link": (OWN, "450 GB/s", "450 MB/s", "450 GB/s was probably"),
    "a latency": (OWN, "latency: 1 us", "latency: 1 ms", "1 us was probably"),
    "a memory behind": (OWN, "256 GB", "256 MB", "256 GB was probably"),
    "electricity": (OF_FUZZ, "0.06 USD", "0.00006 USD", "0.06 USD/kWh was probably"),
    "life": (OF_FUZZ, "4 years", "0.004 years", "4 years was probably"),
    "power at the meter": (OF_FUZZ, "1.1 kW", "1.1 W", "1.1 kW was probably"),
    "power of a rack": (NVL72, "value: 1200 W", "value: 1200 kW", "1.2 kW was probably"),
    "a rent": (PLANNED, "price: 2 USD/h", "price: 2000 USD/h", "2 USD/h was probably"),
    "a limit of time": (PLANNED, "tpot: 50 ms", "tpot: 50 s", "50 ms was probably"),
    "a limit in seconds": (SPACE, "ttft_s <= 2 s", "ttft_s <= 2000 s", USUAL, "2 s was probably"),
    "a limit too small": (SPACE, "ttft_s <= 2 s", "ttft_s <= 0.002 s", USUAL, "2 s was probably"),
    "a token's limit": (SPACE, "ttft_s <= 2 s", "tpot_s <= 30 s", USUAL, "30 ms was probably"),
    "none of light": (SPACE, "ttft_s <= 2 s", "tpot_s <= 0.0001 ms", USUAL),
    "a chip's price": (CHIP, "1 USD/h", "0.0015 USD/h", USUAL, "prices.rental_3yr"),
    "a price in a table": (PRICES, ",2.1,", ",0.0013,", USUAL, "usd_per_chip_hour"),
    "a basis misspelt": (PRICES, "rental_3yr", "rental_3rt", "did you mean rental_3yr?"),
    "a chip misspelt a basis": (CHIP, "rental_3yr", "rental_3rt", "did you mean rental_3yr?"),
    "a domain of millions": (LINKED, "chips: 8,", "chips: 8000000,", "links size", "1 to 20000"),
    "a chip for nothing": (COSTS, "25000 USD", "250 USD", USUAL, "chips.h100_sxm.price"),
    "a date to come": (COSTS, "date: 2026-11", "date: 2199-01", "still to come"),
    "a percent left out": (COSTS, "8 %", "1", USUAL, "0.01 was probably meant"),
    "a percent twice": (COSTS, "8 %", "8 %\nutilisation: 0.8 %", USUAL, "0.8 was probably meant"),
    "a slow kernel": (LAWS, "fixed: 3.38 us", "fixed: 3.38 ms", USUAL, "3.38 us was probably"),
    "power of a country": (LIMITED, "400 kW", "400000 MW", USUAL, "limits.power"),
    "a budget of the world": (LIMITED, "40000000 USD", "4000000000 MUSD", USUAL, "budget_total"),
    "a scenario's price": (WHATIF, "2 USD/h", "0.002 USD/h", USUAL, "2 USD/h was probably"),
    "a scenario's figure": (WHATIF, "price: 2 USD/h", "memory_bandwidth: 1500x", USUAL, "TB/s"),
    "a scenario's limit": (WHATIF, "chip.h100_sxm.price: 2 USD/h", "limit.ttft_s: 2000 s", USUAL),
    "a column misspelt": (POINTS, "weight_dtype", "weight_dtyp", "did you mean weight_dtype?"),
    "a name twice": (POINTS, "\nb,", "\na,", "'a' names several rows"),
    "a wide feed-forward": (RUNS, ",8192,", ",81920,", "40 times as wide"),
    "a vocabulary": (RUNS, ",50000,", ",50000000,", "vocab_size"),
    "a chip of a rack": (RACK, "chip: h100_sxm", "chip: h100_sxmq", "did you mean h100_sxm?"),
}
REFUSED = {
    "base sixty": (SPACE, "concurrency: [1, 16, 64]", "concurrency: 1:30", "'1:30'"),
    "hexadecimal": (SPACE, "concurrency: [1, 16, 64]", "concurrency: 0x1F", "'0x1F'"),
    "octal": (SPACE, "concurrency: [1, 16, 64]", "concurrency: 010", "'010'"),
    "underlined": (SPACE, "concurrency: [1, 16, 64]", "concurrency: 1_000", "'1_000'"),
    "a degree": (SPACE, "[1, 2, 4]", "[1, 200000]", "200000", "100000"),
    "laughter": (SPACE, "name: small", "name: small\na0: &a0 [x]\n" + LAUGHS, "unfold"),
    "a loop": (SPACE, "name: small", "name: small\na0: &a0 [*a0]", "holds itself"),
    "no basis": (PRICES, "rental_3yr", "null", "no name of a basis"),
    "a null for a name": (CHIP, "{rental_3yr:", "{~:", "prices", "None"),
    "no system": (CHIP, "id: my_chip\n", "id: my chip\n", "read 'my chip'"),
    "a year": (CHIP, "name: My chip", "name: My chip\nyear: 26", "read 26", "1,990"),
    "no such month": (PRICES, "2026-11", "2026-60", "not a date"),
    "digits of a day": (COSTS, "date: 2026-11", "date: 2026-110", "not a date"),
    "an exponent": (COSTS, "date: 2026-11", "date: 2026-1e+301", "not a date"),
    "digits of others": (RUNS, "\n2048,", "\n２０４８,", "hidden_size"),
    "thousands": (RUNS, "\n2048,", "\n2_048,", "hidden_size"),
    "an error of laws": (LAWS, "error: 0.0", "error: 10.0", "error"),
    "no scale": (CLAIM, "scale: 1", "scale: 0", "greater than 0"),
    "over itself": (CLAIM, "over: {with: {tp: 2}}", "over: {with: {tp: 1}}", "what the part asks"),
}


def said(how: tuple, old: str, new: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    text, words, name = how
    assert old in text
    path = folder / name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    monkeypatch.chdir(folder)
    return dse(*(str(word).replace("FILE", str(path)) for word in words))


@pytest.mark.parametrize("what", NOTED)
def test_what_could_be_real_is_noted(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    how, old, new, *parts = NOTED[what]
    found = said(how, old, new, tmp_path, monkeypatch)
    assert found.code in (0, 3), found.err
    notes = [line for line in found.err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1, found.err
    assert all(part in notes[0] for part in parts), notes


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    how, old, new, *parts = REFUSED[what]
    found = said(how, old, new, tmp_path, monkeypatch)
    assert found.code == 2, found.out
    assert all(part in found.err for part in parts), found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize(
    "how", [SPACE, CHIP, LINKED, RACK, PRICES, COSTS, LAWS, CONFIG, LIMITED, WHATIF, *FURTHER]
)
def test_the_same_without_a_mistake_is_taken_without_a_word(
    how: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = said(how, "", "", tmp_path, monkeypatch)
    assert found.code in (0, 3), found.err
    assert "note: " not in found.err


def test_a_format_of_weights_is_float_or_int(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = json.loads(CONFIG[0])
    weights = {"num_bits": 8, "type": "2030-01-01"}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    config["quantization_config"] = {"quant_method": "compressed-tensors", "config_groups": groups}
    found = said((json.dumps(config), *CONFIG[1:]), "", "", tmp_path, monkeypatch)
    assert found.code == 2
    assert "weights.type" in found.err
    assert "float or int" in found.err
