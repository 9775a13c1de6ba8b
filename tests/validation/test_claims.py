"""Claims: files that can be read, verdicts that follow the numbers, numbers that can be recomputed
by hand, a page that can be made again."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import dse as library
from dse.catalog import load_catalog
from dse.cli import cli
from dse.errors import InputError
from dse.questions.claims import (
    CONFIRMED,
    CONTRADICTED,
    COUNTS,
    TRUE_IF,
    UNDECIDED,
    Query,
    asker,
    at,
    bounds,
    command,
    judged,
    load_claim,
    shipped,
)
from tests.cli.conftest import ask, dse, fits
from tools.claims_page import MARKS
from tools.claims_page import page as claims_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "claims.md"
ASK = asker(load_catalog())
QUICK = ("9", "11", "12", "14", "15", "16")  # judged again here; all take a minute or two


def test_claims_are_numbered_from_one() -> None:
    assert list(shipped()) == [str(k) for k in range(1, len(shipped()) + 1)]


def lines_of(name: str) -> set[str]:
    cases = [case for part in load_claim(name).parts for case in part.cases]
    found = {""}
    for query in (case.below for case in cases):
        if isinstance(query, Query) and not isinstance(query.arguments.get("model"), Mapping):
            found.add(command(query.ask, {**query.arguments, **(query.among or ({},))[0]}))
    found |= {
        case.command for case in cases if not isinstance(case.query.arguments.get("model"), Mapping)
    }
    return found - {""}


@pytest.mark.parametrize("name", shipped())
def test_commands_can_be_typed(name: str) -> None:
    """Parsed as they stand, by the commands themselves; nothing runs."""
    for line in lines_of(name):
        words = shlex.split(line)[1:]
        found: click.Command | None = cli
        context = click.Context(cli, info_name="dse")
        while isinstance(found, click.Group):
            verb, found, words = found.resolve_command(context, words)
            assert found is not None, line
            context = click.Context(found, info_name=verb, parent=context)
        made = found.make_context("dse", list(words), parent=context.parent)
        assert not made.args, line


def answers(name: str, arguments: Mapping[str, Any]) -> Any:
    """Gives what was asked with as `tpot_s`."""
    value = arguments.get("concurrency")
    if value == 13:
        raise InputError("no answer")
    return {"feasible": value != 7, "violations": [], "tpot_s": value, "limit": arguments["tp"]}


OWN = (PAGE.parents[1] / "tests/data/claim.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("more", "verdict", "condition"),
    [
        ("    each: {concurrency: [1, 2]}", CONFIRMED, ""),
        ("    each: {concurrency: [5, 6]}", CONTRADICTED, ""),
        ("    each: {concurrency: [1, 5]}", TRUE_IF, "concurrency 1"),
        ("    each: {concurrency: [1, 2, 3, 5]}", TRUE_IF, "not concurrency 5"),
        (
            "    enough: 0.75\n    each: {concurrency: [1, 2, 3, 5]}",
            CONFIRMED,
            "all but concurrency 5",
        ),
        ("    each: {concurrency: [7]}", UNDECIDED, "not feasible: "),
        ("    each: {concurrency: [13]}", UNDECIDED, "no answer"),
        ("    each: {concurrency: [1, 13]}", CONFIRMED, "no number for concurrency 13"),
        ("    undecided: a test\n    each: {concurrency: [1]}", UNDECIDED, "a test"),
        ("    cases: {a: {concurrency: 8, over: {concurrency: 4}}}\n    over: {}", CONFIRMED, ""),
        ("    each: {concurrency: [8]}\n    over: 4", CONFIRMED, ""),
        ("    scale: 0.5\n    each: {concurrency: [8]}", CONFIRMED, ""),
        ("    among: {concurrency: [9, 7, 3]}", CONFIRMED, ""),
        ("    trend: true\n    each: {concurrency: [1, 2, 8]}", CONFIRMED, ""),
        ("    trend: true\n    each: {concurrency: [1, 5, 6]}", TRUE_IF, "concurrency 6"),
        ("    trend: true\n    each: {concurrency: [1, 5, 40]}", CONTRADICTED, ""),
        ("    trend: true\n    each: {concurrency: [13, 8]}", UNDECIDED, "no answer"),
        ("    choose: largest\n    among: {concurrency: [9, 13, 3]}", CONTRADICTED, ""),
        (
            "    choose: largest\n    within: {tpot_s: 3}\n    among: {concurrency: [9, 3]}",
            CONFIRMED,
            "",
        ),
    ],
)
def test_verdicts_follow_the_numbers(
    tmp_path: Path, more: str, verdict: str, condition: str
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(f"{OWN}{more}\n")
    part = judged(load_claim(file), answers)["parts"][0]
    assert (part["verdict"], part["condition"]) == (verdict, condition or None)


@given(
    low=st.floats(-1e6, 1e6, allow_subnormal=False),
    more=st.floats(0, 1e6),
    value=st.floats(-1e7, 1e7),
)
def test_a_range_holds_between_its_ends(low: float, more: float, value: float) -> None:
    text = f"{low:.3f} to {low + more:.3f}"
    ends = [float(word) for word in text.split(" to ")]
    assert bounds(text) == ((">=", ends[0]), ("<=", ends[1]))
    part = load_claim("16").parts[0]
    assert replace(part, holds=text).keeps(value) == (ends[0] <= value <= ends[1])
    above, below = (replace(part, holds=f"{s} {low:.3f}") for s in (">=", "<"))
    assert above.keeps(value) != below.keeps(value)


@pytest.mark.parametrize("text", ["", "2", "about 2", ">= x", "1 to", "__import__('os')"])
def test_what_is_no_threshold(text: str) -> None:
    with pytest.raises(InputError, match="threshold"):
        bounds(text)


def test_places_in_a_document() -> None:
    document = {"a": [{"name": "x", "n": 1.0, "b": 2}, {"name": "y", "b": 3}]}
    assert at(document, "a.1.b") == 3
    assert at(document, "a.name=y.b") == 3
    assert at(document, "a.n=1.b") == 2
    assert at(document, "a.name=y&b=3.name") == "y"
    assert at(document, "a.name=x&b=3.name") is None
    assert at(document, "a.name=z.b") is None
    assert at(document, "c.d") is None


# Recomputed by hand from published figures: claim, part, case, number.
BY_HAND = [
    ("9", 1, "h100_sxm", 3.35e12 / 64e9),  # HBM3 over PCIe 5.0 x16
    ("9", 1, "h200_sxm", 4.8e12 / 64e9),
    ("9", 0, "h200_sxm", 256e9 / 141e9),
    ("14", 0, "", 398.4 / 272.7),
    ("15", 0, "1 MB at 7 nm", 14.0 / 8.0 / 0.07),  # 14 pJ for 64 bits, 0.07 pJ a multiply
    ("15", 1, "DDR4 at 7 nm", 1300.0 / 8.0 / 0.07),
    ("15", 1, "DRAM at 45 nm", 1300.0 / 8.0 / 0.2),
    ("16", 0, "all", 70.55e9 * 12 / 840e9),
    ("16", 1, "", 70.55e9 * 2 / 140e9),
    ("16", 2, "", 70.55e9 * 8 / 560e9),
    ("3", 1, "", (80 / 8 * 855.6e6 + 128256 * 8192) / 70.55e9),  # a stage: 10 of 80 layers
    ("11", 0, "20.6B (gpt-neox-20b)", (20.56e9 * 2 + 4 * 44 * 6144 * 2048) / 44e9),
    ("11", 0, "14.7B (phi-4)", (14.66e9 * 2 + 4 * 40 * 1280 * 2048) / 44e9),
    ("22", 0, "deepseek-v3", 37 / 671),
    ("32", 1, "", 13400 / (70686 * 31.8 * 2**20 / 8e9) / (2900 / 192)),
    ("6", 3, "1 MiB", 36.06 / 5.37),
    ("6", 3, "16 GiB", 845.67 / 381.8),
    ("24", 3, "A100 to H100 (2022)", 700 / 400),
    ("24", 3, "H100 to B200 (2024)", 1000 / 700),
    ("24", 3, "B200 to B300 (2025)", 1100 / 1000),
    ("19", 0, "A100 of AWS p4d, 6 cores", 2470 / (6 * 200)),
    ("33", 0, "H100", 27500 / 3320),
    ("34", 0, "tpu_v4, concurrency 8", 8 / 128),
    ("34", 0, "tpu_v6e, concurrency 8", 8 / 256),
    ("37", 0, "5 GW, fourfold a year", 2023 + math.log(3e29 / 2e25) / math.log(4)),
    ("37", 1, "1 GW, fourfold a year", math.log(1e28 / 2e25) / math.log(2e28 / 2e25)),
]


@pytest.mark.parametrize(("name", "part", "case", "expected"), BY_HAND)
def test_numbers_recomputed_by_hand(name: str, part: int, case: str, expected: float) -> None:
    claim = load_claim(name)
    kept = claim.parts[part]
    cases = [one for one in kept.cases if one.name == case or kept.trend]
    found = judged(replace(claim, parts=[replace(kept, cases=cases)]), ASK)["parts"][0]["cases"]
    values = {one["name"]: one["value"] for one in found}
    assert values[case] == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", QUICK)
def test_the_page_is_what_is_judged_again(name: str) -> None:
    made = claims_page([judged(load_claim(name), ASK)], "docs/claims.md")
    start = made.index(f"## {name}. ")
    rows = [line for line in made[start:].splitlines() if line.startswith("| ")]
    written = PAGE.read_text(encoding="utf-8")
    assert all(f"\n{row}\n" in written for row in rows), (
        "python -m tools.claims_page docs/claims.md"
    )


def test_the_page_has_every_claim_and_its_parts() -> None:
    written = PAGE.read_text(encoding="utf-8")
    first = written[: written.index("## 1. ")]
    for name in shipped():
        claim = load_claim(name)
        row = next(line for line in first.splitlines() if line.startswith(f"| {name} | "))
        assert sum(row.count(mark) for mark in MARKS.values()) == len(claim.parts)
        assert f"## {name}. " in written
    assert "no number at" not in written  # a place that is not in the document


def test_one_claim_as_text_and_json_twice_the_same() -> None:
    first, again = (dse("claims", "check", 16, "--json") for _ in range(2))
    assert first.out == again.out
    document = first.json()
    assert document["claim"] == "16"
    assert {part["verdict"] for part in document["parts"]} <= set(COUNTS)
    said = dse("claims", "check", 16)
    assert said.code == 0
    assert fits(said.out, 100)
    assert all(set(part["rule"].split()) <= set(said.out.split()) for part in document["parts"])


def test_a_claim_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    more = "    with: {model: llama-3-8b, chip: h100_sxm, concurrency: 1}"
    file.write_text(OWN.replace("    with: {tp: 1}", more).replace("<= 4", "< 1"))
    document = ask("claims", "check", file)
    answer = dse(
        *("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm", "--concurrency", 1, "--json")
    ).json()
    case = document["parts"][0]["cases"][0]
    assert case["value"] == answer["tpot_s"]
    assert shlex.split(case["command"])[:2] == ["dse", "estimate"]
    said = dse("claims", "check", file, "--out", tmp_path / "out")
    assert said.code == 0
    assert json.loads((tmp_path / "out" / "claim.json").read_text())["title"] == "Made up"


@pytest.mark.parametrize("name", ["0", "99"])
def test_a_number_that_is_no_claim(name: str) -> None:
    said = dse("claims", "check", name)
    assert (said.code, said.out) == (2, "")
    assert "or the path of a file" in said.err


HOSTILE = "A_b | c* <b>x</b> & `d`"


def test_every_format_shows_text_as_it_is(tmp_path: Path) -> None:
    claim = yaml.safe_load(shipped()["16"].read_text(encoding="utf-8"))
    files = (tmp_path / "one.yaml", tmp_path / "two.yaml")
    for file in files:
        file.write_text(yaml.safe_dump(claim | dict.fromkeys(("title", "about"), HOSTILE)))
    escaped = r"A\_b \| c\* &lt;b&gt;x&lt;/b&gt; &amp; \`d\`"
    for answer in (library.claims(files[:1]), library.claims(files)):
        assert escaped in answer.to_markdown()
        assert "<b>x" not in answer.to_markdown()
        assert "<b>x" not in answer.to_html()
