"""Every named quality law: published values, limits, flags, over-training."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.quality import (
    DEFAULT,
    LAWS,
    compute_optimal_tokens,
    overtraining,
    predicted_loss,
)
from tests.helpers_laws import EXAMPLES, ROWS, loss, of, shapes
from tools.law_tables import evaluate, read_examples

WORKED = [row for row in ROWS if row["joint_loss"]]
TABLE = read_examples(str(EXAMPLES))
NAMES = sorted(LAWS)


# -- published values ----------------------------------------------------------------------


def test_every_law_has_a_name_of_its_own_and_the_default_comes_first() -> None:
    assert next(iter(LAWS)) == DEFAULT
    assert set(LAWS) == {"leverage", "hoffmann", "cautious", "joint", "abnar", "tian"}
    for name, law in LAWS.items():
        assert law.name == name
        assert law.title
        assert law.sources
        assert law.fit_range
        assert law.not_seen
        assert all(c.source and c.date and c.kind for c in law.coefficients)
        assert all(known.source for known in (*law.fit.values(), *law.bounds.values()))


def test_worked_examples_of_hoffmann() -> None:
    """The dense law at the equivalent size by Tian et al., worked out by hand for 30 models."""
    tokens = np.array([float(row["training_tokens"]) for row in WORKED])
    found = LAWS["hoffmann"].dense(of(WORKED, "tian").dense_equivalent_parameters, tokens).loss
    assert found == pytest.approx([float(row["hoffmann_loss"]) for row in WORKED], abs=0.0025)


def test_depth_moves_the_worked_examples_by_little() -> None:
    """The shapes are those of published models: none is absurd."""
    worked = [i for i, row in enumerate(ROWS) if row["joint_loss"]]
    for name in ("joint", "abnar"):
        expected = np.array([float(ROWS[i][f"{name}_loss"]) for i in worked])
        found = evaluate(TABLE, name)
        free = ~found.at_bound["equivalent_over_total"][worked]
        assert free.sum() > 15
        assert np.abs(found.predicted_loss[worked] - expected)[free].max() < 0.006


def test_cautious_is_the_default_for_dense_models_and_between_for_sparse_ones() -> None:
    plain, less = evaluate(TABLE, DEFAULT), evaluate(TABLE, "cautious")
    sparse = TABLE["experts"].to_numpy() > 0
    assert (plain.predicted_loss == less.predicted_loss)[~sparse].all()
    assert (plain.predicted_loss < less.predicted_loss)[sparse].all()


@pytest.mark.parametrize(
    ("law", "per_parameter"), [("leverage", (21.6, 18.4, 16.5)), ("hoffmann", (34, 59, 85))]
)
def test_compute_optimal_tokens_per_parameter(law: str, per_parameter: tuple[float, ...]) -> None:
    """At 1e21, 5.76e23 (Chinchilla) and 3.8e25 FLOP (Llama 3.1 405B)."""
    flops = np.array([1e21, 5.76e23, 3.8e25])
    tokens = compute_optimal_tokens(LAWS[law], flops)
    np.testing.assert_allclose(6 * tokens**2 / flops, per_parameter, rtol=0.01)


def test_compute_optimal_closed_form() -> None:
    """Hoffmann et al. 2022, eq. 4: N = G (C/6)^(b / (a + b)), G = (a A / (b B))^(1 / (a + b))."""
    _, A, a, B, b = map(float, LAWS["hoffmann"].coefficients[0].value.split(","))
    scale = (a * A / (b * B)) ** (1 / (a + b))
    flops = np.geomspace(1e18, 1e27, 10)
    parameters = scale * (flops / 6) ** (b / (a + b))
    found = compute_optimal_tokens(LAWS["hoffmann"], flops)
    np.testing.assert_allclose(found, flops / 6 / parameters, rtol=1e-12)


@pytest.mark.parametrize("law", NAMES)
def test_no_other_split_of_the_compute_is_better(law: str) -> None:
    """Against a search over sizes, which knows nothing of terms and exponents."""
    for flops in (1e20, 1e23, 1e26):
        best = compute_optimal_tokens(LAWS[law], np.array([flops]))
        tokens = best * np.geomspace(0.1, 10, 401)
        losses = predicted_loss(flops / 6 / tokens, tokens, law)
        assert np.argmin(losses) == 200


# -- flags, ends, inverses ------------------------------------------------------------------

INSIDE = {
    "leverage": {},
    "cautious": {},
    "hoffmann": {},
    "tian": {},
    "joint": {
        "expert_intermediate_size": 4096.0,
        "experts": 16.0,
        "experts_per_token": 1.0,
        "shared_width_ratio": 0.0,
        "training_tokens": 50e9,
    },
    "abnar": {"training_tokens": 100e9},
}
SMALL = {
    "hidden_size": 1024.0,
    "layers": 12.0,
    "active_non_embedding": 0.2e9,
    "experts": 128.0,
    "experts_per_token": 8.0,
    "shared_width_ratio": 1.0,
    "expert_intermediate_size": 512.0,
    "training_tokens": 100e9,
    "total_parameters": 2e9,
    "embedding_parameters": 65e6,
}
OUTSIDE = {
    "joint": {
        "active_parameters": {"active_non_embedding": 5e9},
        "total_parameters": {"total_parameters": 6e9},
        "expansion": {"experts": 40.0},
        "granularity": {"expert_intermediate_size": 256.0},
        "training_tokens": {"training_tokens": 90e9},
    },
    "abnar": {
        "training_flops": {"training_tokens": 1e13},
        "sparsity": {"experts": 1024.0},
    },
    "hoffmann": {
        "training_tokens": {"training_tokens": 4e9},
        "dense_equivalent_parameters": {"active_non_embedding": 30e9},
        "granularity": {"expert_intermediate_size": 2048.0},
        "activation_ratio": {"experts": 2000.0},
        "total_parameters": {"total_parameters": 29e9},
        "training_flops": {"active_non_embedding": 30e9},
    },
}
OUTSIDE["leverage"] = OUTSIDE["hoffmann"] | {"training_tokens": {"training_tokens": 400e9}}


@pytest.mark.parametrize("law", NAMES)
def test_a_small_model_is_inside_the_range_of_its_law(law: str) -> None:
    found = of([SMALL | INSIDE[law]], law)
    assert not any(flags[0] for flags in found.extrapolates.values())
    assert not any(flags[0] for flags in found.at_bound.values())


@pytest.mark.parametrize(
    ("law", "quantity"), [(law, name) for law, cases in OUTSIDE.items() for name in cases]
)
def test_each_quantity_beyond_the_fit_is_flagged(law: str, quantity: str) -> None:
    assert set(OUTSIDE[law]) == set(LAWS[law].fit)
    found = of([SMALL | INSIDE[law] | OUTSIDE[law][quantity]], law)
    assert found.extrapolates[quantity][0]


@pytest.mark.parametrize("law", ["joint", "abnar"])
def test_dense_equivalent_has_the_same_loss_as_the_sparse_model(law: str) -> None:
    found = evaluate(TABLE, law)
    again = predicted_loss(
        found.dense_equivalent_parameters, TABLE["training_tokens"].to_numpy(), law
    )
    np.testing.assert_allclose(again, found.predicted_loss, rtol=1e-12)


def test_a_model_that_a_law_rates_above_all_its_parameters_is_held_there() -> None:
    """So sparse that the constant of the law falls below what an endless dense model reaches."""
    row = SMALL | {"experts": 4096.0, "experts_per_token": 1.0, "total_parameters": 1e15}
    found = of([row | {"training_tokens": 1e15}], "abnar")
    assert found.dense_equivalent_parameters[0] == 1e15
    assert found.at_bound["equivalent_over_total"][0]
    assert found.predicted_loss[0] == found.terms.loss[0]


@pytest.mark.parametrize("law", NAMES)
def test_one_expert_that_every_token_uses_is_a_dense_model(law: str) -> None:
    dense = SMALL | {"experts": 0.0}
    one = SMALL | {"experts": 1.0, "experts_per_token": 1.0, "shared_width_ratio": 0.0}
    assert loss(one, law) == pytest.approx(loss(dense, law), rel=1e-12)


# -- laws of all laws -----------------------------------------------------------------------


@pytest.mark.parametrize("law", NAMES)
@settings(max_examples=40)
@given(row=shapes(), times=st.floats(1, 100))
def test_more_tokens_are_never_worse(law: str, row: dict[str, float], times: float) -> None:
    more = row | {"training_tokens": row["training_tokens"] * times}
    assert loss(more, law) <= loss(row, law) * (1 + 1e-12)


@pytest.mark.parametrize("law", NAMES)
@settings(max_examples=40)
@given(row=shapes(), times=st.floats(1, 100))
def test_a_larger_model_is_never_worse(law: str, row: dict[str, float], times: float) -> None:
    """All parameters grow alike, and the best width per layer with them."""
    sizes = ("active_non_embedding", "total_parameters", "embedding_parameters")
    width = times**0.142
    more = row | {name: row[name] * times for name in sizes}
    more |= {name: row[name] * width for name in ("hidden_size", "expert_intermediate_size")}
    assert loss(more, law) <= loss(row, law) * (1 + 1e-12)


@pytest.mark.parametrize("law", NAMES)
@settings(max_examples=30)
@given(rows=st.lists(shapes(), min_size=2, max_size=12))
def test_a_batch_equals_its_candidates_bit_for_bit(law: str, rows: list[dict[str, float]]) -> None:
    together = of(rows, law)
    far = overtraining(together.terms, np.array([row["training_tokens"] for row in rows]))
    for i, row in enumerate(rows):
        alone = of([row], law)
        assert alone.predicted_loss[0] == together.predicted_loss[i]
        np.testing.assert_array_equal(
            alone.dense_equivalent_parameters[0], together.dense_equivalent_parameters[i]
        )
        one = overtraining(alone.terms, np.array([row["training_tokens"]]))
        of_many = overtraining(together.terms.row(i), np.array([row["training_tokens"]]))
        assert one.ratio[0] == far.ratio[i] == of_many.ratio[0]


@pytest.mark.parametrize("law", NAMES)
@settings(max_examples=40)
@given(row=shapes(), times=st.floats(0.01, 100))
def test_tokens_and_size_at_the_optimum_give_nothing_up(
    law: str, row: dict[str, float], times: float
) -> None:
    """Of one training compute all shapes of a kind have the same optimum, wherever one starts:
    dense models, as the law counts parameters."""
    size, tokens = np.array([row["active_non_embedding"]]), np.array([row["training_tokens"]])
    dense = LAWS[law].dense
    here = overtraining(dense(size, tokens), tokens)
    there = overtraining(dense(size * times, tokens / times), tokens / times)
    best = here.compute_optimal_tokens
    np.testing.assert_allclose(there.compute_optimal_tokens, best, rtol=1e-9)
    at_best = overtraining(dense(size * here.ratio, best), best)
    assert at_best.ratio[0] == pytest.approx(1, rel=1e-9)
    assert at_best.loss_given_up[0] == pytest.approx(0, abs=1e-12)
    given_up = predicted_loss(size, tokens, law) - predicted_loss(size * here.ratio, best, law)
    assert here.loss_given_up[0] == pytest.approx(given_up[0], abs=1e-12)


def test_unknown_tokens_have_no_overtraining() -> None:
    for law in NAMES:
        found = of([SMALL | {"training_tokens": np.nan}], law)
        far = overtraining(found.terms, np.array([np.nan]))
        assert np.isnan(found.predicted_loss[0])
        assert np.isnan(far.ratio[0])
        assert np.isnan(far.loss_given_up[0])


# -- what it is held against ------------------------------------------------------------------


def test_every_score_has_a_source() -> None:
    scored = [row for row in ROWS if row["mmlu_percent"]]
    assert len(scored) == 30
    for row in scored:
        assert 25 < float(row["mmlu_percent"]) < 100
        assert "5-shot" in row["mmlu_source"]
