"""The kinds of input: files with the commands that read them, stored studies, and flags."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.cli.conftest import SMALL, dse
from tests.fuzz.mistakes import Dice, damage, place, spoiled

ROOT = Path(__file__).parents[2]
Words = Sequence[object]
MODEL = ("--model", "llama-3-8b")
CHIP = ("--chip", "h100_sxm")
PLAN = """\
name: small
title: A small fleet
quarters: 2
price_basis: rental_3yr
demand:
  - {name: chat, model: llama-3-8b, tokens_per_day: 600M, prompt_tokens: 2048, output_tokens: 512,
     ttft: 2 s, tpot: 50 ms, peak_over_average: 3, growth_per_quarter: 20 %}
chips:
  - chip: h100_sxm
  - {chip: mi300x, server: 8, rent: {price: 2 USD/h, term_quarters: 12, source: a quote}}
spares: {servers: 1}
"""
OFFERS = """\
name: offers
title: Offers of many kinds
quarters: 3
price_basis: rental_3yr
used_after_end: 60 %
uncertainty: {demand: 30 %, prices: 25 %, late: 10 %}
demand:
  - {name: chat, model: llama-3-8b, requests_per_second: 20, prompt_tokens: 1024,
     output_tokens: 256, ttft: 1 s, percentile: 90, tpot: 30 ms, weight_dtype: [bf16, fp8]}
chips:
  - {chip: a100_80_sxm, classes: [chat]}
  - chip: h100_sxm
    rent: [{basis: on_demand, price: 3 USD/h, term_quarters: 1}, {site: provider}]
    buy: {lead_quarters: 1, chips_per_quarter: 64, price_change_per_quarter: -3 %}
stock:
  - {chip: a100_80_sxm, chips: 16}
costs: {life: 4 years, region: ohio, chips: {a100_80_sxm: {server_price: 24875 USD}}}
limits: {power: 400 kW, chips: 512}
spares: {share: 2 %}
"""
COSTS = """\
electricity: 0.06 USD/kWh
cost_of_capital: 8 %
utilisation: 80 %
life: {value: 4 years, source: our books, date: 2026-11}
chips:
  h100_sxm: {price: 25000 USD, power: 1.1 kW}
lines:
  software licence: shipped
  support: 800 USD/server-month
  installation: {value: 4000 USD/rack, source: a quote, date: 2026-10}
  storage: {value: 0.02 USD/GB-month, amount: 1 TB}
  insurance: 0.7 %
"""
REGION = """\
region: fjord
carbon: 50 g/kWh
regions:
  fjord: {electricity: 0.04 USD/kWh, carbon: 20 g/kWh, source: our contract, date: 2026-10}
"""
OWN_CHIP = """\
id: my_chip
name: My chip
efficiency: class_gpu
memory_capacity: 96 GB
memory_bandwidth: 4 TB/s
peak_bf16: 1000 TFLOP/s
peak_fp8: {value: 2000 TFLOP/s, kind: claimed, source: data sheet, date: 2026-11}
tdp: 700 W
extra_memories: [{kind: host, capacity: 256 GB, bandwidth: 64 GB/s}]
system: {chips: 8, bandwidth_per_direction: 450 GB/s, latency: 1 us, scale_out_bandwidth: 50 GB/s}
prices: {rental_3yr: 1.5 USD/h}
"""
SCENARIOS = """\
scenarios:
  cheaper H100: {chip.h100_sxm.price: -50%}
  long prompts: {workload.prompt_tokens: 8192}
  faster answers:
    limit.tpot_s: 20 ms
    chip.all.memory_bandwidth: 1.5x
"""
CLAIM = """\
title: The floor
statement: A step takes no less than its bytes over the bandwidth.
parts:
  - says: dense models
    rule: the time per token is at least the bytes of all weights over the bandwidth
    holds: ">= 1"
    ask: estimate
    with: &floor {chip: h200_sxm, tp: 8, concurrency: 1, weight_dtype: bf16}
    take: tpot_s
    scale: 4.8e+12
    over: {take: memory_bytes_per_chip_parts.weights, with: {weight_dtype: bf16}}
    each: {model: [llama-3-8b], concurrency: [1, 64]}
"""
TRACE = "time,prompt,output\n0,512,64\n0.5,1024,128\n9.5,300,32\n"
# A trace, a workload of two kinds of requests, prices to own, in a space.
MIXED = SMALL.replace(
    "workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous, backend: current}",
    "workloads:\n"
    "  - {name: chat, weight: 0.7, prompt_tokens: 1000, output_tokens: 250, serving: static}\n"
    "  - {name: papers, weight: 0.3, prompt_tokens: 6000, output_tokens: 400, serving: static}",
).replace("price_basis: rental_3yr", "price_basis: owned_tco\ncosts: {electricity: 0.1 USD/kWh}")


@dataclass(frozen=True)
class Kind:
    """A file: the texts that are spoiled, its name, the commands that read it; `share`: how many
    inputs of a round are of it. `beside` puts what else the commands need into its folder."""

    texts: Callable[[], Sequence[str]]
    name: str
    commands: Sequence[Callable[[Path], Words]]
    share: int = 12
    beside: Callable[[Path], object] = lambda folder: None


def _shipped(*patterns: str, most: int = 20_000) -> Callable[[], Sequence[str]]:
    @cache
    def texts() -> Sequence[str]:
        found = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
        return [path.read_text("utf-8")[:most] for path in found]

    return texts


def _lines(path: str, rows: slice) -> Callable[[], Sequence[str]]:
    @cache
    def texts() -> Sequence[str]:
        head, *body = (ROOT / path).read_text("utf-8").splitlines(keepends=True)
        return ["".join([head, *body[rows]])]

    return texts


def _chips() -> Sequence[str]:
    """Shipped chips under ids of their own."""
    texts = _shipped("hardware/chips/*.yaml")()
    return [re.sub("^id: ", "id: my_", text, count=1, flags=re.MULTILINE) for text in texts]


def _study(name: str) -> Callable[[], Sequence[str]]:
    """A document of a finished study, without what differs from one run to another."""

    @cache
    def texts() -> Sequence[str]:
        folder = _finished("journal")
        document = json.loads((folder / "out" / name).read_text("utf-8"))
        if "seconds" in document:
            document["seconds"] = dict.fromkeys(document["seconds"], 0.5)
        text = json.dumps(document, indent=1)
        return [text.replace(str(folder), "/tmp/study")]  # noqa: S108 - a text

    return texts


def _other(name: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copy(_finished("journal") / "out" / name, folder)


def _sample(storage: str = "journal") -> Path:
    return _finished(storage) / "out"


def _small(folder: Path) -> object:
    return (folder / "small.yaml").write_text(SMALL, "utf-8")


_OWNED = ("--set", "price_basis=owned_tco")
KINDS: Mapping[str, Kind] = {
    "space": Kind(_shipped("search_spaces/*.yaml"), "space.yaml",
                  [lambda file: ("catalog", "spaces", "show", file),
                   lambda file: ("catalog", "spaces", "check", file)]),
    "study": Kind(lambda: [SMALL, MIXED], "space.yaml",
                  [lambda file: ("run", file, "--out", file.parent / "out", "--trials", 60)], 3),
    "chip": Kind(_chips, "chip.yaml",
                 [lambda file: ("estimate", *MODEL, "--chip", file)]),
    "own chip": Kind(lambda: [OWN_CHIP], "chip.yaml",
                     [lambda file: ("estimate", *MODEL, "--chip", file, "--tp", 2),
                      lambda file: ("catalog", "chips", "check", file),
                      lambda file: ("catalog", "chips", "show", file),
                      lambda file: ("compare", "h100_sxm", file),
                      lambda file: ("check", "llama-3-8b", "--chip", file),
                      lambda file: ("train", "llama-3-8b", "--chip", file, "--chips", 8,
                                    "--tokens", "1B")], 16),
    "heavy chip": Kind(lambda: [OWN_CHIP], "chip.yaml",
                       [lambda file: ("whatif", *MODEL, "--chip", file, "--sensitivities"),
                        lambda file: ("scale", *MODEL, "--chip", file, "--chips-up-to", 16)], 2),
    "rack": Kind(_shipped("hardware/racks/*.yaml"), "rack.yaml",
                 [lambda file: ("catalog", "racks", "show", file),
                  lambda file: ("estimate", *MODEL, "--chip", "gb200_nvl72", "--tp", 8,
                               "--set", "scale_up_domain=64", "--set", f"rack={file}")]),
    "plan": Kind(lambda: [PLAN, OFFERS], "plan.yaml", [lambda file: ("fleet", file)], 8),
    "plans": Kind(lambda: [PLAN], "plan.yaml",
                  [lambda file: ("fleet", file, "--service-level", "80%"),
                   lambda file: ("compare", file.parent / "small.yaml", file)], 3,
                  lambda folder: (folder / "small.yaml").write_text(PLAN, "utf-8")),
    "costs": Kind(lambda: [COSTS, REGION], "costs.yaml",
                  [lambda file: ("estimate", *MODEL, *CHIP, "--costs", file, *_OWNED),
                   lambda file: ("catalog", "prices", "list", "--basis", "owned_tco", "--costs",
                                 file)], 10),
    "prices": Kind(_lines("hardware/prices.csv", slice(60, 80)), "prices.csv",
                   [lambda file: ("estimate", *MODEL, *CHIP, "--prices", file),
                    lambda file: ("catalog", "prices", "list", "--prices", file),
                    lambda file: ("fleet", *MODEL, *CHIP, "--demand", "1B/day",
                                  "--prompt-tokens", 1024, "--output-tokens", 128, "--prices",
                                  file)]),
    "config": Kind(_shipped("tests/data/configs/*.json", most=5000), "config.json",
                   [lambda file: ("estimate", "--model", file, "--chip", "b200_sxm", "--tp", 8),
                    lambda file: ("check", file, "--chip", "h200_sxm", "--tp", 4)], 20),
    "points": Kind(_lines("hardware/measurements/inference.csv", slice(40, 44)), "in.csv",
                   [lambda file: ("estimate", "--points", file, "--out", file.parent / "o")], 6),
    "runs": Kind(_lines("hardware/measurements/training.csv", slice(4)), "runs.csv",
                 [lambda file: ("validate", "--data", file)], 1),
    "trace": Kind(lambda: [TRACE], "trace.csv",
                  [lambda file: ("fleet", *MODEL, *CHIP, "--set", "window=4s",
                                 "--trace", file)], 3),
    "loss runs": Kind(_shipped("search_spaces/loss_runs.csv"), "runs.csv",
                      [lambda file: ("estimate", *MODEL, *CHIP, "--set", f"loss_runs={file}")], 16),
    "laws": Kind(_shipped("hardware/efficiency/h100_sxm.yaml"), "laws.yaml",
                 [lambda file: ("estimate", *MODEL, *CHIP, "--efficiency-file", file),
                  lambda file: ("catalog", "chips", "show", "h100_sxm", "--efficiency-file",
                                file)]),
    "scenarios": Kind(lambda: [SCENARIOS], "scenarios.yaml",
                      [lambda file: ("whatif", file.parent / "small.yaml", "--scenario", file)], 6,
                      _small),
    "claim": Kind(lambda: [CLAIM], "claim.yaml", [lambda file: ("claims", "check", file)], 6),
    "front": Kind(_study("front.json"), "front.json",
                  [lambda file: ("estimate", file.parent, "fastest"),
                   lambda file: ("export", file.parent, "cheapest", "--format", "vllm"),
                   lambda file: ("compare", file.parent, _sample())], beside=_other("study.json")),
    "study.json": Kind(_study("study.json"), "study.json",
                       [lambda file: ("estimate", file.parent, "knee"),
                        lambda file: ("export", file.parent, "start", "--format", "hf"),
                        lambda file: ("compare", file.parent, _sample())],
                       beside=_other("front.json")),
}  # fmt: skip

# Files that no command takes, by what reads them: {kind: (reader, shipped files)}.
READERS: Mapping[str, tuple[str, str]] = {
    "system": ("dse.schema.system:load_system", "hardware/systems/*.yaml"),
    "stack": ("dse.schema.training:load_training_stack", "hardware/training/*.yaml"),
    "tiers": ("dse.schema.constants:TierDefaults.load", "hardware/tiers.yaml"),
    "energy": ("dse.schema.constants:EnergyConstants.load", "hardware/energy.yaml"),
    "reliability": ("dse.schema.constants:Reliability.load", "hardware/reliability.yaml"),
    "backend": ("dse.schema.backend:Backend.load", "hardware/backends/*.yaml"),
    "calibration": ("dse.schema.backend:Calibration.load",
                    "hardware/efficiency/serving/calibration.yaml"),
    "rediscovery": ("dse.schema.study:load_case", "search_spaces/rediscovery/*.yaml"),
}  # fmt: skip

_SPACE = str(ROOT / "search_spaces/tiny.yaml")
_POINT: Mapping[str, str] = {
    "--tp": "2",
    "--pp": "2",
    "--dp": "2",
    "--ep": "1",
    "--replicas": "4",
    "--concurrency": "64",
    "--prompt-tokens": "2048",
    "--output-tokens": "512",
    "--weight-dtype": "fp8",
    "--kv-dtype": "fp8",
    "--serving": "static",
    "--backend": "vllm",
    "--as-of": "2026-06",
    "--set price_basis": "on_demand",
    "--set rack": "gb200_nvl72",
    "--set draft_tokens": "3",
    "--set acceptance": "0.7",
    "--set redundant_experts": "2",
    "--set hbm_bandwidth": "2x",
    "--set workloads": "chat=0.7:1000/250",
    "--set requests_per_second": "3",
    "--set jitter": "10us",
    "--set weights_offloaded": "0.5",
    "--set offload_tier": "host",
    "--set power_cap": "500W",
    "--set average_load": "1B/day",
    "--set peak_over_average": "2.5",
    "--set training_tokens": "15T",
    "--set prefix_hit_rate": "0.3",
    "--set network_overlap": "0.5",
    "--set scale_up_domain": "16",
    "--set law": "joint",
    "--set routing_skew": "0.3",
    "--set max_running_requests": "64",
    "--out": "answer",
    "--chip": "mi300x",
}  # fmt: skip
_EXPERTS = ("--set redundant_experts", "--set routing_skew")
# What a flag needs beside it.
_WITH: Mapping[str, Sequence[str]] = {
    "--set rack": ("--set", "scale_up_domain=8"), "--set draft_tokens": ("--set", "acceptance=0.7"),
    "--set acceptance": ("--set", "draft_tokens=3"),
    "--set requests_per_second": ("--serving", "poisson"),
    "--set offload_tier": ("--set", "weights_offloaded=0.5"), "--at": ("--equal", "power"),
    "--name": ("--set", "hbm_bandwidth=2x"), "--from": ("--set", "hbm_bandwidth=2x"),
}  # fmt: skip
# {words: the flags that go with them, each with a value that is good}
FLAGS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("estimate", *MODEL, *CHIP): {
        name: value for name, value in _POINT.items() if name not in _EXPERTS
    },
    ("estimate", "--model", "deepseek-v3", "--chip", "h200_sxm", "--dp", "8", "--ep", "8"): _POINT,
    ("compare", "h200_sxm", "b200_sxm", *MODEL): {
        name: value
        for name, value in _POINT.items()
        if name != "--chip" and not name.startswith("--set ")
    },
    ("train", "llama-3-8b", *CHIP, "--chips", "8", "--tokens", "1B"): {
        "--chips": "64", "--tokens": "15T", "--precision": "fp8", "--sequence-length": "4096",
        "--tp": "2", "--pp": "2", "--observed-mfu": "11%", "--set": "stack=fsdp",
        "--as-of": "2026-06", "--price-basis": "on_demand",
    },
    ("scale", *MODEL, *CHIP, "--chips-up-to", "16"): {
        "--jitter": "10us", "--chips-up-to": "32", "--tpot-limit": "50ms", "--ttft-limit": "2s",
        "--demand": "64", "--set": "requests_per_chip=32",
    },
    ("check", "llama-3-8b", *CHIP): {
        "--tp": "3", "--concurrency": "64", "--prompt-tokens": "1024", "--weight-dtype": "fp8",
        "--training-tokens": "15T",
    },
    ("fleet", *MODEL, *CHIP, "--demand", "1B/day", "--prompt-tokens", "1024",
     "--output-tokens", "128"): {
        "--demand": "1B/day", "--peak-over-average": "2", "--ttft-limit": "2s",
        "--tpot-limit": "50ms", "--percentile": "99", "--set windows": "0.9",
        "--set largest_instance": "16", "--set weight_dtype": "bf16,fp8", "--as-of": "2026-06",
    },
    ("whatif", *MODEL, *CHIP, "--set", "tp=1", "--set", "concurrency=32"): {
        "--set": "chip.h100_sxm.price=-20%", "--sweep": "chip.h100_sxm.price=1USD/h..4USD/h:4",
        "--limit": "tpot_s <= 20 ms", "--objective": "tpot_s", "--demand": "1B/day",
        "--peak-over-average": "2.5", "--equal": "power", "--at": "100kW",
    },
    ("export", *MODEL, "--format", "vllm", *CHIP): {
        "--tp": "2", "--format": "sglang", "--set checkpoint": "x", "--concurrency": "64",
        "--set architecture": "LlamaForCausalLM",
    },
    ("catalog", "chips", "derive", "--from", "h200_sxm"): {
        "--set": "hbm_bandwidth=1.5x", "--name": "fast", "--from": "mi300x",
    },
    ("catalog", "prices", "list"): {
        "--chip": "h100_sxm", "--basis": "on_demand", "--as-of": "2026-06", "--since": "2026-Q2",
    },
    ("catalog", "spaces", "show"): {"": _SPACE},
}  # fmt: skip
STORED = ("journal", "sqlite")
SHARES: Mapping[str, int] = (
    {name: kind.share for name, kind in KINDS.items()}
    | dict.fromkeys(READERS, 2)
    | {"flags": 76, "journal": 2, "sqlite": 1}
)
ROUND = tuple(
    kind for k in range(max(SHARES.values())) for kind, share in SHARES.items() if k < share
)


def flags(dice: Dice) -> list[str]:
    """A command with one to three flags, of which one has an odd value."""
    words = dice.choice(list(FLAGS))
    known = FLAGS[words]
    names = dice.sample(list(known), min(dice.choice((1, 1, 2, 3)), len(known)))
    found = list(words)
    for k, name in enumerate(names):
        value = known[name] if k else spoiled(f"- {known[name]}", dice).removeprefix("- ")
        value = value.replace("\x00", "").replace("\ud800", "")
        option, _, field = name.partition(" ")
        found += [*_WITH.get(name, ()), *([option] if option else ())]
        found.append(f"{field}={value}" if field else value)
    return found


@cache
def _finished(storage: str) -> Path:
    """A finished study of 20 trials; nobody writes into it."""
    kept = tempfile.TemporaryDirectory(prefix="dse-fuzz-study-")
    weakref.finalize(_small, kept.cleanup)  # with this process
    folder = Path(kept.name)
    _small(folder)
    url = () if storage == "journal" else ("--storage", f"sqlite:///{folder}/study.db")
    said = dse("run", folder / "small.yaml", "--out", folder / "out", *url, *_SEARCH, 20)
    assert said.code == 0, said.err
    return folder


_SEARCH = ("--engine", "random", "--jobs", 1, "--no-prove", "--trials")


def stored(storage: str, seed: str, folder: Path) -> list[str]:
    """A study whose storage is damaged, and the command that goes on with it."""
    shutil.copytree(_finished(storage), folder, dirs_exist_ok=True)
    if storage == "journal":
        journal = next((folder / "out").glob("*journal*"))
        if Dice(seed).random() < 0.5:
            damage(journal, seed)
        else:
            place(journal.read_text("utf-8"), journal, seed)
        url: Words = ()
    else:
        damage(folder / "study.db", seed)
        url = ("--storage", f"sqlite:///{folder}/study.db")
    if Dice(seed).random() < 0.5:
        (folder / "out/study.json").unlink()
    words = ("run", folder / "small.yaml", "--out", folder / "out", *url, *_SEARCH, 24)
    return [str(word) for word in words]


def command(kind: str, seed: int, folder: Path, without: Sequence[int | str] = ()) -> list[str]:
    """The command of an input; its file is written into `folder`. `without` leaves out some of its
    mistakes: their numbers, and "file" for what stands in the file's place."""
    name = f"{kind} {seed}"
    dice = Dice(name)
    if kind == "flags":
        return flags(dice)
    if kind in STORED:
        return stored(kind, name, folder)
    if kind in READERS:
        reader, pattern = READERS[kind]
        path = place(dice.choice(_shipped(pattern)()), folder / f"{kind}.yaml", name, without)
        return [reader, str(path)]
    one = KINDS[kind]
    one.beside(folder)
    path = place(dice.choice(one.texts()), folder / one.name, name, without)
    words = [str(word) for word in dice.choice(one.commands)(path)]
    if dice.random() < 0.25 and words[0] not in ("run", "export") and "show" not in words:
        words.append("--json")
    return [os.fspath(word) for word in words]


def good(folder: Path) -> Iterator[list[str]]:
    """Every command, with a file or a value that has no mistake: of several texts the first two."""
    for name, kind in KINDS.items():
        for number, text in enumerate(kind.texts()[:2]):
            place = folder / f"{name} {number}"
            place.mkdir()
            kind.beside(place)
            (place / kind.name).write_text(text, "utf-8")
            for words in kind.commands:
                yield [str(word) for word in words(place / kind.name)]
    for reader, pattern in READERS.values():
        yield [reader, str(next(ROOT.glob(pattern)))]
    for first, flags in FLAGS.items():
        for flag, value in flags.items():
            option, _, field = flag.partition(" ")
            value = f"{field}={value}" if field else value
            given = [*_WITH.get(flag, ()), *([option] if option else ()), value]
            out = ["--out", str(folder / "answer")]
            yield [*first, *(out if flag == "--out" else given)]
