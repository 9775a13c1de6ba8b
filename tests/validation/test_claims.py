"""The claims: each once, verdicts that follow from numbers, commands that exist, a page that can be
made again."""

from __future__ import annotations

import importlib
import re
import shlex
from collections import Counter
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest

from dse.accuracy.claims import (
    CLAIMS,
    alignment,
    all_to_all,
    bottleneck,
    claim,
    dram,
    experts,
    floor,
    generations,
    jitter,
    joules,
    matched,
    pipeline,
    pools,
    racks,
    roofline,
    scale_up,
    single_user,
    sram,
    use_cases,
)
from dse.accuracy.claims.frame import (
    CONFIRMED,
    CONTRADICTED,
    NOT_YET,
    QUALIFIED,
    VERDICTS,
    Claim,
    Finding,
    Table,
)
from dse.accuracy.claims.jitter import Band
from dse.accuracy.claims.page import document, markdown
from dse.accuracy.claims.points import Point, predict, smallest
from dse.accuracy.claims.sram import Shares
from dse.answer.numbers import digits, percent, times
from dse.catalog import load_catalog
from dse.cli import cli
from dse.cli.columns import wrapped
from dse.schema.rack import load_rack, shipped_racks
from tests.cli.conftest import dse, fits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "claims.md"
# Elasticities of a case, by the figure that is the largest.
MEMORY, LINK, POWER, FLOPS = (
    dict.fromkeys(bottleneck.FIGURES, 0.1) | {figure: 0.2}
    for figure in ("memory bandwidth", "link bandwidth", "power", "FLOP/s")
)
QUICK = (2, 8, 14)  # made again here; all of them take a minute under load


def test_every_claim_is_in_one_file() -> None:
    listed = []
    for module in sorted(set(CLAIMS.values())):
        held = importlib.import_module(f"dse.accuracy.claims.{module}").CLAIMS
        listed += [one.number for one in held]
    assert sorted(listed) == list(CLAIMS) == list(range(1, 27))


@pytest.mark.parametrize("number", CLAIMS)
def test_a_claim_says_what_it_is(number: int) -> None:
    one = claim(number)
    assert one.number == number
    assert one.text.endswith(".")
    if one.find is None:
        assert one.needs
        assert one.found().verdict == NOT_YET
    else:
        assert one.rule
        assert one.commands


@pytest.mark.parametrize(
    "line", sorted({line for number in CLAIMS for line in claim(number).commands})
)
def test_commands_can_be_typed(line: str) -> None:
    """Parsed as they stand, by the commands themselves; nothing runs."""
    words = shlex.split(line)[1:]
    command: click.Command | None = cli
    context = click.Context(cli, info_name="dse")
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        assert command is not None, line
        context = click.Context(command, info_name=name, parent=context)
    made = command.make_context("dse", list(words), parent=context.parent)
    assert not made.args


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (roofline.judge(0.99, 0.9, 0.95), CONFIRMED),
        (roofline.judge(0.99, 0.9, 0.7), QUALIFIED),
        (roofline.judge(0.7, 0.99, 0.99), CONTRADICTED),
        (floor.judge(0.0, 0.0, 0.0), CONFIRMED),
        (floor.judge(0.0, 0.0, 0.2), QUALIFIED),
        (floor.judge(1e-6, 0.0, 0.0), CONTRADICTED),
        (floor.judge(0.0, 1e-6, 0.0), CONTRADICTED),
        (pipeline.judge(1.0, 1.0), CONFIRMED),
        (pipeline.judge(1.01, 0.4), QUALIFIED),
        (pipeline.judge(0.9, 1.0), CONTRADICTED),
        (generations.judge((0.9, 0.8), (0.1, 0.2)), CONFIRMED),
        (generations.judge((0.9, 0.8), (0.2, 0.1)), QUALIFIED),
        (generations.judge((0.7, 0.8), (0.2, 0.1)), CONTRADICTED),
        (pools.judge([1.2] * 9 + [1.0]), CONFIRMED),
        (pools.judge([1.2, 0.8]), QUALIFIED),
        (pools.judge([1.05, 0.8]), CONTRADICTED),
        (alignment.judge(0.4, 0.1, 0.1), CONFIRMED),
        (alignment.judge(0.4, 0.01, 0.0), QUALIFIED),
        (alignment.judge(0.01, 0.01, 0.01), CONTRADICTED),
        (single_user.judge(1.3, 1.2, 9.0), CONFIRMED),
        (single_user.judge(1.3, 1.2, None), QUALIFIED),
        (single_user.judge(1.3, 1.2, 2.0), QUALIFIED),
        (single_user.judge(1.0, 1.0, 10.0), CONTRADICTED),
        (use_cases.judge([1.0, 1.1], [1.0, 1.0]), CONFIRMED),
        (use_cases.judge([1.5, None], [1.0, None]), QUALIFIED),
        (use_cases.judge([1.5, None], [1.5, None]), CONTRADICTED),
        (experts.judge(0.95, 0.8), CONFIRMED),
        (experts.judge(0.95, 0.3), QUALIFIED),
        (experts.judge(0.4, 0.8), CONTRADICTED),
        (bottleneck.judge(0.1, [MEMORY, LINK, POWER], (0.1, 0.2)), CONFIRMED),
        (bottleneck.judge(0.1, [MEMORY, LINK, POWER], (0.2, 0.1)), QUALIFIED),
        (bottleneck.judge(0.1, [MEMORY, LINK, LINK], (0.1, 0.2)), QUALIFIED),
        (bottleneck.judge(0.1, [MEMORY, LINK, POWER, FLOPS], (0.1, 0.2)), QUALIFIED),
        (bottleneck.judge(0.1, [FLOPS, FLOPS, LINK], (0.1, 0.2)), CONTRADICTED),
        (bottleneck.judge(0.6, [MEMORY, LINK, POWER], (0.1, 0.2)), CONTRADICTED),
        (scale_up.judge_latency({"a": 2.0}, {"m": (True, 2.0), "d": (False, 1.5)}), CONFIRMED),
        (scale_up.judge_latency({"a": 2.0}, {"m": (True, 1.2), "d": (False, 1.5)}), QUALIFIED),
        (scale_up.judge_latency({"a": 1.0}, {"m": (True, 1.0), "d": (False, 0.5)}), CONTRADICTED),
        (scale_up.judge_ceiling([8, 16], [1, 2], [0.5, 0.9]), CONFIRMED),
        (scale_up.judge_ceiling([8, None], [1, 2], [0.5, 0.9]), QUALIFIED),
        (scale_up.judge_ceiling([None], [None], [1.0]), CONTRADICTED),
        (all_to_all.judge([8.0, 9.0], [0.1], [0.5]), CONFIRMED),
        (all_to_all.judge([2.0, 3.0], [0.1], [0.5]), QUALIFIED),
        (all_to_all.judge([1.1, 1.0], [0.1], [0.5]), CONTRADICTED),
        (jitter.judge([Band([(8, 1), (1, 1)], 4, 4), Band([(8, 1)], 2, 2)]), CONFIRMED),
        (jitter.judge([Band([(8, 1), (1, 1)], 4, 4), Band([(8, 1)], 1, 2)]), QUALIFIED),
        (jitter.judge([Band([(8, 1)], 4, 4), Band([(8, 8)], 1, 4)]), QUALIFIED),
        (jitter.judge([Band([(8, 8)], 1, 4), Band([(8, 8)], 0, 4)]), CONTRADICTED),
        (dram.judge([10.0, 12.0], [2.0, 3.0], 0.1), CONFIRMED),
        (dram.judge([50.0, 12.0], [2.0, 3.0], 0.1), QUALIFIED),
        (dram.judge([10.0], [2.0], 0.7), CONTRADICTED),
        (sram.judge_wafer([Shares(0.0, 0.02, 0.2), Shares(0.0, 0.05, 0.6)]), CONFIRMED),
        (sram.judge_wafer([Shares(0.0, 0.95, 0.2), Shares(0.0, 0.9, 0.6)]), QUALIFIED),
        (sram.judge_wafer([Shares(0.0, 0.02, 0.2), Shares(0.2, 0.3, 0.2)]), QUALIFIED),
        (sram.judge_wafer([Shares(0.2, 0.9, 0.2)]), CONTRADICTED),
        (sram.judge_size([(20e9, True), (27e9, False)], [512.0, None]), CONFIRMED),
        (sram.judge_size([(20e9, True), (40e9, False)], [512.0]), QUALIFIED),
        (sram.judge_size([(8e9, True), (20e9, False)], [8.0]), CONTRADICTED),
        (racks.judge([("rack_power", "rack_cooling"), ("rack_cables",)], 1.5), CONFIRMED),
        (racks.judge([("rack_power",), ("rack_cables",)], 3.0), QUALIFIED),
        (racks.judge([("rack_power", "rack_space")], 1.5), QUALIFIED),
        (racks.judge([(racks.SWITCHES, "rack_power")], 1.5), QUALIFIED),
        (racks.judge([("rack_power",), ()], 1.5), QUALIFIED),
        (racks.judge([("rack_space",), ()], 1.0), CONTRADICTED),
        (joules.judge_reading({"HBM": 800.0, "SRAM": 25.0}, 10.0), CONFIRMED),
        (joules.judge_reading({"HBM": 800.0, "DDR": 2300.0}, 10.0), QUALIFIED),
        (joules.judge_reading({"SRAM": 25.0}, 10.0), CONTRADICTED),
        (joules.judge_growth({"a": (1.5, 1.05), "b": (1.3, 1.1)}), CONFIRMED),
        (joules.judge_growth({"a": (1.5, 1.05), "b": (1.6, 1.5)}), QUALIFIED),
        (joules.judge_growth({"a": (1.1, 1.3)}), CONTRADICTED),
    ],
)  # fmt: skip
def test_verdicts_follow_the_numbers(verdict: str, expected: str) -> None:
    assert verdict == expected


@pytest.mark.parametrize("number", QUICK)
def test_the_page_is_what_the_command_makes_again(number: int) -> None:
    one = claim(number)
    made = markdown([(one, one.found())], "dse claims").split("\n## ", 1)[1]
    page = PAGE.read_text(encoding="utf-8")
    assert f"\n## {made.rstrip()}\n" in page, "dse claims --markdown docs/claims.md"


def test_the_page_has_every_claim_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for number in CLAIMS:
        assert len(re.findall(rf"^## Claim {number}$", page, flags=re.MULTILINE)) == 1
        row = re.findall(rf"^\| {number} \| .* \| \[([a-z ]+)\]", page, flags=re.MULTILINE)
        assert len(row) == 1
        assert row[0] in VERDICTS


def test_the_page_counts_the_verdicts_of_its_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    line = re.search(r"^Of (\d+): (.*)\.$", page, flags=re.MULTILINE)
    assert line is not None
    said = {word: int(count) for count, word in re.findall(r"(\d+) ([a-z ]+)", line[2])}
    verdicts = re.findall(r"^\| \d+ \| .* \| \[([^]]+)\]\(#claim-\d+\)", page, flags=re.MULTILINE)
    assert set(verdicts) <= set(VERDICTS)
    assert said == Counter(verdicts)
    assert int(line[1]) == len(verdicts) == len(CLAIMS)
    # Each section opens with the verdict that the table says.
    sections = re.findall(r"^\*\*([^*]+)\*\*: ", page, flags=re.MULTILINE)
    assert [word.lower() for word in sections] == verdicts


def test_trips_over_the_mesh_are_interconnect_of_a_wafer() -> None:
    """GPT-NeoX-20B on one WSE-3 uses no link; what its kernels wait for is the mesh."""
    found = sram.fitted("gpt-neox-20b", "wse3", "bf16")
    row = found["fastest"]
    explained = dse(
        "explain", "--model", "gpt-neox-20b", "--chip", "wse3", "--weight-dtype", "bf16",
        "--concurrency", 1, "--prompt-tokens", 1536, "--output-tokens", 512, "--json",
    ).json()  # fmt: skip
    assert row["interconnect_share"] == 0.0
    host = next(one for one in explained["breakdown"] if one["operator"].startswith("host"))
    waited = explained["parts_s"]["decode"]["fixed"] - host["decode_s"]
    share = sram.trips_share(found, row)
    assert 0.8 < share <= 1.0
    assert share * row["tpot_s"] == pytest.approx(waited)


def test_the_domain_of_nvl72_is_one_stage_of_switches() -> None:
    """The bounds that 76 chips break within 2% of each other are named together."""
    ended = racks.ends(load_rack(shipped_racks()["gb200_nvl72"]))
    assert ended[0] == racks.SWITCHES
    assert set(ended[1:]) == {"rack_cable_reach", "rack_cooling", "rack_power", "rack_space"}


@pytest.mark.parametrize("number", [10, 12])
def test_tables_keep_words_whole(number: int) -> None:
    item, said = dse("claims", number, "--json").json(), dse("claims", number)
    assert fits(said.out, 100)
    shown = set(said.out.split())
    for table in item["tables"]:
        for row in (table["head"], *table["rows"]):
            assert {word for cell in row for word in cell.split()} <= shown


def test_columns_break_between_words() -> None:
    head, rows = wrapped(("name", "what it says"), [("a-long-name", "one two three")], 24, ())
    assert head == ["name", "what it\nsays"]
    assert rows == [["a-long-name", "one two\nthree"]]


def test_one_claim_as_json_and_as_text() -> None:
    item = dse("claims", 14, "--json").json()
    assert item["claim"] == 14
    assert item["verdict"] in VERDICTS
    assert item["figures"]["measured_cliff"] == pytest.approx(398.4 / 272.7 - 1.0)
    assert all(len(row) == len(t["head"]) for t in item["tables"] for row in t["rows"])
    said = dse("claims", 14)
    assert said.code == 0
    assert fits(said.out, 100)
    assert item["verdict"].capitalize() in said.out


@pytest.mark.parametrize("number", ["0", "27", "99"])
def test_a_number_that_is_no_claim(number: str) -> None:
    said = dse("claims", number)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "1 to 26" in said.err


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    said = dse("claims", 17, "--markdown", tmp_path / "no" / "claims.md")
    assert said.code == 4
    assert "cannot be written" in said.err


def test_markdown_shows_text_as_it_is() -> None:
    one = Claim(7, "A_b | c*.", ("dse claims 7",), "Rule.", None)
    found = Finding(CONFIRMED, "1 < 2", {"x": None}, "", (Table("T", ("a|b",), (("_",),)),), "", "")
    text = markdown([(one, found)], "dse claims")
    assert "A\\_b \\| c\\*" in text
    assert "| a\\|b |" in text
    assert document([(one, found)])[0]["figures"] == {"x": None}


def test_a_point_is_predicted_as_estimate_does() -> None:
    answer = predict([Point("llama-3-70b", "h100_sxm", 8.0, concurrency=16.0)], 1000.0, 200.0)
    item = dse(
        "estimate", "--model", "llama-3-70b", "--chip", "h100_sxm", "--tp", 8, "--concurrency", 16,
        "--prompt-tokens", 1000, "--output-tokens", 200, "--json",
    ).json()  # fmt: skip
    for metric in ("tpot_s", "ttft_s", "decode_step_s", "usd_per_million_total_tokens"):
        assert answer[metric][0] == item[metric]


def test_the_smallest_group_holds_the_model_and_a_smaller_one_does_not() -> None:
    for point in smallest(
        ["llama-3-8b", "llama-3-70b", "deepseek-v3"], ["h100_sxm", "gb200_nvl72"]
    ):
        held = predict([point], serving="static")
        assert held.feasible[0]
        if point.tp > 1:
            ep = point.ep / 2.0 if point.ep > 1.0 else 1.0
            assert not predict(
                [point._replace(tp=point.tp / 2.0, ep=ep)], serving="static"
            ).feasible[0]


def test_a_batch_of_points_is_its_points() -> None:
    points = [
        Point("llama-3-8b", "h200_sxm", concurrency=4.0),
        Point("deepseek-v3", "b200_sxm", 8.0, ep=8.0, weight="fp8", kv="fp8"),
        Point("llama-3-8b", "b200_sxm", weight="fp8"),
    ]
    together = predict(points)
    for k, point in enumerate(points):
        assert predict([point])["tpot_s"][0] == together["tpot_s"][k]


def test_matched_rows_differ_in_the_chip_alone() -> None:
    pairs = matched.matched()
    chips = load_catalog().chips
    assert (pairs["chip_a"] != pairs["chip_b"]).all()
    assert all(
        (chips[a].year or 0) <= (chips[b].year or 0)
        for a, b in zip(pairs["chip_a"], pairs["chip_b"], strict=True)
    )
    hopper = pairs[(pairs["chip_a"] == "h100_sxm") & (pairs["chip_b"] == "h200_sxm")]
    assert hopper["flops"].eq(1.0).all()
    np.testing.assert_allclose(hopper["bandwidth"], 4.8 / 3.35)


def test_a_raised_figure_never_slows() -> None:
    values = bottleneck.elasticities("llama-3-8b", "h100_sxm", 1)
    assert set(values) == set(bottleneck.FIGURES)
    assert min(values.values()) >= -1e-9
    assert values["link bandwidth"] == 0.0  # one chip has no link to use
    assert values["memory bandwidth"] > 0.1


def test_equal_quality_pairs() -> None:
    best = pd.DataFrame(
        {
            "model": ["a", "b", "c"], "sparse": [True, False, False], "loss": [1.9, 1.905, 2.0],
            "equivalent": [1e9, 9e9, 1.1e9], "total": [4e9, 9e9, 1e9], "usd": [1.0, 3.0, 2.0],
        }
    )  # fmt: skip
    by_loss = experts.pairs_of(best, same_tokens=False)
    assert list(zip(by_loss["model_dense"], by_loss["ratio"], strict=True)) == [("b", 3.0)]
    by_size = experts.pairs_of(best, same_tokens=True)
    assert list(zip(by_size["model_dense"], by_size["ratio"], strict=True)) == [("c", 2.0)]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (digits(0.99999), "1.00"), (digits(1234.5), "1,230"), (digits(0.0123456), "0.0123"),
        (digits(None), "–"), (digits(0.0), "0"), (times(2.0), "2.00x"),
        (percent(0.9999), "99.9%"), (percent(1.0), "100%"), (percent(0.0), "0%"),
        (percent(0.0001), "0.1%"), (percent(0.253), "25%"),
    ],
)  # fmt: skip
def test_numbers_in_words(shown: str, expected: str) -> None:
    assert shown == expected
