"""A fuzzer: files of every kind with one to three mistakes in them, and flags with odd values.

    python -m tests.fuzz --inputs 100000 [--seed 7] [--kinds space,chip]

Every input is a kind and a seed, so that what fails can be made again. A command may refuse it, in
words and with its exit code; it may not end in an exception, print NaN or a control character.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cli.conftest import dse

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests/data/study_sample"
ODD = (
    "", "0", "-1", "1e308", "-1e308", "1e-320", "1e999", "nan", ".nan", ".inf", "-inf", "null", "~",
    "true", "no", "[]", "{}", "[1, 2", "{a: 1}", "'", '"', "&a 1", "*a", "<<", "!!bool maybe",
    "!!int x", "!!float y", "!!timestamp 2026-13-99", "!!binary ???", "!!python/name:os.system",
    "!!set {a}", "2030-01-01", "2026-02-30", "99999999999999999999999999", "0x1F", "1_000", "1:30",
    "1e308 W", "1e308 GB", "1e308 TB/s", "1e308 USD/h", "-5 GB", "0 GB", "3 parsecs", "5 %",
    "150 %", "1/0", "1/3", "../../etc/passwd", "/dev/null", "a" * 3000, "\x1b[31mred", "\x00",
    "\ufeff5", "[bold]x[/bold]", "<img src=x>", "é", "𝟙", "llama-3-70b", "h100_sxm", "fp8", "=1+1",
)  # fmt: skip
FLAGS: Mapping[str, Sequence[str]] = {
    "estimate": (
        "--tp", "--pp", "--dp", "--ep", "--replicas", "--concurrency", "--prompt-tokens",
        "--output-tokens", "--weight-dtype", "--kv-dtype", "--serving", "--backend", "--as-of",
        "--price-basis", "--rack", "--draft-tokens", "--acceptance", "--redundant-experts",
    ),
    "train": ("--chips", "--tokens", "--precision", "--sequence", "--tp", "--pp", "--sites"),
    "scale": ("--jitter", "--chips-up-to", "--tpot", "--ttft", "--demand"),
    "check": ("--tp", "--concurrency", "--prompt-tokens", "--weight-dtype"),
}  # fmt: skip
MODEL = ("--model", "llama-3-8b")
PLAN = """\
name: small
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
TRACE = "time_s,prompt_tokens,output_tokens\n0,512,64\n0.5,1024,128\n9.5,300,32\n"


@dataclass(frozen=True)
class Kind:
    """A kind of input: texts to spoil, the name of the file, the command that reads it."""

    texts: Callable[[], Sequence[str]]
    name: str
    command: Callable[[Path], Sequence[object]]


def _shipped(pattern: str, most: int = 5000) -> Callable[[], Sequence[str]]:
    def texts() -> Sequence[str]:
        return [path.read_text("utf-8")[:most] for path in sorted(ROOT.glob(pattern))]

    return texts


def _lines(path: str, rows: slice) -> Callable[[], Sequence[str]]:
    def texts() -> Sequence[str]:
        head, *body = (ROOT / path).read_text("utf-8").splitlines(keepends=True)
        return ["".join([head, *body[rows]])]

    return texts


KINDS: Mapping[str, Kind] = {
    "space": Kind(_shipped("search_spaces/*.yaml", 20_000), "space.yaml",
                  lambda file: ("catalog", "spaces", "show", file)),
    "chip": Kind(_shipped("hardware/chips/*.yaml", 20_000), "chip.yaml",
                 lambda file: ("estimate", *MODEL, "--chip", file)),
    "rack": Kind(_shipped("hardware/racks/*.yaml", 20_000), "rack.yaml",
                 lambda file: ("catalog", "racks", "show", file)),
    "plan": Kind(lambda: [PLAN], "plan.yaml", lambda file: ("fleet", file)),
    "costs": Kind(lambda: ["electricity_price: 0.09 USD/kWh\npue: 1.3\nlife: 5 years\n"
                           "chips:\n  h100_sxm:\n    price: 25,000 USD\n"], "costs.yaml",
                  lambda file: ("estimate", *MODEL, "--chip", "h100_sxm", "--costs", file,
                                "--price-basis", "owned_tco")),
    "prices": Kind(_lines("hardware/prices.csv", slice(60, 80)), "prices.csv",
                   lambda file: ("estimate", *MODEL, "--chip", "h100_sxm", "--prices", file)),
    "config": Kind(_shipped("tests/data/configs/*.json"), "config.json",
                   lambda file: ("estimate", "--model", file, "--chip", "b200_sxm", "--tp", 8)),
    "points": Kind(_lines("hardware/measurements/inference.csv", slice(40, 44)), "in.csv",
                   lambda file: ("estimate", "--points", file, "--out", file.parent / "out.csv")),
    "trace": Kind(lambda: [TRACE], "trace.csv",
                  lambda file: ("fleet", *MODEL, "--chip", "h100_sxm", "--trace", file)),
    "front": Kind(lambda: [(SAMPLE / "front.json").read_text("utf-8")], "front.json",
                  lambda file: ("estimate", file.parent, "best")),
    "study": Kind(lambda: [(SAMPLE / "study.json").read_text("utf-8")], "study.json",
                  lambda file: ("estimate", file.parent, "knee")),
}  # fmt: skip
SCALAR = re.compile(r"(?<=[:,\[(] )[^\s,:{}\[\]\"'][^,\n{}\[\]]*|(?<=: \")[^\"]*|(?<=,)[^,\n]+")


def spoiled(text: str, dice: random.Random) -> str:
    """The text with one to three mistakes: a value replaced, a line lost, doubled or indented
    otherwise, a character too many, the end missing."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        lines, what = text.splitlines(keepends=True) or [""], dice.random()
        at = dice.randrange(len(lines))
        values = list(SCALAR.finditer(text))
        if what < 0.65 and values:
            found = dice.choice(values)
            text = text[: found.start()] + dice.choice(ODD) + text[found.end() :]
            continue
        if what < 0.73:
            del lines[at]
        elif what < 0.8:
            lines.insert(at, dice.choice(lines))
        elif what < 0.87:
            lines[at] = dice.choice(("  ", "\t", "- ", "# ", ": ")) + lines[at]
        elif what < 0.97:
            k = dice.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:k] + dice.choice("{}[]:,\"'\t\x00é&*!%@`|>-0") + lines[at][k:]
        else:
            lines[at:] = []
        text = "".join(lines)
    return text


def command(kind: str, seed: int, folder: Path) -> list[str]:
    """The command of an input; its file is written into `folder`."""
    dice = random.Random(f"{kind} {seed}")  # noqa: S311 - no secret
    if kind == "flags":
        verb = dice.choice(sorted(FLAGS))
        words = [verb, "llama-3-8b"] if verb in ("check", "train") else [verb, *MODEL]
        words += ["--chip", "h100_sxm"]
        if verb == "train":
            words += ["--chips", "8", "--tokens", "1B"]
        for flag in dice.sample(FLAGS[verb], dice.choice((1, 1, 2))):
            words += [flag, dice.choice(ODD).replace("\x00", "")]
        return words
    one = KINDS[kind]
    if kind in ("front", "study"):
        shutil.copytree(SAMPLE, folder, dirs_exist_ok=True)
    path = folder / one.name
    path.write_text(spoiled(dice.choice(one.texts()), dice), "utf-8", errors="replace")
    return [str(word) for word in one.command(path)]


def complaint(kind: str, seed: int, folder: Path) -> str:
    """What is wrong with how the command took the input; nothing where it did well."""
    words = command(kind, seed, folder)
    try:
        said = dse(*words)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return f"{type(error).__name__}: {error}"
    if said.code not in (0, 2, 3, 4):
        return f"exit code {said.code}"
    if said.code and not said.err.strip():
        return "refused without a word"
    if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f]", said.out + said.err):
        return f"prints {found[0]!r}"
    if found := re.search(r"\$nan|\bnan ?(%|[mu]?s\b|[GTM]B|tokens)", said.out):
        return f"answers with {found[0]}"
    return ""
