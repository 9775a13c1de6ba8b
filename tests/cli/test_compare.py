"""`dse compare A B`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dse.study.folder import FRONT, read_json
from tests.cli.conftest import ask, dse, fits

KEYS = (
    "hypervolume_a",
    "hypervolume_b",
    "ratio",
    "epsilon",
    "reference_point",
    "entered",
    "left",
)


def test_a_study_and_itself(tiny: Path):
    document = ask("compare", tiny, tiny)
    assert set(KEYS) <= set(document)
    assert (document["ratio"], document["epsilon"]) == (1.0, 0.0)
    assert (document["entered"], document["left"]) == ([], [])
    assert document["reference_point"] == [1.1] * 3


@pytest.fixture
def pair(space: Callable[..., Path], tmp_path: Path) -> tuple[Path, Path]:
    """All of a space, and three of its eighteen points."""
    a, b = tmp_path / "all", tmp_path / "some"
    assert dse("run", space(), "--out", a).code == 0
    three = ("--engine", "random", "--trials", 3, "--no-prove")
    assert dse("run", space(), *three, "--out", b).code == 0
    return a, b


def test_an_enumerated_study_is_the_reference(pair: tuple[Path, Path]):
    document = ask("compare", *pair)
    assert document["ratio"] < 1.0
    assert document["true_hypervolume_share"] == document["ratio"]
    assert document["epsilon"] > 0.0
    back = ask("compare", *reversed(pair))
    assert back["ratio"] == pytest.approx(1.0 / document["ratio"])
    assert (back["entered"], back["left"]) == (document["left"], document["entered"])
    points = {item["point"] for item in read_json(pair[0], FRONT)["items"]}
    assert set(document["left"]) <= points


def test_two_fronts_of_a_whole_space_are_alike(space: Callable[..., Path], tmp_path: Path):
    """An enumeration that follows three random points leaves no difference."""
    a, b = tmp_path / "all", tmp_path / "some"
    assert dse("run", space(), "--out", a).code == 0
    assert dse("run", space(), "--engine", "random", "--trials", 3, "--out", b).code == 0
    document = ask("compare", a, b)
    assert (document["ratio"], document["entered"], document["left"]) == (1.0, [], [])
    assert "both saw every point of their space: 18 and 18" in str(document)


def test_text_counts_the_designs(pair: tuple[Path, Path]):
    said = dse("compare", *pair)
    assert said.code == 0
    assert fits(said.out, 100)
    assert "designs left the front" in " ".join(said.out.split())


def test_other_objectives_are_refused(pair: tuple[Path, Path], tiny: Path):
    said = dse("compare", pair[0], tiny)
    assert said.code == 2
    assert "different objectives" in said.err


def test_prices_never_mix(space: Callable[..., Path], pair: tuple[Path, Path], tmp_path: Path):
    other = tmp_path / "on-demand"
    assert dse("run", space("rental_3yr", "on_demand"), "--out", other).code == 0
    said = dse("compare", pair[0], other)
    assert said.code == 2
    assert "rental_3yr" in said.err
    assert "on_demand" in said.err


def test_other_workloads_are_said(space: Callable[..., Path], tmp_path: Path):
    a, b = tmp_path / "short", tmp_path / "long"
    assert dse("run", space(), "--out", a).code == 0
    assert dse("run", space("output_tokens: 256", "output_tokens: 512"), "--out", b).code == 0
    document = ask("compare", a, b)
    alike = {row["what"]: row["alike"] for row in document["comparable"]}
    assert (alike["workload"], alike["hardware data"]) == (False, True)
    assert "they serve different workloads" in document["answer"][1]
    assert "figures" not in document["answer"][1]
    same = ask("compare", a, a)
    assert all(row["alike"] for row in same["comparable"])
