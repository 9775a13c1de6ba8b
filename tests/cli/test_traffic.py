"""`dse fleet` for a trace of requests, as a person uses it."""

from __future__ import annotations

import csv
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Said, ask, dse, fits, on_page, sheets, unmarked

pytestmark = pytest.mark.usefixtures("few_futures")


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of random requests, more of them in the middle."""
    rng = np.random.default_rng(0)
    time = np.sort(rng.triangular(0.0, 300.0, 600.0, 2_000))
    prompt, output = rng.integers(50, 3_000, 2_000), rng.integers(5, 400, 2_000)
    path = tmp_path_factory.mktemp("trace") / "requests.csv"
    rows = "".join(f"{t:.3f},{p},{o}\n" for t, p, o in zip(time, prompt, output, strict=True))
    path.write_text(f"time,prompt,output\n{rows}", "utf-8")
    return path


ASK = ("fleet", "--model", "llama-3-8b", "--chip", "h100_sxm,mi300x", "--tpot-limit", "40ms")
LENGTHS = ("--prompt-tokens", 1024, "--output-tokens", 256)


@pytest.fixture(scope="module")
def answered(requests: Path) -> tuple[Said, Path]:
    """What is said of a fleet for the trace, and the folder of its files."""
    out = requests.parent / "fleet"
    said = dse(*ASK, "--trace", requests, "--percentile", 99, "--set", "lengths=2", "--out", out)
    assert said.code == 0, said.err
    return said, out


@pytest.fixture(scope="module")
def found(answered: tuple[Said, Path]) -> dict[str, Any]:
    """The document of that fleet."""
    return json.loads((answered[1] / "fleet.json").read_text("utf-8"))


def test_the_answer_comes_first_and_fits_the_console(answered: tuple[Said, Path]) -> None:
    said, _ = answered
    said_so = " ".join(said.out.split())
    assert said_so.split(" - ")[1].startswith("Rent ")
    assert "99th percentile of times to first token within 2 s" in said_so
    assert fits(said.out, 100)


def test_the_document_holds_fleet_and_classes(found: dict[str, Any]) -> None:
    best, asked = found["fleets"][0], found["demand"][0]
    assert best["ttft_percentile_s"] <= asked["ttft_s"] == 2.0
    assert best["tpot_s"] <= asked["tpot_s"] == 0.04
    assert asked["peak_requests_per_s"] > asked["mean_requests_per_s"]
    assert len(found["streams"]) == 2 * 2  # of prompts and outputs
    assert found["quarters"] == 1


def test_a_rate_or_tokens_in_place_of_a_trace() -> None:
    found = ask(*ASK, "--requests-per-second", 30, *LENGTHS)["demand"][0]
    assert (found["prompt_tokens"], found["output_tokens"]) == (1024.0, 256.0)
    assert found["mean_requests_per_s"] == found["peak_requests_per_s"] == 30.0
    words = ("--demand", f"{30 * 1280}/s", "--peak-over-average", 2)
    tokens = ask(*ASK, *words, *LENGTHS)["demand"][0]
    assert tokens["mean_requests_per_s"] == pytest.approx(30.0)
    assert tokens["peak_requests_per_s"] == pytest.approx(60.0)


def test_a_fleet_serves_at_least_what_it_is_sized_for() -> None:
    """Up to the most that it serves the fleet is the same, beyond it another."""

    def asked(rate: float) -> dict:
        asked = "fleet --model llama-3-8b --chip h100_sxm --requests-per-second"
        return ask(asked, rate, *LENGTHS)

    def used(found: dict) -> int:
        return found["chips"][0]["serving_chips"]

    one = asked(100.0)
    most = one["fleets"][0]["most_requests_per_s"]
    assert most >= 100.0
    same, more = asked(0.99 * most), asked(1.05 * most)
    assert used(same) == used(one)
    assert used(more) > used(one)


def test_the_files_say_what_the_document_says(
    answered: tuple[Said, Path], found: dict[str, Any]
) -> None:
    _, out = answered
    rows = list(csv.DictReader((out / "fleet.csv").read_text("utf-8").splitlines()))
    assert {row["chip"] for row in rows} == {one["chip"] for one in found["orders"]}
    assert not any("{" in cell for row in rows for cell in row.values())
    page = (out / "fleet.html").read_text("utf-8")
    assert html.escape(on_page(found["answer"][0])) in unmarked(page)
    assert 'id="arrivals-requests"' in page
    names = {"answer", "fleets", "streams", "demand", "options"}
    assert names <= set(sheets(out / "fleet.xlsx"))


def test_all_chips_are_compared_and_those_left_out_are_named() -> None:
    asked = ("fleet", "--model", "llama-3-8b", "--chip", "all", "--requests-per-second", 30)
    found = ask(*asked, *LENGTHS, "--price-basis", "owned_tco")
    hourly = [one["usd_per_hour"] for one in found["fleets"] if one["chips"]]
    assert len(hourly) > 5
    assert hourly == sorted(hourly)
    assert {one["way"] for one in found["orders"]} == {"buy"}
    refused = {one["chip"]: one["reason"] for one in found["refused"]}
    assert "runs on no instance" in refused["tt_n150"]
    assert "dgx_spark" in {one["chip"] for one in found["fleets"]}  # 4 bits, no bf16


def test_limits_that_nothing_keeps() -> None:
    asked = (*ASK, "--requests-per-second", 3, *LENGTHS, "--percentile", "steady", "--tpot-limit")
    said = dse(*asked, "1us")
    assert said.code == 3
    assert "within its limits" in said.err
    nearest = re.search(r"h100_sxm: one request alone takes ([\d.]+) ms a token", said.err)
    assert nearest is not None
    assert dse(*asked, f"{1.01 * float(nearest[1])}ms").code == 0
