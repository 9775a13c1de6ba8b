"""dse traffic as a person uses it."""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import dse, fits, sheets, unmarked


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """Ten minutes of random requests, more of them in the middle."""
    rng = np.random.default_rng(0)
    time = np.sort(rng.triangular(0.0, 300.0, 600.0, 2_000))
    prompt, output = rng.integers(50, 3_000, 2_000), rng.integers(5, 400, 2_000)
    path = tmp_path / "requests.csv"
    rows = "".join(f"{t:.3f},{p},{o}\n" for t, p, o in zip(time, prompt, output, strict=True))
    path.write_text(f"time,prompt,output\n{rows}", "utf-8")
    return path


def test_the_answer_comes_first_and_fits_the_console(
    space: Callable[..., Path], requests: Path
) -> None:
    said = dse(
        "traffic",
        space(),
        "--trace",
        requests,
        "--percentile",
        99,
        "--tpot",
        "40ms",
        "--lengths",
        2,
    )
    assert said.code == 0, said.err
    said_so = " ".join(said.out.split())
    assert said_so.split(" - ")[1].startswith("Take ")
    assert "99th percentile of times to first token within 2 s" in said_so
    assert fits(said.out, 100)


def test_the_document_holds_fleet_and_classes(space: Callable[..., Path], requests: Path) -> None:
    found = dse("traffic", space(), "--trace", requests, "--tpot", "40ms", "--json").json()
    best = found["fleets"][0]
    assert best["ttft_percentile_s"] <= found["ttft_s"] == 2.0
    assert best["tpot_s"] <= found["tpot_s"] == 0.04
    assert found["requests_per_s"]["busy"] > found["requests_per_s"]["mean"]
    assert len(found["classes"]) == 8


def test_a_rate_in_place_of_a_trace(space: Callable[..., Path]) -> None:
    found = dse("traffic", space(), "--rate", 30, "--tpot", "40ms", "--json").json()
    assert (found["prompt_tokens"], found["output_tokens"]) == (1024.0, 256.0)
    assert found["requests_per_s"] == {"mean": 30.0, "busy": 30.0}


def test_a_fleet_serves_at_least_what_it_is_sized_for(
    space: Callable[..., Path], requests: Path
) -> None:
    """And no more than its load says; up to that the fleet is the same, beyond it another."""

    def asked(rate: float) -> dict:
        found = dse("traffic", space(), "--rate", rate, "--tpot", "40ms", "--json").json()
        return found["fleets"][0]

    one = asked(100.0)
    assert 100.0 <= one["most_requests_per_s"] <= 100.0 / one["load"]
    same, more = (asked(share * one["most_requests_per_s"]) for share in (0.99, 1.05))
    assert same["usd_per_hour"] == one["usd_per_hour"]
    assert more["usd_per_hour"] > one["usd_per_hour"]


def test_the_files_say_what_the_document_says(
    space: Callable[..., Path], requests: Path, tmp_path: Path
) -> None:
    out = tmp_path / "traffic"
    options = ("--trace", requests, "--tpot", "40ms", "--json", "--out", out)
    found = dse("traffic", space(), *options).json()
    written = json.loads((out / "traffic.json").read_text("utf-8"))
    assert {name: written[name] for name in found} == found
    rows = list(csv.DictReader((out / "traffic.csv").read_text("utf-8").splitlines()))
    assert [row["chip"] for row in rows] == [one["chip"] for one in found["fleets"]]
    assert not any("{" in cell for row in rows for cell in row.values())
    page = (out / "traffic.html").read_text("utf-8")
    assert html.escape(found["answer"][0]) in unmarked(page)
    assert 'id="arrivals"' in page
    names = {"Answer", "Fleets", "Classes", "Arrivals", "Rests on"}
    assert names <= set(sheets(out / "traffic.xlsx"))


def test_a_dearer_hour_is_paid_for(space: Callable[..., Path], tmp_path: Path) -> None:
    prices = tmp_path / "mine.csv"
    prices.write_text(
        "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
        "h100_sxm,rental_3yr,100,us,2026-11,quote,\n", "utf-8",
    )  # fmt: skip
    options = ("--rate", 30, "--tpot", "40ms", "--json")
    found = dse("traffic", space(), *options, "--prices", prices).json()
    best = found["fleets"][0]
    assert best["usd_per_hour"] == pytest.approx(100.0 * best["chips"])
    assert "prices of yours (mine.csv): h100_sxm" in found["rests_on"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--rate", "3", "--tpot", "1s", "--out", ""), "--out"),
        ((), "neither --trace nor --rate"),
        (("--trace", "{}", "--rate", "3"), "one of the two"),
        (("--rate", "3"), "--tpot"),
        (("--rate", "3", "--tpot", "0s"), "above 0"),
        (("--rate", "3", "--tpot", "9 GB"), "--tpot"),
        (("--rate", "0", "--tpot", "1s"), "--rate"),
        (("--trace", "{}", "--tpot", "1s", "--window", "1h"), "--window"),
        (("--trace", "{}", "--tpot", "1s", "--window", "1ns"), "at least"),
        (("--trace", "no.csv", "--tpot", "1s"), "no such file"),
        (("--rate", "3", "--percentile", "95"), "--percentile"),
        (("--rat", "3"), "--rate"),
    ],
)
def test_what_is_refused(
    space: Callable[..., Path], requests: Path, arguments: tuple[str, ...], told: str
) -> None:
    words = [str(requests) if word == "{}" else word for word in arguments]
    said = dse("traffic", space(), *words)
    assert said.code == 2
    assert told in said.err
    assert not said.out


def test_shapes_are_not_searched() -> None:
    said = dse("traffic", "tiny", "--rate", 3)
    assert said.code == 2
    assert "a fleet serves one" in said.err


def test_targets_that_nothing_keeps(space: Callable[..., Path]) -> None:
    said = dse("traffic", space(), "--rate", 3, "--tpot", "1us")
    assert said.code == 3
    assert "keeps the targets" in said.err
    nearest = re.search(r"nearest is \w+, with .* and ([\d.]+) ms per token .*1 us", said.err)
    assert nearest is not None
    assert dse("traffic", space(), "--rate", 3, "--tpot", f"{1.01 * float(nearest[1])}ms").code == 0
    too_many = dse("traffic", space(), "--rate", "1e9", "--tpot", "1s")
    assert too_many.code == 3
    assert "each of so many is still overloaded" in too_many.err
