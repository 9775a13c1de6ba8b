"""`dse fleet` as a person uses it, and its messages."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
import re
import xml.etree.ElementTree as ET
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from dse.answer.answer import Formula
from dse.catalog import load_catalog
from dse.render.files import Sheet, workbook
from dse.schema.plan_reader import load_plan, shipped_plans
from tests.cli.conftest import ask, dse

PLAN = """\
name: small
title: A <b>small</b> plan
quarters: 2
price_basis: rental_3yr
largest_instance: 8
demand:
  - name: chat
    model: llama-3-8b
    requests_per_second: 60
    prompt_tokens: 1024
    output_tokens: 256
    ttft: 1 s
    tpot: 30 ms
chips:
  - chip: h100_sxm
  - chip: mi300x
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_answer_comes_first_and_the_files_agree(tmp_path: Path):
    answer = ask("fleet", written(tmp_path, PLAN), "--out", str(tmp_path / "out"))
    assert re.match(r"Rent \d+ \w+ on rental_3yr \(in quarter 1\): \$", answer["answer"][0])
    assert answer["feasible"] is True
    assert answer["status"] == "optimal"
    assert 0.0 <= answer["gap"] <= 1e-4
    names = {path.name for path in (tmp_path / "out").iterdir()}
    written_files = {f"fleet.{end}" for end in ("html", "md", "json", "csv", "xlsx")}
    assert names == written_files | {"memo.html"}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out/fleet.csv").read_text())))
    spent = sum(float(row["usd"]) for row in rows)
    assert spent == pytest.approx(answer["usd_undiscounted"], rel=1e-8)
    page = (tmp_path / "out/fleet.html").read_text()
    assert page.splitlines()[0].startswith("<!-- dse ")
    assert "A &lt;b&gt;small&lt;/b&gt; plan" in page
    with zipfile.ZipFile(tmp_path / "out/fleet.xlsx") as book:
        assert book.testzip() is None
        sheets = [name for name in book.namelist() if "worksheets" in name]
        assert len(sheets) >= 5
        for name in book.namelist():
            ET.fromstring(book.read(name))  # noqa: S314


def test_who_signs_reads_a_page_without_a_name_of_a_file(tmp_path: Path):
    text = PLAN.replace("chip: h100_sxm\n", "chip: h100_sxm\n    rent: {}\n    buy: {}\n")
    assert "buy: {}" in text
    said = dse("fleet", written(tmp_path, text), "--out", str(tmp_path / "out"))
    assert said.code == 0, said.err
    page = (tmp_path / "out/memo.html").read_text()
    words, figures = read(page)
    assert "NVIDIA H100 SXM5 80GB" in words
    for part in ("commits to", "rests on", "decide otherwise", "Ask each vendor", "order in"):
        assert part in words
    assert not re.findall(r"\w+_\w+", words)
    assert figures == {"cash", "errors", "power"}


def read(page: str) -> tuple[str, set[str]]:
    """The words of a memo, and the names of its pictures."""
    words = html.unescape(re.sub("<[^>]*>", "", page[page.index("<body") : page.index("<script")]))
    drawn = json.loads(re.search(r'id="page-data">(.*?)</script>', page)[1])  # type: ignore[index]
    words += " ".join([trace["name"] for one in drawn["figures"].values() for trace in one["data"]])
    return words, set(drawn["figures"])


def test_an_order_at_a_service_level_and_what_the_plain_one_serves(tmp_path: Path):
    """By option or by line of the plan, the same; the same seed draws the same futures."""
    plain = ask("fleet", written(tmp_path, PLAN))
    assert plain["futures"]["service_level"] is None
    served = round(100.0 * plain["futures"]["share"])
    assert any("Of 100 futures" in one and f"serve {served}" in one for one in plain["answer"])
    out = tmp_path / "out"
    said = dse("fleet", written(tmp_path, PLAN), "--service-level", "90%", "--out", str(out))
    assert said.code == 0, said.err
    answer = json.loads((out / "fleet.json").read_text())
    futures = answer["futures"]
    assert futures["service_level"] == 0.9
    assert futures["reached"] is True
    assert 0.9 <= futures["share"] <= 1.0
    assert futures["low"] <= futures["usd"] <= futures["high"]
    assert 0.0 <= futures["measuring_usd"] <= futures["waiting_usd"]
    assert answer["answer"][0].startswith("Order now: rent")
    now = {row["offer"]: row["servers"] for row in answer["orders"] if row["order_quarter"] == 1}
    assert now == futures["servers_now"]
    # Finance as predicted; what is not searched is named, not denied.
    money = answer["finance"]
    assert money["against_renting"] is None
    cash = sum(one["cash_usd"] for one in answer["by_quarter"])
    assert cash == pytest.approx(answer["usd_signed"])
    said_not = [one for one in answer["answer"] if one.startswith("Not said")]
    assert len(said_not) == 1
    words, figures = read((out / "memo.html").read_text())
    assert said_not[0] in words
    assert "of futures served" in words
    assert "Decide otherwise" not in words
    assert not re.findall(r"\w+_\w+", words)
    assert figures == {"cash", "errors", "power"}
    with zipfile.ZipFile(out / "fleet.xlsx") as book:
        assert 'name="totals"' in book.read("xl/workbook.xml").decode()
    line = PLAN + "service_level: 90 %\nuncertainty: {demand: 20 %}\n"
    assert ask("fleet", written(tmp_path, line))["futures"] == futures


def test_an_infeasible_plan_says_what_must_give(tmp_path: Path):
    text = PLAN + "limits:\n  chips: 8\n"
    text = text.replace("requests_per_second: 60", "requests_per_second: 2000")
    said = dse("fleet", written(tmp_path, text), "--json")
    assert said.code == 3
    answer = json.loads(said.out)
    assert answer["feasible"] is False
    assert answer["usd"] is None
    named = [row["limits"] for row in answer["must_give"]]
    assert ["chips"] in named
    assert "The number of chips rises from 8 to " in said.err


def test_pools_of_two_chips_are_options(tmp_path: Path):
    text = PLAN.replace("largest_instance: 8", "largest_instance: 2\ndisaggregated: true")
    said = ask("fleet", written(tmp_path, text))
    mixed = [row for row in said["options"] if len(row["chips"]) == 2]
    assert any("prefill on" in row["on"] and "decode on" in row["on"] for row in mixed)
    assert all(row["ttft_s"] <= 1.0 and row["tpot_s"] <= 0.03 for row in mixed)


def test_a_rent_that_may_be_broken_is_held_for_any_time_from_then_on(tmp_path: Path):
    rent = "rent: {price: 2 USD/h, term_quarters: 12, break: {after_quarters: 2, fee_quarters: 3}}"
    text = PLAN.replace("chip: h100_sxm\n", f"chip: h100_sxm\n    {rent}\n")
    plan = load_plan(
        written(tmp_path, text.replace("quarters: 2\n", "quarters: 4\n")), load_catalog()
    )
    found = {o.term_quarters: o for o in plan.offers if o.chip == "h100_sxm"}
    assert sorted(found) == [2, 3, 4, 12]
    for time in (2, 3, 4):  # all that is paid: the rent of that time, and three quarters of it
        assert found[time].usd * time == pytest.approx(2.0 * (time + 3))
    assert found[12].usd == 2.0
    assert found[3].label == "h100_sxm, rent, back after 3 quarters"
    for wrong, says in (("after_quarters: 12", "fewer than the term"), ("fee_quarters: -1", "fee")):
        bad = text.replace(wrong.split(":")[0] + (": 2" if "after" in wrong else ": 3"), wrong)
        said = dse("fleet", written(tmp_path, bad))
        assert (said.code, said.out) == (2, "")
        assert says in said.err


RENTS = "    rent: {price: %s, term_quarters: 4}\n"
RATE, TTFT, TPOT = "requests_per_second: 60", "ttft: 1 s", "tpot: 30 ms"


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (RATE, "tokens_per_day: 1B/day", (RATE, "tokens_per_day: 1000000000")),
        (RATE, "tokens_per_day: 0.001T", (RATE, "tokens_per_day: 1B")),
        (TTFT, "ttft: 1000 ms", (TTFT, TTFT)),
        (
            "chip: h100_sxm\n",
            "chip: h100_sxm\n" + RENTS % "2 EUR/h",
            ("chip: h100_sxm\n", "chip: h100_sxm\n" + RENTS % "2.32 USD/h"),
        ),
    ],
)
def test_other_words_for_the_same_plan_are_read_alike(
    old: str, new: str, same: tuple[str, str], tmp_path: Path
):
    rate = "currency: {EUR: {usd: 1.16, date: 2026-11-20, source: ECB}}\n"
    catalog = load_catalog()
    one, other = (
        load_plan(written(tmp_path, PLAN.replace(*change, 1) + rate), catalog)
        for change in ((old, new), same)
    )
    assert one.demand == other.demand
    assert [offer.usd for offer in one.offers] == [offer.usd for offer in other.offers]
    assert one.assumed[0] == "1 EUR is 1.16 USD (2026-11-20, ECB)"


CHIPS = "  - chip: h100_sxm\n  - chip: mi300x\n"
BUY = PLAN.replace(CHIPS, "  - {chip: h100_sxm, buy: {}}\n").replace("quarters: 2", "quarters: 1")


def test_prices_and_costs_of_the_users_own_are_used_and_said(tmp_path: Path):
    """What is bought costs what `dse catalog prices list` says, with the file as without."""
    costs, prices = tmp_path / "costs.yaml", tmp_path / "prices.csv"
    costs.write_text("life: 4 years\nchips: {h100_sxm: {price: 20000 USD}}\n")
    prices.write_text(
        "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
        "h100_sxm,rental_3yr,0.9,us,2026-01,quote,\n"
    )
    plan = written(tmp_path, BUY)
    bought = [
        ask("fleet", plan, *flags)["owned_prices"][0] for flags in ((), ("--costs", str(costs)))
    ]
    assert [part["name"] for part in bought[0]["parts"]][:2] == ["server with chip", "network"]
    for price, flags in zip(bought, ((), ("--costs", str(costs))), strict=True):
        one = ("--chip", "h100_sxm", "--basis", "owned_tco")
        listed = ask("catalog", "prices", "list", *one, *flags)["prices"]
        assert price["usd_per_chip_hour"] == pytest.approx(listed[0]["usd_per_chip_hour"])
    assert bought[1]["usd_per_chip_hour"] < bought[0]["usd_per_chip_hour"]
    said = dse("fleet", plan, "--costs", str(costs), "--detail")
    assert "20000 USD x 1.4 (server) x 1.19 (network)" in " ".join(said.out.split())
    assert dse("fleet", plan, "--out", str(tmp_path / "out")).code == 0
    with zipfile.ZipFile(tmp_path / "out/fleet.xlsx") as book:
        names = ET.fromstring(book.read("xl/workbook.xml"))  # noqa: S314
    assert "parts" in [node.get("name") for node in names.iter()]
    rented = ask("fleet", written(tmp_path, PLAN), "--prices", str(prices), "--as-of", "2026-06")
    offer = next(row for row in rented["prices"] if row["offer"].startswith("h100"))
    assert offer["price_usd"] == 0.9
    assert any("prices.csv" in text for text in rented["assumed"])
    assert any("2026-06" in text for text in rented["assumed"])


def test_a_percentile_of_random_arrivals_holds_at_the_rate_that_is_used(tmp_path: Path):
    text = PLAN.replace("tpot:", "percentile: 99\n    tpot:").replace("ttft: 1 s", "ttft: 200 ms")
    answer = ask("fleet", written(tmp_path, text))
    option = next(row for row in answer["options"] if row["chips"] == {"h100_sxm": 1})
    assert option["percentile"] == 99
    rates = (option["requests_per_s"], 1.01 * option["requests_per_s"])
    first, token = zip(*(arriving(rate) for rate in rates), strict=True)
    assert first[0] == pytest.approx(option["ttft_s"], rel=1e-6)
    assert first[0] <= 0.2
    assert token[0] <= 0.03
    assert first[1] > 0.2 or token[1] > 0.03
    steady = ask("fleet", written(tmp_path, PLAN))
    most = next(row for row in steady["options"] if row["chips"] == {"h100_sxm": 1})
    assert option["requests_per_s"] < most["requests_per_s"]
    assert any("Poisson" in text and "99%" in text for text in answer["assumed"])


@pytest.mark.usefixtures("few_futures")
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt-oss-120b"])
def test_random_arrivals_never_serve_more_than_a_steady_load(tmp_path: Path, model: str):
    """Whatever the percentile, and the fewer the rarer it is."""
    text = PLAN.replace("llama-3-8b", model).replace("ttft: 1 s", "ttft: 300 ms")
    text = text.replace("largest_instance: 8", "largest_instance: 2")
    text = text.replace("  - chip: mi300x\n", "")
    rates = []
    for line in ("", "percentile: 50\n    ", "percentile: 90\n    ", "percentile: 99\n    "):
        options = ask("fleet", written(tmp_path, text.replace("tpot:", line + "tpot:")))["options"]
        rates.append({row["on"]: row["requests_per_s"] for row in options})
    for more, fewer in itertools.pairwise(rates):
        for on in more.keys() & fewer.keys():
            assert fewer[on] <= more[on] * (1.0 + 1e-9)


def arriving(rate: float) -> tuple[float, float]:
    """The 99th percentile of the first token, and the time per token, of one H100."""
    said = dse(
        "estimate --model llama-3-8b --chip h100_sxm --serving poisson --set",
        f"requests_per_second={rate}",
        "--prompt-tokens",
        "1024",
        "--output-tokens",
        "256",
        "--json",
    )
    found = json.loads(said.out)
    return found["ttft_p99_s"], found["tpot_s"]


def test_a_trace_stands_for_lengths_and_rates(tmp_path: Path):
    """Two requests a second for a minute, then one: 1.5 in the mean, 2 in the busiest window."""
    times = [k / 2 for k in range(120)] + [60.0 + k for k in range(61)]
    rows = [f"{time},1000,{300 if k % 2 else 100}" for k, time in enumerate(times)]
    (tmp_path / "asked.csv").write_text("\n".join(["time,prompt,output", *rows]) + "\n")
    lines = ("requests_per_second: 60", "prompt_tokens: 1024", "output_tokens: 256")
    text = PLAN
    for line in lines:
        text = text.replace(f"    {line}\n", "" if line != lines[0] else "    trace: asked.csv\n")
    found = load_plan(written(tmp_path, text), load_catalog()).demand[0]
    assert found.requests_per_s == pytest.approx(180 / 120)
    assert found.peak_over_average == pytest.approx(2.0 / 1.5)
    assert found.mean.prompt_tokens == pytest.approx(1000.0)
    assert found.mean.output_tokens == pytest.approx(200.0, rel=0.01)
    assert len(found.streams) == 1
    text = text.replace("tpot:", "percentile: 90\n    tpot:")
    assert len(load_plan(written(tmp_path, text), load_catalog()).demand[0].streams) == 2
    said = ask("fleet", written(tmp_path, text))
    assert any("asked.csv" in text for text in said["assumed"])
    said = dse("fleet", written(tmp_path, text.replace("asked", "absent")))
    assert said.code == 2
    assert "absent.csv: no such file" in said.err
    said = dse("fleet", written(tmp_path, text.replace("tpot:", "window: 200 s\n    tpot:")))
    assert said.code == 2
    assert "demand[0].window" in said.err


def test_near_names(tmp_path: Path):
    said = dse("fleet", "dense-70b-billion-token")
    assert said.code == 2
    assert "did you mean dense-70b-billion-tokens?" in said.err
    assert dse("fleet", str(tmp_path / "none.yaml")).code == 2


@pytest.mark.usefixtures("few_futures")
def test_a_chip_file_is_named_by_its_path_or_by_its_id(tmp_path: Path):
    mine = tmp_path / "a, b.yaml"
    mine.write_text(
        "{id: mine, name: Mine, efficiency: class_gpu, memory_capacity: 96 GB, tdp: 700 W,"
        " memory_bandwidth: 4 TB/s, peak_bf16: 900 TFLOP/s, prices: {rental_3yr: 1.5 USD/h}}"
    )
    load = ["--demand", "1B/day", "--prompt-tokens", 2048, "--output-tokens", 512, "--json"]
    asked = ["fleet", "--model", "llama-3-8b", *load]
    by_path = dse(*asked, "--chip", mine, "--chip", "h100_sxm").json()
    by_id = dse(*asked, "--chip-file", mine, "--chip", "mine", "--chip", "h100_sxm").json()
    plain = mine.rename(tmp_path / "mine.yaml")
    assert by_path["usd"] == by_id["usd"]
    assert dse(*asked, "--chip", f"{plain},h100_sxm").json()["usd"] == by_id["usd"]
    assert by_path["options"] == by_id["options"]
    assert {name for one in by_path["options"] for name in one["chips"]} == {"mine", "h100_sxm"}
    said = dse(*asked, "--chip", tmp_path / "none.yaml")
    assert (said.code, said.err) == (2, f"dse: {tmp_path / 'none.yaml'}: no such file\n")


def test_every_shipped_plan_is_read():
    catalog = load_catalog()
    assert len(shipped_plans()) == 3
    for name, path in shipped_plans().items():
        assert load_plan(path, catalog).name == name
        assert path.read_text().splitlines()[0] == f"# dse fleet {name}"


def test_a_workbook_holds_what_it_was_given():
    rows = [["x & <y>", 1.5, None, 3], ["\x07bell", Formula("B1*2<4", 3.5)]]
    made = workbook([Sheet("A/B", rows)])
    assert made == workbook([Sheet("A/B", rows)])
    with zipfile.ZipFile(io.BytesIO(made)) as book:
        sheet = ET.fromstring(book.read("xl/worksheets/sheet1.xml"))  # noqa: S314
        names = ET.fromstring(book.read("xl/workbook.xml"))  # noqa: S314
    texts = [node.text for node in sheet.iter() if node.text]
    assert texts == ["x & <y>", "1.5", "3", "bell", "B1*2<4", "3.5"]
    assert [pane.get("ySplit") for pane in sheet.iter() if pane.tag.endswith("pane")] == ["1"]
    assert "A B" in [node.get("name") for node in names.iter()]


NAME = "deepseek-v3-two-megawatts"


def test_a_shipped_plan_is_copied_and_solved_the_same(tmp_path: Path):
    shown = dse("fleet", NAME, "--show")
    for more in (["--json"], ["--out", tmp_path / "out"]):
        said = dse("fleet", NAME, "--show", *more)
        assert (said.code, said.out) == (2, "")
        assert f"{more[0]} does not go with --show" in said.err
    assert shown.out.startswith(f"# dse fleet {NAME}\n")
    mine = tmp_path / "mine.yaml"
    mine.write_text(shown.out, encoding="utf-8")
    catalog = load_catalog()
    one, other = load_plan(mine, catalog), load_plan(shipped_plans()[NAME], catalog)
    assert replace(one, file="") == replace(other, file="")


def test_costs_of_an_unknown_chip_name_the_plan(tmp_path: Path):
    mine = written(tmp_path, PLAN + "costs: {chips: {h100: {power: 1 kW}}}\n")
    said = dse("fleet", mine)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"dse: {mine}: chips: unknown chip 'h100'; did you mean h100_sxm?")
