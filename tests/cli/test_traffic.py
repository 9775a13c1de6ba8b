"""dse traffic as a person uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import dse, fits


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
    assert "million tokens per dollar, 99th percentile" in said.out.replace("\n ", "")
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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
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
