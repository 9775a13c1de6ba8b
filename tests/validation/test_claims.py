"""The claims: each once, verdicts that follow from numbers, commands that exist, a page that can be
made again."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest

from dse.accuracy.claims import bottleneck, experts, jitter, matched, racks, sram
from dse.accuracy.claims.engine import (
    CONFIRMED,
    CONTRADICTED,
    QUALIFIED,
    VERDICTS,
    Fact,
    Finding,
    Table,
    TableSpec,
    claim,
    claims,
    fill,
)
from dse.accuracy.claims.jitter import Band
from dse.accuracy.claims.points import Point, predict, smallest
from dse.accuracy.claims.present import claim_answer, claims_answer
from dse.accuracy.claims.sram import Shares
from dse.answer.numbers import digits, percent, times
from dse.catalog import load_catalog
from dse.cli import cli
from dse.render.markdown import escape
from dse.render.plain_table import wrapped
from dse.schema.rack import load_rack, shipped_racks
from tests.cli.conftest import dse, fits
from tools.claims_page import COMMAND
from tools.claims_page import page as claims_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "claims.md"
# Elasticities of a case, by the figure that is the largest.
MEMORY, LINK, POWER, FLOPS = (
    dict.fromkeys(bottleneck.FIGURES, 0.1) | {figure: 0.2}
    for figure in ("memory bandwidth", "link bandwidth", "power", "FLOP/s")
)
QUICK = (2, 8, 14)  # made again here; all of them take a minute under load


CLAIMS = tuple(claims())


def test_every_claim_is_in_one_file() -> None:
    assert tuple(range(1, 27)) == CLAIMS
    assert [claim(number).number for number in CLAIMS] == list(CLAIMS)


@pytest.mark.parametrize("number", CLAIMS)
def test_a_claim_says_what_it_is(number: int) -> None:
    one = claim(number)
    assert one.text.endswith(".")
    assert one.rule.endswith(".")
    assert one.commands[0] == f"dse validate --claims {number}"


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


# The facts that the verdict of a claim rests on.
FACTS = {
    1: ("decode_least", "prefill_compute_share", "largest_least"),
    2: ("below_floor", "floor_lowered_by_batch", "measured_below_floor"),
    3: ("least_step_ratio_any_pair", "elsewhere"),
    4: ("faster", "loaded_sparse_least", "loaded_dense_most"),
    5: ("known", "largest_instance_of_best_most"),
    6: ("slowdown_least", "slowdown_most", "share_inside_most", "share_across_least"),
    8: ("rank_bandwidth", "rank_flops", "measured_error_bandwidth", "measured_error_flops"),
    9: ("bandwidth_ratio_least", "bandwidth_ratio_most", "capacity_ratio_least", "kept_most"),
    11: ("largest_held_b", "least_refused_b", "many_chips"),
    12: ("touched", "alone", "bend_over_domain"),
    13: ("cells_helped", "helped"),
    14: ("measured_cliff", "measured_power_of_two_gain", "best_tile"),
    15: ("about", "most", "joules_fall_with_batch"),
    20: ("predicted_h200_over_h100", "measured_h200_over_h100", "groq_over_h100"),
    21: ("hold_today", "held_then", "uses"),
    22: ("cheaper", "sparse_among_best"),
    24: ("share_flat",),
}


@pytest.mark.parametrize(
    ("number", "values", "expected"),
    [
        (1, (0.99, 0.9, 0.95), CONFIRMED),
        (1, (0.99, 0.9, 0.7), QUALIFIED),
        (1, (0.7, 0.99, 0.99), CONTRADICTED),
        (2, (0.0, 0.0, 0.0), CONFIRMED),
        (2, (0.0, 0.0, 0.2), QUALIFIED),
        (2, (1e-06, 0.0, 0.0), CONTRADICTED),
        (2, (0.0, 1e-06, 0.0), CONTRADICTED),
        (3, (1.0, 1.0), CONFIRMED),
        (3, (1.01, 0.4), QUALIFIED),
        (3, (0.9, 1.0), CONTRADICTED),
        (4, (1.0, 2.0, 1.5), CONFIRMED),
        (4, (1.0, 1.2, 1.5), QUALIFIED),
        (4, (0.0, 1.0, 0.5), CONTRADICTED),
        (5, (1.0, 0.9), CONFIRMED),
        (5, (0.75, 0.9), QUALIFIED),
        (5, (0.0, 1.0), CONTRADICTED),
        (6, (8.0, 9.0, 0.1, 0.5), CONFIRMED),
        (6, (2.0, 3.0, 0.1, 0.5), QUALIFIED),
        (6, (1.0, 1.1, 0.1, 0.5), CONTRADICTED),
        (8, (0.9, 0.8, 0.1, 0.2), CONFIRMED),
        (8, (0.9, 0.8, 0.2, 0.1), QUALIFIED),
        (8, (0.7, 0.8, 0.2, 0.1), CONTRADICTED),
        (9, (10.0, 12.0, 2.0, 0.1), CONFIRMED),
        (9, (12.0, 50.0, 2.0, 0.1), QUALIFIED),
        (9, (10.0, 10.0, 2.0, 0.7), CONTRADICTED),
        (11, (20.0, 27.0, 1.0), CONFIRMED),
        (11, (20.0, 40.0, 1.0), QUALIFIED),
        (11, (8.0, 20.0, 0.0), CONTRADICTED),
        (12, (1.0, 1.0, 1.5), CONFIRMED),
        (12, (1.0, 1.0, 3.0), QUALIFIED),
        (12, (1.0, 0.5, 1.5), QUALIFIED),
        (12, (0.0, 0.0, 1.0), CONTRADICTED),
        (13, (9.0, 0.9), CONFIRMED),
        (13, (1.0, 0.5), QUALIFIED),
        (13, (0.0, 0.0), CONTRADICTED),
        (14, (0.4, 0.1, 0.1), CONFIRMED),
        (14, (0.4, 0.01, 0.0), QUALIFIED),
        (14, (0.01, 0.01, 0.01), CONTRADICTED),
        (15, (1.0, 800.0, 10.0), CONFIRMED),
        (15, (1.0, 2300.0, 10.0), QUALIFIED),
        (15, (0.0, 25.0, 10.0), CONTRADICTED),
        (15, (1.0, 800.0, 1.5), CONTRADICTED),
        (20, (1.3, 1.2, 9.0), CONFIRMED),
        (20, (1.3, 1.2, None), QUALIFIED),
        (20, (1.3, 1.2, 2.0), QUALIFIED),
        (20, (1.0, 1.0, 10.0), CONTRADICTED),
        (21, (2.0, 2.0, 2.0), CONFIRMED),
        (21, (0.0, 1.0, 2.0), QUALIFIED),
        (21, (0.0, 0.0, 2.0), CONTRADICTED),
        (22, (0.95, 0.8), CONFIRMED),
        (22, (0.95, 0.3), QUALIFIED),
        (22, (0.4, 0.8), CONTRADICTED),
        (24, (1.0,), CONFIRMED),
        (24, (0.5,), QUALIFIED),
        (24, (0.0,), CONTRADICTED),
    ],
)
def test_verdicts_follow_the_numbers(
    number: int, values: tuple[float | None, ...], expected: str
) -> None:
    assert claim(number).judge(dict(zip(FACTS[number], values, strict=True))) == expected


@pytest.mark.parametrize(
    ("compute", "cases", "network", "expected"),
    [
        (0.1, [MEMORY, LINK, POWER], (0.1, 0.2), CONFIRMED),
        (0.1, [MEMORY, LINK, POWER], (0.2, 0.1), QUALIFIED),
        (0.1, [MEMORY, LINK, LINK], (0.1, 0.2), QUALIFIED),
        (0.1, [MEMORY, LINK, POWER, FLOPS], (0.1, 0.2), QUALIFIED),
        (0.1, [FLOPS, FLOPS, LINK], (0.1, 0.2), CONTRADICTED),
        (0.6, [MEMORY, LINK, POWER], (0.1, 0.2), CONTRADICTED),
    ],
)
def test_what_binds_follows_the_elasticities(
    compute: float, cases: list[dict[str, float]], network: tuple[float, float], expected: str
) -> None:
    facts = {
        "decode_compute_largest": compute,
        "network_share_oldest": network[0],
        "network_share_newest": network[1],
    }
    assert claim(25).judge(facts | bottleneck.first_facts(cases)) == expected


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [
        (Band([(8, 1), (1, 1)], 4, 4), Band([(8, 1)], 2, 2), CONFIRMED),
        (Band([(8, 1), (1, 1)], 4, 4), Band([(8, 1)], 1, 2), QUALIFIED),
        (Band([(8, 1)], 4, 4), Band([(8, 8)], 1, 4), QUALIFIED),
        (Band([(8, 8)], 1, 4), Band([(8, 8)], 0, 4), CONTRADICTED),
    ],
)
def test_jitter_must_matter_in_both_bands(small: Band, large: Band, expected: str) -> None:
    facts = jitter.band_facts(jitter.SMALL, small) | jitter.band_facts(jitter.LARGE, large)
    assert claim(7).judge(facts) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([Shares(0.0, 0.02, 0.2), Shares(0.0, 0.05, 0.6)], CONFIRMED),
        ([Shares(0.0, 0.95, 0.2), Shares(0.0, 0.9, 0.6)], QUALIFIED),
        ([Shares(0.0, 0.02, 0.2), Shares(0.2, 0.3, 0.2)], QUALIFIED),
        ([Shares(0.2, 0.9, 0.2)], CONTRADICTED),
    ],
)
def test_a_wafer_avoids_what_small_chips_pay(rows: list[Shares], expected: str) -> None:
    assert claim(10).judge(sram.wafer_facts(rows)) == expected


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ([("rack_power", "rack_cooling"), ("rack_cables",)], CONFIRMED),
        ([("rack_power", "rack_space")], QUALIFIED),
        ([(racks.SWITCHES, "rack_power")], QUALIFIED),
        ([("rack_power",), ()], QUALIFIED),
        ([("rack_space",), ()], CONTRADICTED),
    ],
)
def test_racks_end_by_named_bounds(ended: list[tuple[str, ...]], expected: str) -> None:
    assert claim(12).judge(racks.end_facts(ended) | {"bend_over_domain": 1.5}) == expected


def test_a_figure_that_does_not_apply_holds_in_no_comparison() -> None:
    one = claim(24)
    assert one.judge({"share_flat": None}) == QUALIFIED
    with pytest.raises(KeyError):
        one.judge({})


def test_texts_name_figures() -> None:
    facts: dict[str, Fact] = {"a": 0.25, "b": None, "c": "some", "d": 1234.0}
    assert fill("{a:percent} {a} {b:times} {c} {d:,.0f}", facts) == "25% 0.25 – some 1,234"


@pytest.mark.parametrize("number", QUICK)
def test_the_page_is_what_the_command_makes_again(number: int) -> None:
    one = claim(number)
    row = claims_page([(one, one.found())]).rstrip().splitlines()[-1]
    page = PAGE.read_text(encoding="utf-8")
    assert row.startswith(f"| {number} | ")
    assert f"\n{row}\n" in page, COMMAND


def test_the_page_has_every_claim_once_and_counts_the_verdicts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    words = "|".join(VERDICTS)
    rows = re.findall(rf"^\| (\d+) \| .* \| ({words}) \| ", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(CLAIMS)
    line = re.search(r"^Of (\d+) claims about models and hardware: (.*)\.$", page, re.MULTILINE)
    assert line is not None
    said = {word: int(count) for count, word in re.findall(r"(\d+) ([a-z ]+)", line[2])}
    assert said == Counter(verdict for _, verdict in rows)
    assert int(line[1]) == len(rows)


def test_trips_over_the_mesh_are_interconnect_of_a_wafer() -> None:
    """GPT-NeoX-20B on one WSE-3 uses no link; what its kernels wait for is the mesh."""
    found = sram.fitted("gpt-neox-20b", "wse3", "bf16")
    row = found["fastest"]
    explained = dse(
        "estimate",
        "--model",
        "gpt-neox-20b",
        "--chip",
        "wse3",
        "--weight-dtype",
        "bf16",
        "--concurrency",
        1,
        "--prompt-tokens",
        1536,
        "--output-tokens",
        512,
        "--detail",
        "--json",
    ).json()
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
    item, said = (
        dse("validate", "--claims", number, "--json").json(),
        dse("validate", "--claims", number),
    )
    assert fits(said.out, 100)
    shown = set(said.out.split())
    for table in item["tables"]:
        for row in (table["head"], *table["rows"]):
            assert {word for cell in row for word in cell.split()} <= shown


def test_columns_break_between_words() -> None:
    head, rows = wrapped(("name", "what it says"), [("a-long-name", "one two three")], 22, ())
    assert head == ["name", "what it\nsays"]
    assert rows == [["a-long-name", "one two\nthree"]]


def test_one_claim_as_json_and_as_text() -> None:
    item = dse("validate", "--claims", 14, "--json").json()
    assert item["claim"] == 14
    assert item["verdict"] in VERDICTS
    assert item["figures"]["measured_cliff"] == pytest.approx(398.4 / 272.7 - 1.0)
    assert all(len(row) == len(t["head"]) for t in item["tables"] for row in t["rows"])
    said = dse("validate", "--claims", 14)
    assert said.code == 0
    assert fits(said.out, 100)
    assert item["verdict"].capitalize() in said.out


@pytest.mark.parametrize("number", ["0", "27", "99"])
def test_a_number_that_is_no_claim(number: str) -> None:
    said = dse("validate", "--claims", number)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "1 to 26" in said.err


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "no").write_text("a file")
    said = dse("validate", "--claims", 17, "--out", tmp_path / "no")
    assert said.code == 4
    assert "Traceback" not in said.err


def test_files_hold_the_evidence_that_the_console_shows(tmp_path: Path) -> None:
    said = dse("validate", "--claims", 16, "--out", tmp_path, "--json")
    item = said.json()
    assert (
        json.loads((tmp_path / "claim.json").read_text(encoding="utf-8"))["tables"]
        == (item["tables"])
    )
    page = (tmp_path / "claim.html").read_text(encoding="utf-8")
    text = (tmp_path / "claim.md").read_text(encoding="utf-8")
    assert escape(item["number"]) in text
    assert html.escape(item["number"]) in html.unescape(page)
    for table in item["tables"]:
        for row in (table["head"], *table["rows"]):
            assert f"| {' | '.join(map(escape, row))} |" in text
            assert all(html.escape(cell) in page for cell in row)


HOSTILE = "A_b | c* <b>x</b> & `d`"


def test_every_format_shows_text_as_it_is() -> None:
    """No word of a claim is markup: not of its texts, titles, heads or cells."""
    one = replace(claim(7), text=f"{HOSTILE} text.", rule=f"{HOSTILE} rule.")
    tables = (Table(f"{HOSTILE} title", (f"{HOSTILE} head",), ((f"{HOSTILE} cell",),)),)
    number, conditions = f"{HOSTILE} number", f"{HOSTILE} conditions"
    found = Finding(CONFIRMED, number, {"x": None}, conditions, tables, "", "")
    escaped = r"A\_b \| c\* &lt;b&gt;x&lt;/b&gt; &amp; \`d\` "
    alone, listed = claim_answer(one, found), claims_answer([(one, found)])
    for answer, said in (
        (alone, ("text", "number", "rule", "conditions", "title", "head", "cell")),
        (listed, ("text", "number")),
    ):
        text, page = answer.to_markdown(), answer.to_html()
        assert "<b>x" not in text
        assert "<b>x" not in page
        for word in said:
            assert escaped + word in text, word
            assert f"A_b | c* &lt;b&gt;x&lt;/b&gt; &amp; `d` {word}" in page, word
    assert alone.document["figures"] == {"x": None}
    assert alone.document["tables"][0]["rows"] == ((f"{HOSTILE} cell",),)


def test_a_template_says_several_values_of_one_cell() -> None:
    spec = TableSpec("of {n}", ("a | times", "b | {0:ms} in {1}", "c", "d | .1f"))
    filled = spec.filled([(2.0, (0.5, 4), None, 1.25), (None, None, "x", 3)], {"n": 2})
    assert filled.title == "of 2"
    assert filled.rows == (("2.00x", "500 ms in 4", "–", "1.2"), ("–", "–", "x", "3.0"))
    with pytest.raises(TypeError, match="without a template"):
        TableSpec("", ("a",)).filled([((1, 2),)], {})


def test_a_point_is_predicted_as_estimate_does() -> None:
    answer = predict([Point("llama-3-70b", "h100_sxm", 8.0, concurrency=16.0)], 1000.0, 200.0)
    item = dse(
        "estimate",
        "--model",
        "llama-3-70b",
        "--chip",
        "h100_sxm",
        "--tp",
        8,
        "--concurrency",
        16,
        "--prompt-tokens",
        1000,
        "--output-tokens",
        200,
        "--json",
    ).json()
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
            "model": ["a", "b", "c"],
            "sparse": [True, False, False],
            "loss": [1.9, 1.905, 2.0],
            "equivalent": [1e9, 9e9, 1.1e9],
            "total": [4e9, 9e9, 1e9],
            "usd": [1.0, 3.0, 2.0],
        }
    )
    by_loss = experts.pairs_of(best, same_tokens=False)
    assert list(zip(by_loss["model_dense"], by_loss["ratio"], strict=True)) == [("b", 3.0)]
    by_size = experts.pairs_of(best, same_tokens=True)
    assert list(zip(by_size["model_dense"], by_size["ratio"], strict=True)) == [("c", 2.0)]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (digits(0.99999), "1.00"),
        (digits(1234.5), "1,230"),
        (digits(0.0123456), "0.0123"),
        (digits(None), "–"),
        (digits(0.0), "0"),
        (times(2.0), "2.00x"),
        (percent(0.9999), "99.9%"),
        (percent(1.0), "100%"),
        (percent(0.0), "0%"),
        (percent(0.0001), "0.1%"),
        (percent(0.253), "25%"),
    ],
)
def test_numbers_in_words(shown: str, expected: str) -> None:
    assert shown == expected
