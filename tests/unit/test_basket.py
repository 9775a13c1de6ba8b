"""One shape for several chips: regrets, and what they do not depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import dse
from dse.catalog import load_catalog
from dse.errors import InputError, NothingFeasible
from tests.helpers_files import changed, write

COST = "usd_per_million_total_tokens"
SPACE = """
name: two-chips
title: Two chips
workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous}
price_basis: rental_3yr
training_tokens: 15T
model:
  vocab_size: 128256
  hidden_size: [3072, 4096, 5120]
  num_hidden_layers: [28, 36, 44]
  head_dim: 128
  num_attention_heads: 32
  num_key_value_heads: [4, 8]
  intermediate_size: [12288, 16384]
deployment:
  chip: [h100_sxm, mi300x]
  chips: 2
  tensor_parallel: [1, 2]
  weight_dtype: [bf16, fp8]
  kv_dtype: bf16
  concurrency: [8, 32, 128]
objectives: {predicted_loss: minimize, usd_per_million_total_tokens: minimize}
constraints: [ttft_s <= 1 s, tpot_s <= 30 ms, dense_equivalent_parameters >= 6B]
"""


@pytest.fixture
def study(tmp_path: Path):
    return lambda *change: write(tmp_path, changed(SPACE, *change))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory):
    return dse.compare(write(tmp_path_factory.mktemp("basket"), SPACE), by="chip")


def choices(answer, which: str) -> dict[str, dict]:
    """The rows of one shape, by chip."""
    return {row["chip"]: row for row in answer.document["choices"] if row["which"] == which}


def test_regret_is_over_each_chips_own_cheapest_shape(found):
    best = choices(found, "least worst")
    own = {chip: choices(found, f"best for {chip}")[chip] for chip in ("h100_sxm", "mi300x")}
    for chip, row in own.items():
        assert row["regret"] == 0.0
        ratio = best[chip][COST] / row[COST] - 1.0
        assert best[chip]["regret"] == pytest.approx(ratio, abs=1e-12)


def test_at_the_loosest_quality_the_answer_is_that_of_the_whole_space(found):
    levels = found.document["levels"]
    worst = max(row["regret"] for row in choices(found, "least worst").values())
    assert levels[0]["worst_regret"] == pytest.approx(worst, abs=0.02)
    assert all(row["worst_regret"] >= 0.0 for row in levels)
    losses = [row["predicted_loss_at_most"] for row in levels]
    assert losses == sorted(losses, reverse=True)


def test_the_price_level_of_a_chip_cancels(study, found):
    catalog = load_catalog()
    rows = tuple(
        replace(row, usd_per_chip_hour=3.0 * row.usd_per_chip_hour) if row.chip == "mi300x" else row
        for row in catalog.prices.rows
    )
    dearer = replace(catalog, prices=replace(catalog.prices, rows=rows))
    other = dse.compare(study(), by="chip", catalog=dearer)
    for chip, factor in (("h100_sxm", 1.0), ("mi300x", 3.0)):
        one, more = (choices(answer, "least worst")[chip] for answer in (found, other))
        assert more[COST] == pytest.approx(factor * one[COST])
        assert more["regret"] == pytest.approx(one["regret"], abs=1e-12)


def test_two_of_the_same_chip_have_no_regret(study):
    """Where all chips agree, one shape costs nothing."""
    catalog = load_catalog()
    twin = replace(catalog.chips["h100_sxm"], id="mi300x")
    same = replace(catalog, chips={**catalog.chips, "mi300x": twin})
    alike = choices(dse.compare(study(), by="chip", catalog=same), "least worst")
    assert all(row["regret"] == pytest.approx(0.0, abs=1e-12) for row in alike.values())


def test_one_chip_no_floor_and_nothing_for_all_are_refused(study):
    with pytest.raises(InputError, match="one chip: h100_sxm"):
        dse.compare(study(("[h100_sxm, mi300x]", "h100_sxm")), by="chip")
    with pytest.raises(InputError, match="no limit on quality"):
        dse.compare(study((", dense_equivalent_parameters >= 6B", "")), by="chip")
    with pytest.raises(NothingFeasible, match="h100_sxm 0, mi300x 0"):
        dse.compare(study(("tpot_s <= 30 ms", "tpot_s <= 100 us")), by="chip")
