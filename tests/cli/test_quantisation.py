"""What number formats add to the loss: the shipped constants are the fits, the checkpoints lie in
the interval, and no choice of formats is a way round the penalty."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.problem.models import format_loss
from dse.quality.quantisation import (
    AWARE,
    CACHE_HIGH,
    CACHE_LOW,
    CACHE_NATS,
    PTQ_FACTOR,
    PTQ_FACTOR_HIGH,
    PTQ_FACTOR_LOW,
    TRAINED,
    quantisation_penalty,
)
from dse.schema.dtypes import BITS, CODE, DTYPES, TRAINABLE
from dse.schema.model import config_of
from dse.schema.model_catalog import resolve_model
from dse.space.batches import whole_training
from tests.cli.conftest import ask, dse
from tools.fits import quantisation as fits


def test_the_shipped_factor_is_the_fit() -> None:
    shipped = (PTQ_FACTOR, PTQ_FACTOR_LOW, PTQ_FACTOR_HIGH)
    assert shipped == pytest.approx(fits.fit(), rel=0.005)


def test_every_tuned_checkpoint_lies_in_the_interval() -> None:
    table = fits.read()
    factors = fits.factors(table)
    tuned = (table["use"] != "naive").to_numpy()
    assert tuned.sum() >= 6
    assert (factors[tuned] >= 0.999 * PTQ_FACTOR_LOW).all()
    assert (factors[tuned] <= 1.001 * PTQ_FACTOR_HIGH).all()
    # Rounding with no care costs more, and never more than the law of small models.
    assert (factors[~tuned] > PTQ_FACTOR_HIGH).all()
    assert (factors < 1.0).all()


def test_what_a_cache_in_four_bits_costs_is_the_fit() -> None:
    shipped = (CACHE_NATS, CACHE_LOW, CACHE_HIGH)
    assert fits.cache() == pytest.approx(shipped, rel=0.01)
    table = fits.cache_nats()
    assert set(table["use"]) == {"fit", "naive"}
    assert table["source"].str.len().min() > 0
    # A scale for every token alone is never better than blocks, model by model.
    model = table["name"].str.split(",").str[0]
    for name, nats in table["nats"][table["use"] == "naive"].groupby(model):
        assert nats.min() > table["nats"][(table["use"] == "fit") & (model == name)].max() * 0.8


@given(
    st.sampled_from(TRAINABLE),
    st.sampled_from(DTYPES),
    st.floats(1e9, 1e12),
    st.floats(1e12, 1e14),
)
def test_a_narrow_cache_is_no_way_round(
    trained: str, deployed: str, size: float, tokens: float
) -> None:
    """Four bits cost as much whatever the weights are in, eight bits nothing."""
    plain = added(trained, deployed, size, tokens)
    for cache in DTYPES:
        more = CACHE_NATS if int(BITS[cache]) == 4 else 0.0
        assert added(trained, deployed, size, tokens, cache) == pytest.approx(plain + more)


def test_shares_of_formats_in_training_are_the_fit() -> None:
    for name, (share, low, high) in fits.in_training().items():
        shipped = TRAINED[name]
        assert (shipped.share, shipped.low) == pytest.approx((share, low), rel=0.03)
        assert shipped.high == pytest.approx(high, rel=0.03)


def test_every_format_to_train_in_has_a_source_and_an_interval() -> None:
    assert set(TRAINABLE) == {*TRAINED, "int4"}
    for one in (*(TRAINED[name] for name in ("fp8", "nvfp4", "mxfp4")), AWARE):
        assert one.source
        assert one.date
        assert one.kind in ("claimed", "derived", "assumed")
        assert 0.0 <= one.low < one.share < one.high


@pytest.mark.parametrize(
    ("parameters", "tokens", "nats"),
    [(4.2e11, 14.8e12, 0.0027), (4.06e11, 15.6e12, 0.0028), (8.03e9, 15e12, 0.0107)],
)
def test_large_models_lose_little(parameters: float, tokens: float, nats: float) -> None:
    found = quantisation_penalty(*(np.array([x]) for x in (4.0, tokens, parameters)))
    assert found[0] == pytest.approx(nats, abs=1e-4)


def one(name: str) -> np.ndarray:
    return np.array([CODE[name]], dtype=np.intp)


def added(
    trained: str,
    deployed: str,
    parameters: float = 8e9,
    tokens: float = 15e12,
    cache: str = "bf16",
) -> float:
    whole = np.array([whole_training(trained)], dtype=np.intp)
    size, count = np.array([parameters]), np.array([tokens])
    formats = (whole, one(trained), one(deployed), one(cache))
    return float(format_loss(*formats, np.array([2.0]), count, size).added[0])


@given(
    st.sampled_from(TRAINABLE),
    st.sampled_from(DTYPES),
    st.floats(1e9, 1e12),
    st.floats(1e12, 1e14),
)
def test_no_format_is_a_way_round(trained: str, deployed: str, size: float, tokens: float) -> None:
    """Four bits always cost something, and weights trained in one 4-bit format are rounded again
    for another; training in a format never makes what is served in 8 or 16 bits better."""
    found = added(trained, deployed, size, tokens)
    assert found >= 0.0
    four = float(quantisation_penalty(np.array([4.0]), np.array([tokens]), np.array([size]))[0])
    if trained == "int4":  # the end of training alone
        assert found <= four + added("bf16", deployed, size, tokens) + 1e-12
    if int(BITS[deployed]) == 4:
        assert found > 0.0
        if deployed != trained:
            assert found >= four
    else:
        assert found >= added("bf16", deployed, size, tokens)


def test_the_interval_of_the_loss_holds_that_of_the_formats() -> None:
    point = ("estimate", "--model", "llama-3-8b", "--chip", "b200_sxm", "--json")
    plain, four = dse(*point).json(), dse(*point, "--weight-dtype", "nvfp4").json()
    width = [
        [abs(end - answer["predicted_loss"]) for end in answer["intervals"]["predicted_loss"]]
        for answer in (plain, four)
    ]
    added = four["quantisation_loss"]
    below = added * (1.0 - PTQ_FACTOR_LOW / PTQ_FACTOR)
    above = added * (PTQ_FACTOR_HIGH / PTQ_FACTOR - 1.0)
    for side, more in ((0, below), (1, above)):
        assert width[1][side] == pytest.approx(np.hypot(width[0][side], more), rel=1e-6)


def test_an_estimate_says_what_its_cache_costs() -> None:
    point = ("estimate", "--model", "llama-3-70b", "--chip", "b200_sxm", "--tp", "2")
    plain, eight, four = (ask(*point, "--kv-dtype", name) for name in ("bf16", "fp8", "nvfp4"))
    assert "cache_format_loss" not in plain
    assert plain["predicted_loss"] == eight["predicted_loss"]
    assert four["cache_format_loss"] == CACHE_NATS
    assert four["predicted_loss"] - plain["predicted_loss"] == pytest.approx(CACHE_NATS)
    assert four["dense_equivalent_parameters"] == plain["dense_equivalent_parameters"]
    low, high = four["intervals"]["predicted_loss"]
    assert high - four["predicted_loss"] >= CACHE_HIGH - CACHE_NATS
    assert four["predicted_loss"] - low >= CACHE_NATS - CACHE_LOW
    assert "a cache in 4 bits" in dse(*point, "--kv-dtype", "nvfp4").out


def test_a_model_says_what_it_was_trained_in(tmp_path: Path) -> None:
    """gpt-oss was published in mxfp4, which only the end of its training knew (assumed); another
    4-bit format is a rounding again."""
    config = config_of(resolve_model("llama-3-8b"))
    answers: dict[str | None, dict[str, float]] = {}
    for name in (None, "nvfp4", "int4"):
        said = {} if name is None else {"trained_in": name}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(config | said), encoding="utf-8")
        run = ("estimate", "--model", path, "--chip", "b200_sxm", "--weight-dtype", "nvfp4")
        answers[name] = ask(*run)
    assert "training_format_loss" not in answers[None]
    assert answers["nvfp4"]["quantisation_loss"] == 0.0
    assert answers["int4"]["quantisation_loss"] == answers[None]["quantisation_loss"] > 0.0
    assert answers["nvfp4"]["training_format_loss"] > 0.0
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(config | {"trained_in": "fp3"}), encoding="utf-8")
    refused = dse("estimate", "--model", path, "--chip", "b200_sxm")
    assert refused.code == 2
    assert "trained_in" in refused.err
    assert "nvfp4" in refused.err
