"""What twice each figure of a chip does for training and serving (`dse whatif --sensitivities`)."""

from __future__ import annotations

import math

import pytest
import yaml

import dse
from dse.catalog import load_catalog
from tests.cli.conftest import dse as command
from tests.helpers_whatif import PAIR, SPACE

CATALOG = load_catalog()
ASKED = {"model": "llama-3-8b", "chips": ("h100_sxm",), "tp": 1, "training_chips": 64}
TASKS = ("training", "one user's token", "served under load")


@pytest.fixture(scope="module")
def document():
    return dse.whatif(sensitivities=True, **ASKED).document


def by_figure(document, task: str, key: str) -> dict[str, float | None]:
    return {row["figure"]: row[key] for row in document["doubled"] if row["task"] == task}


def test_more_of_a_figure_never_slows(document) -> None:
    """But for the capacity that a search of plans may use otherwise, within a thousandth."""
    known = [row for row in document["doubled"] if row["change"] is not None]
    assert {row["task"] for row in known} == set(TASKS)
    assert all(row["change"] <= 1e-3 and row["elasticity"] >= -1.0 - 1e-9 for row in known)


def test_the_elasticities_of_a_token_add_up_to_less_than_one(document) -> None:
    """Fixed costs stay: no figure shortens them."""
    token = by_figure(document, "one user's token", "elasticity")
    assert -1.0 < sum(e for name, e in token.items() if name != "power" and e is not None) < 0.0


def test_changes_are_those_of_estimate(document) -> None:
    at = {"weight_dtype": "fp8", "concurrency": 1, "prompt_tokens": 2048, "output_tokens": 512}
    now = dse.estimate("llama-3-8b", "h100_sxm", **at).tpot_s
    more = dse.estimate("llama-3-8b", "h100_sxm", settings=("bandwidth=2x",), **at).tpot_s
    (row,) = (
        row
        for row in document["doubled"]
        if (row["task"], row["figure"]) == ("one user's token", "memory bandwidth")
    )
    assert row["seconds"] == now
    assert row["change"] == pytest.approx(more / now - 1.0)
    assert row["elasticity"] == pytest.approx(math.log2(more / now))
    # At this price and with the figure doubled, a token costs what it did.
    price = CATALOG.prices.select("rental_3yr")["h100_sxm"].usd_per_chip_hour
    assert more * (price + row["worth_usd_per_chip_hour"]) == pytest.approx(now * price)


def test_one_chip_has_no_link_to_use(document) -> None:
    assert by_figure(document, "one user's token", "elasticity")["link bandwidth"] == 0.0
    assert by_figure(document, "training", "elasticity")["power"] is None  # not modelled there


def test_unit_prices(document) -> None:
    rows = {(row["chip"], row["basis"]): row for row in document["unit_prices"]}
    row, chip = rows["h100_sxm", "rental_3yr"], CATALOG.chips["h100_sxm"]
    bandwidth = chip.memories[0].bytes_per_s
    assert bandwidth is not None
    assert row["usd_per_tb_per_s"] * bandwidth / 1e12 == pytest.approx(row["usd_per_chip_hour"])
    assert {basis for _, basis in rows} == {*CATALOG.prices.bases(), "owned_tco"}


def test_the_command_says_the_same_beside_the_sensitivities_of_serving(document) -> None:
    asked = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--sensitivities")
    said = command("whatif", *asked, "--set", "tp=1", "--set", "training_chips=64", "--json").json()
    assert said["doubled"] == document["doubled"]
    assert said["doubled_mean"] == document["doubled_mean"]
    assert said["sensitivities"] == document["sensitivities"]
    wrong = command("whatif", "--chip", "no_such_chip", "--sensitivities")
    assert (wrong.code, wrong.out) == (2, "")
    wrong = command("whatif", "--chip", "h100_sxm", "--sensitivities", "--set", "tpot_limit=0s")
    assert "above 0 s" in wrong.err


def test_a_study_is_not_trained() -> None:
    document = dse.whatif(yaml.safe_load(SPACE.format(**PAIR)), sensitivities=True).document
    assert "doubled" not in document
