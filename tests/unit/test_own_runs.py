"""Laws moved to training runs of one's own: the posterior, what it moves, the reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.physics.parameters import parameters
from dse.problem.models import batch_of_models, own_law, quality_of_models
from dse.problem.objective import pose
from dse.quality import LAWS, Shape, quality
from dse.quality.own_runs import (
    LEVERAGE,
    P90,
    PRIOR,
    Columns,
    Posterior,
    columns_of,
    posterior_of,
    rescaled,
)
from dse.schema.loss_runs import LossRun, LossRuns, load_loss_runs, runs_again
from dse.schema.model_catalog import load_models
from dse.schema.study import load_study
from dse.study import decide
from tests.helpers_files import mistakes, refusal, write

SD = np.array(list(PRIOR.values()))
SEEDS = st.integers(0, 10_000)
HEAD = (
    "name,hidden_size,num_hidden_layers,num_attention_heads,intermediate_size,num_experts,"
    "num_experts_per_tok,moe_intermediate_size,vocab_size,training_tokens,loss\n"
)
RUNS = HEAD + (
    "a,512,8,8,1408,,,,32000,2B,3.83\n"
    "b,1024,16,16,2816,,,,32000,20B,2.90\n"
    "c,768,12,12,,64,8,256,32000,10B,3.04\n"
)


def shapes_of(parameters, tokens, experts, law: str = "leverage"):
    """Quality of shapes of which 8 of some experts are most; dense where there are none."""
    n = len(parameters)
    width = np.maximum(np.round(np.sqrt(parameters / 300.0) / 64.0) * 64.0, 64.0)
    sparse = experts > 0.0
    routed = np.where(sparse, 0.7 * parameters / 8.0, 0.0)
    shape = Shape(
        width,
        np.maximum(np.round(parameters / 12.0 / width**2), 1.0),
        parameters,
        experts=experts,
        experts_per_token=np.where(sparse, 8.0, 0.0),
        shared_width_ratio=np.zeros(n),
        expert_intermediate_size=np.maximum(width / 2.0, 1.0),
        training_tokens=tokens,
        total_parameters=parameters + routed * np.maximum(experts - 8.0, 0.0) + 64_000.0 * width,
        embedding_parameters=64_000.0 * width,
    )
    return quality(shape, law)


def small_runs(rng: np.random.Generator, n: int, law: str = "leverage") -> Columns:
    """Columns of n runs of 30M to 2B active parameters, every second one with experts."""
    parameters = 10.0 ** rng.uniform(7.5, 9.3, n)
    experts = np.where(np.arange(n) % 2 == 0, rng.choice([16.0, 32.0, 64.0], n), 0.0)
    return columns_of(shapes_of(parameters, parameters * 10.0 ** rng.uniform(0.7, 2.3, n), experts))


def frontier() -> Columns:
    dense = np.array([8e9, 70e9, 20e9, 37e9])
    return columns_of(shapes_of(dense, np.full(4, 15e12), np.array([0.0, 0.0, 128.0, 256.0])))


# -- the posterior -----------------------------------------------------------------------------


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_a_rescaled_law_is_recovered_within_three_deviations(seed: int):
    rng = np.random.default_rng(seed)
    truth, columns = rng.standard_normal(4) * SD, small_runs(rng, 12)
    measured = np.stack(columns, axis=1) @ truth + 0.01 * rng.standard_normal(12)
    found = posterior_of(columns, measured, 0.01)
    gap = found.mean - truth
    assert gap @ np.linalg.solve(found.covariance, gap) < 30.0  # chi squared of 4: 5e-6
    assert (found.sd < SD).all()


def test_four_intervals_of_five_hold_the_loss_of_the_frontier():
    held, at = np.zeros(4), frontier()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        truth, columns = rng.standard_normal(4) * SD, small_runs(rng, 10)
        measured = np.stack(columns, axis=1) @ truth + 0.01 * rng.standard_normal(10)
        found = posterior_of(columns, measured)
        error = np.stack(at, axis=1) @ (truth - found.mean)
        held += np.abs(error) <= P90 * np.sqrt(found.variance(at))
    assert ((held / 200 >= 0.70) & (held / 200 <= 0.90)).all(), held / 200


@given(SEEDS, st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_runs_that_agree_keep_the_law_and_narrow_it(seed: int, n: int):
    columns, at = small_runs(np.random.default_rng(seed), n), frontier()
    found = posterior_of(columns, np.zeros(n))
    nothing = posterior_of(tuple(column[:0] for column in columns), np.zeros(0))
    assert (found.mean == 0.0).all()
    assert (nothing.mean == 0.0).all()
    assert nothing.sd == pytest.approx(SD)
    assert (found.variance(at) < nothing.variance(at)).all()


@given(SEEDS, st.integers(0, 12))
@settings(max_examples=50, deadline=None)
def test_one_more_run_never_widens_at_equal_scatter(seed: int, n: int):
    rng = np.random.default_rng(seed)
    columns, at = small_runs(rng, n + 1), frontier()
    measured = 0.3 * rng.standard_normal(n + 1)
    before = posterior_of(tuple(column[:n] for column in columns), measured[:n], 0.01)
    after = posterior_of(columns, measured, 0.01)
    assert (after.variance(at) <= before.variance(at) * (1.0 + 1e-9)).all()


def test_scatter_is_that_of_the_residuals_with_a_floor():
    rng = np.random.default_rng(3)
    columns = small_runs(rng, 200)
    found = posterior_of(columns, 0.05 * rng.standard_normal(200))
    assert found.noise == pytest.approx(0.05, rel=0.15)
    assert posterior_of(columns, np.zeros(200)).noise == pytest.approx(0.002)


# -- what it moves -----------------------------------------------------------------------------


def posterior(*mean: float) -> Posterior:
    return Posterior(np.array(mean), np.diag(SD**2), 0.01, 3)


@pytest.mark.parametrize("name", LAWS)
def test_without_a_shift_the_law_is_itself_to_the_last_digit(name: str):
    models = list(load_models().values())
    batch = batch_of_models(models)
    tokens = np.array([model.training_tokens or np.nan for model in models])
    law = quality_of_models(batch, tokens, name)
    moved = quality_of_models(batch, tokens, rescaled(LAWS[name], posterior(0, 0, 0, 0)))
    assert np.array_equal(law.predicted_loss, moved.predicted_loss, equal_nan=True)
    same = (law.dense_equivalent_parameters, moved.dense_equivalent_parameters)
    assert np.array_equal(*same, equal_nan=True)
    assert law.doubt is None
    assert moved.doubt is not None


@pytest.mark.parametrize("name", LAWS)
def test_each_number_moves_its_part(name: str):
    models = load_models()
    batch = batch_of_models([models["llama-3-70b"], models["deepseek-v3"]])
    tokens = np.array([15e12, 14.8e12])
    law = quality_of_models(batch, tokens, name)
    for k, unit in enumerate(-0.01 * np.eye(4)):
        moved = quality_of_models(batch, tokens, rescaled(LAWS[name], posterior(*unit)))
        added = moved.predicted_loss - law.predicted_loss
        assert added == pytest.approx(-0.01 * columns_of(law)[k], rel=1e-6, abs=1e-12)
        equal = moved.dense_equivalent_parameters / law.dense_equivalent_parameters
        assert equal[0] == 1.0  # a dense model is worth itself
        assert equal[1] == pytest.approx(
            law.efficiency_leverage[1] ** (-0.01 * (k == LEVERAGE)), 1e-3
        )


@given(st.floats(-3.0, 3.0), SEEDS)
@settings(max_examples=40, deadline=None)
def test_no_runs_make_a_model_worth_more_than_all_of_it_or_less_than_what_is_met(
    shift: float, seed: int
):
    rng = np.random.default_rng(seed)
    models = [model for model in load_models().values() if model.experts]
    batch = batch_of_models(models)
    tokens = 10.0 ** rng.uniform(10.0, 13.5, len(models))
    law = quality_of_models(batch, tokens, "leverage")
    moved = quality_of_models(batch, tokens, rescaled(LAWS["leverage"], posterior(0, 0, 0, shift)))
    total = parameters(batch).total
    assert (moved.dense_equivalent_parameters <= total * (1.0 + 1e-12)).all()
    assert (moved.efficiency_leverage >= 1.0 - 1e-12).all()
    # Loss and dense equivalent stay those of one dense law.
    again = LAWS["leverage"].dense(moved.dense_equivalent_parameters, tokens).loss
    assert moved.predicted_loss == pytest.approx(again, rel=1e-9)
    order = np.sign(moved.dense_equivalent_parameters - law.dense_equivalent_parameters)
    assert (np.sign(law.predicted_loss - moved.predicted_loss) * order >= 0.0).all()


def test_a_batch_is_its_rows():
    models = list(load_models().values())
    batch, law = batch_of_models(models), rescaled(LAWS["leverage"], posterior(0.1, 0.1, -0.2, 0.3))
    tokens = np.array([model.training_tokens or np.nan for model in models])
    all_ = quality_of_models(batch, tokens, law)
    for i in range(len(models)):
        one = quality_of_models(batch[i : i + 1], tokens[i : i + 1], law)
        assert np.array_equal(one.predicted_loss, all_.predicted_loss[i : i + 1], equal_nan=True)
        assert one.doubt is not None
        assert all_.doubt is not None
        assert np.array_equal(one.doubt.sd, all_.doubt.sd[i : i + 1], equal_nan=True)


def test_runs_of_the_law_itself_are_predicted_as_they_are():
    model = next(model for model in load_models().values() if model.experts)
    tokens = np.array([1e11, 3e11])
    loss = quality_of_models(batch_of_models([model, model]), tokens, "leverage").predicted_loss
    rows = [LossRun("", model, float(t), float(x)) for t, x in zip(tokens, loss, strict=True)]
    own = own_law("leverage", LossRuns.of("runs.csv", rows))
    assert (own.posterior.mean == 0.0).all()
    assert np.array_equal(own.predicted, loss)


def test_runs_in_which_size_does_nothing_are_refused():
    model = load_models()["llama-3-8b"]
    rows = [LossRun("", model, 1e9 * 2.0**k, 2.5 + 0.05 * k) for k in range(12)]
    with pytest.raises(InputError, match=r"runs.csv: loss: by these runs training tokens is worth"):
        own_law("leverage", LossRuns.of("runs.csv", rows))


# -- a study ---------------------------------------------------------------------------------------


def test_draws_of_a_front_move_losses_by_what_runs_leave(monkeypatch: pytest.MonkeyPatch):
    catalog = load_catalog()
    study = load_study("tiny", catalog, loss_runs=search_spaces_dir() / "loss_runs.csv")
    mine, law = pose(study, catalog), pose(load_study("tiny", catalog), catalog)
    assert mine.space.fingerprint != law.space.fingerprint
    index = mine.space.unrank(np.arange(0, mine.space.size, mine.space.size // 50))
    monkeypatch.setattr(decide, "FRONT_DRAWS", 3_000)
    errors, plain = (
        np.stack(list(decide.draws(one, index, np.random.default_rng(1)))) for one in (mine, law)
    )
    losses = [o.metric == "predicted_loss" for o in mine.objectives]
    others = np.logical_not(losses)
    assert np.array_equal(errors[:, :, others], plain[:, :, others])
    assert (plain[:, :, losses] == plain[:1, :, losses]).all()
    doubt = mine.metrics(index).quality.doubt
    assert doubt is not None
    assert errors[:, :, losses][:, :, 0].std(axis=0) == pytest.approx(doubt.sd, rel=0.06)
    # One draw moves all points together: the difference of two is what they do not share.
    apart = tuple(column - column[0] for column in doubt.columns)
    moved = (errors - errors[:, :1])[:, :, losses][:, :, 0].std(axis=0)
    assert moved == pytest.approx(np.sqrt(doubt.posterior.variance(apart)), rel=0.06, abs=1e-12)


# -- the reader --------------------------------------------------------------------------------


def loaded(folder: Path, text: str) -> LossRuns:
    return load_loss_runs(write(folder, text, "runs.csv"))


def test_a_file_is_read(tmp_path: Path):
    runs = loaded(tmp_path, RUNS)
    assert [run.name for run in runs.runs] == ["a", "b", "c"]
    assert runs.runs[1].training_tokens == 20e9
    assert runs.runs[1].loss == 2.9
    assert runs.runs[2].model.experts == (64,)
    assert runs.runs[0].model.blocks[0].sizes["head_dim"] == 64
    again = runs_again({"file": runs.file, "runs": runs.as_json()})
    assert again.digest == runs.digest


def test_models_by_name_and_by_file(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    config = '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8, '
    config += '"num_attention_heads": 8, "intermediate_size": 1408, "vocab_size": 32000}'
    (tmp_path / "mine" / "config.json").write_text(config)
    text = "model,training_tokens,loss\nllama-3-8b,1T,2.2\nmine/config.json,2B,3.8\n"
    runs = loaded(tmp_path, text).runs
    assert runs[0].model.hidden_size == 4096
    assert runs[1].model.hidden_size == 512


def test_the_digest_is_that_of_what_is_said(tmp_path: Path):
    first = loaded(tmp_path, RUNS).digest
    assert loaded(tmp_path, RUNS.replace("a,512", "other,512")).digest == first
    for old, new in (("3.83", "3.84"), ("2B,", "3B,"), ("1408", "1472")):
        assert loaded(tmp_path, RUNS.replace(old, new)).digest != first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "runs.csv:1: empty"),
        (HEAD, "runs.csv:1: no runs"),
        (RUNS.replace("loss\n", "los\n", 1), "runs.csv:1: los: unknown column 'los'; did you mean"),
        (RUNS.replace(",loss\n", ",name\n", 1), "runs.csv:1: name: a column that is there twice"),
        ("model,loss\nllama-3-8b,2\n", "runs.csv:1: training_tokens: no column"),
        ("training_tokens,loss\n2B,2\n", "runs.csv:1: hidden_size: no column"),
        (RUNS.replace("3.83", "x"), "runs.csv:2: loss: read 'x' (accepted: nats per token"),
        (RUNS.replace("3.83", "-1"), "runs.csv:2: loss: read '-1'"),
        (RUNS.replace("3.83", "nan"), "runs.csv:2: loss: read 'nan'"),
        (RUNS.replace(",3.83", ","), "runs.csv:2: loss: missing field"),
        (RUNS.replace("20B", "20"), "runs.csv:3: training_tokens: read '20', which is 20 tokens"),
        (RUNS.replace("20B", "many"), "runs.csv:3: training_tokens: read 'many'"),
        (RUNS.replace(",3.04", ""), "runs.csv:4: read 10 cells (accepted: 11 cells)"),
        (RUNS.replace("a,512", "a,half"), "runs.csv:2: hidden_size: 'half'"),
        (RUNS.replace("a,512", "a,0"), "runs.csv:2: hidden_size: 0 is no size"),
        (RUNS.replace("64,8,256", "64,80,256"), "runs.csv:4: num_experts_per_tok"),
        ("model,training_tokens,loss\nllama-9,1T,2\n", "runs.csv:2: model: 'llama-9' is no model"),
        ("model,hidden_size,training_tokens,loss\nllama-3-8b,4,1T,2\n", "runs.csv:2: model: a mod"),
        ("model,training_tokens,loss\n,1T,2\n", "runs.csv:2: hidden_size: missing field"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, said: str):
    error = str(refusal(loaded, tmp_path, text))
    assert said in error
    assert "\n" not in error


def test_every_mistake_is_said_with_its_line(tmp_path: Path):
    text = RUNS.replace("3.83", "x").replace("20B", "y")
    assert [error.line for error in mistakes(loaded, tmp_path, text)] == [2, 3]
