"""What each figure of a chip does for training and serving."""

from __future__ import annotations

import math

import pytest

import dse
from dse.catalog import load_catalog
from dse.questions.levers.ask import FIGURES, Asked, levers_of, unit_prices
from tests.cli.conftest import dse as command

CATALOG = load_catalog()
ASKED = Asked("h100_sxm", 2048, 512, 0.05, 2.0)
FOUND = {one.task: one for one in levers_of(CATALOG, ASKED, {"llama-3-8b": 64})}


def test_more_of_a_figure_never_slows() -> None:
    """But for the capacity that a search of plans may use otherwise, within a thousandth."""
    for one in FOUND.values():
        assert all(change <= 1e-3 for change in one.change.values() if change is not None)
        assert all(e >= -1.0 - 1e-9 for e in one.elasticity.values() if e is not None)


def test_the_elasticities_of_a_token_add_up_to_less_than_one() -> None:
    """Fixed costs stay: no figure shortens them."""
    known = [FOUND["one user's token"].elasticity[name] for name in FIGURES if name != "power"]
    assert -1.0 < sum(e for e in known if e is not None) < 0.0


def test_changes_are_those_of_estimate() -> None:
    one = FOUND["one user's token"]
    at = {"weight_dtype": "fp8", "concurrency": 1, "prompt_tokens": 2048, "output_tokens": 512}
    now = dse.estimate("llama-3-8b", "h100_sxm", **at).tpot_s
    more = dse.estimate("llama-3-8b", "h100_sxm", settings=("bandwidth=2x",), **at).tpot_s
    assert one.seconds == now
    assert one.change["memory bandwidth"] == pytest.approx(more / now - 1.0)
    assert one.elasticity["memory bandwidth"] == pytest.approx(math.log2(more / now))
    # At this price and with the figure doubled, a token costs what it did.
    added = one.usd_per_chip_hour["memory bandwidth"]
    assert added is not None
    assert more * (2.0 + added) == pytest.approx(now * 2.0)


def test_one_chip_has_no_link_to_use() -> None:
    assert FOUND["one user's token"].elasticity["link bandwidth"] == 0.0
    assert FOUND["training"].elasticity["power"] is None  # not modelled there


def test_unit_prices() -> None:
    rows = {(row["chip"], row["basis"]): row for row in unit_prices(CATALOG, ())}
    row, chip = rows["h100_sxm", "rental_3yr"], CATALOG.chips["h100_sxm"]
    bandwidth = chip.memories[0].bytes_per_s
    assert bandwidth is not None
    assert row["usd_per_tb_per_s"] * bandwidth / 1e12 == pytest.approx(row["usd_per_chip_hour"])
    assert len({basis for _, basis in rows}) == len(CATALOG.prices.bases())


def test_the_verb() -> None:
    said = command("levers", "llama-3-8b", "--chips", 64, "--json").json()
    assert [one["task"] for one in said["levers"]] == list(FOUND)
    first = {one["task"]: one["change"]["FLOP/s"] for one in said["levers"]}
    assert first["training"] == FOUND["training"].change["FLOP/s"]
    wrong = command("levers", "--chip", "no_such_chip")
    assert (wrong.code, wrong.out) == (2, "")
