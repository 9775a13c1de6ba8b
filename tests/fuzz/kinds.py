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

import yaml

from tests.cli.conftest import SMALL, dse
from tests.fuzz.mistakes import Dice, damage, place, spoiled

ROOT = Path(__file__).parents[2]
Words = Sequence[object]
MODEL = ("--model", "llama-3-8b")
CHIP = ("--chip", "h100_sxm")
FILES = Path(__file__).parent / "files"
PLAN, OFFERS, COSTS, REGION, OWN_CHIP, SCENARIOS, CLAIM = (
    (FILES / f"{name}.yaml").read_text("utf-8")
    for name in ("plan", "offers", "costs", "region", "own_chip", "scenarios", "claim")
)
TRACE = (FILES / "trace.csv").read_text("utf-8")
# A workload of two kinds of requests and prices to own, in a space.
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

_TABLES = yaml.safe_load((FILES / "flags.yaml").read_text("utf-8"))
_POINT: Mapping[str, str] = _TABLES["point"]
_WITH = {flag: words.split() for flag, words in _TABLES["with"].items()}
_EXPERTS = ("--set redundant_experts", "--set routing_skew")
_COMPARED = {k: v for k, v in _POINT.items() if k != "--chip" and not k.startswith("--set ")}
# {words: the flags that go with them, each with a value that is good}
FLAGS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("estimate", *MODEL, *CHIP): {k: v for k, v in _POINT.items() if k not in _EXPERTS},
    ("estimate", "--model", "deepseek-v3", "--chip", "h200_sxm", "--dp", "8", "--ep", "8"): _POINT,
    ("compare", "h200_sxm", "b200_sxm", *MODEL): _COMPARED,
    **{tuple(words.split()): flags for words, flags in _TABLES["commands"].items()},
    ("catalog", "spaces", "show"): {"": str(ROOT / "search_spaces/tiny.yaml")},
}
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
        found = _given(found, name, value)
    return found


def _given(words: Sequence[str], flag: str, value: str) -> list[str]:
    """The command with a flag, and what goes with it: a chip in the place of the one that stands
    there, of which one is meant; other options after those of the command, which they replace."""
    option, _, field = flag.partition(" ")
    if option == "--chip" and option in words:
        at = words.index(option) + 1
        return [*words[:at], value, *words[at + 1 :]]
    more = [option] if option else []
    return [*words, *_WITH.get(flag, ()), *more, f"{field}={value}" if field else value]


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
            yield _given(first, flag, str(folder / "answer") if flag == "--out" else value)
