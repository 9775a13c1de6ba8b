"""One shape for several chips: regrets, and what they do not depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.catalog import load_catalog
from dse.errors import InputError, NothingFeasible
from dse.questions.basket.answer import basket
from dse.questions.basket.present import basket_answer, document, lead
from dse.render.markdown import escape
from dse.schema.study import load_study

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
    def made(old: str = "", new: str = ""):
        path = tmp_path / "two-chips.yaml"
        path.write_text(SPACE.replace(old, new) if old else SPACE, encoding="utf-8")
        return load_study(path)

    return made


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("basket") / "two-chips.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return basket(load_study(path), load_catalog())


def test_regret_is_over_each_chips_own_cheapest_shape(found):
    served = np.isfinite(found.price)
    assert served.all(axis=1).any()
    for j, row in enumerate(found.own):
        assert found.regret[row, j] == 0.0
        assert (found.regret[served[:, j], j] >= 0.0).all()
    i = found.least_worst
    assert found.worst[i] == max(
        found.price[i, j] / found.price[found.own[j], j] - 1.0 for j in range(2)
    )
    assert found.worst[i] == found.worst.min()
    assert found.mean[found.least_mean] == found.mean.min()


def test_the_front_trades_quality_for_regret(found):
    loss, worst = found.loss[found.front], found.worst[found.front]
    assert found.front[0] == found.least_worst or worst[0] == found.worst[found.least_worst]
    assert (np.diff(worst) > 0).all()
    assert (np.diff(loss) < 0).all()


def test_at_the_loosest_quality_the_answer_is_that_of_the_whole_space(found):
    assert found.levels[0].worst == pytest.approx(found.worst[found.least_worst], abs=0.02)
    assert all(level.worst >= 0.0 for level in found.levels)
    assert all(found.loss[level.shape] <= level.loss for level in found.levels)


def test_the_price_level_of_a_chip_cancels(study, found):
    catalog = load_catalog()
    rows = tuple(
        replace(row, usd_per_chip_hour=3.0 * row.usd_per_chip_hour) if row.chip == "mi300x" else row
        for row in catalog.prices.rows
    )
    dearer = replace(catalog, prices=replace(catalog.prices, rows=rows))
    other = basket(study(), dearer)
    assert other.price[other.own[1], 1] == pytest.approx(3.0 * found.price[found.own[1], 1])
    assert np.allclose(other.worst, found.worst, rtol=1e-9)
    assert other.least_worst == found.least_worst


def test_two_of_the_same_chip_have_no_regret(study):
    """Where all chips agree, one shape costs nothing."""
    catalog = load_catalog()
    twin = replace(catalog.chips["h100_sxm"], id="mi300x")
    same = replace(catalog, chips={**catalog.chips, "mi300x": twin})
    alike = basket(study(), same)
    assert alike.worst[alike.least_worst] == pytest.approx(0.0, abs=1e-12)


def test_one_chip_no_floor_and_nothing_for_all_are_refused(study):
    catalog = load_catalog()
    with pytest.raises(InputError, match="one chip: h100_sxm"):
        basket(study("[h100_sxm, mi300x]", "h100_sxm"), catalog)
    with pytest.raises(InputError, match="no limit on quality"):
        basket(study(", dense_equivalent_parameters >= 6B", ""), catalog)
    with pytest.raises(NothingFeasible, match="h100_sxm 0, mi300x 0"):
        basket(study("tpot_s <= 30 ms", "tpot_s <= 100 us"), catalog)


def test_page_text_and_document_say_the_same(found):
    sentence = lead(found)[0]
    answer = replace(basket_answer(found), command="dse compare <script> --by chip")
    assert escape(sentence) in answer.to_markdown()
    assert sentence == document(found)["answer"][0] == answer.headline
    page = answer.to_html()
    assert "<script>alert" not in page
    assert "dse compare &lt;script&gt;" in page
    own, levels = answer.figures
    assert len(own.plotly["data"]) == len(found.chips) + 1
    assert len(levels.plotly["data"]) == len(found.chips) + 1
