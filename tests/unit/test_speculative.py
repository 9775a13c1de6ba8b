"""Speculative decoding and cached prefixes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.physics.phases import tokens_per_step
from dse.physics.workload import Speculation
from tests.helpers import MODELS, deploy, run, workload

LOAD = workload(2048, 512)


def values(load, model="llama-3-70b", **axes):
    axes = {"tensor_parallel": 8, "concurrency": [1, 8, 64, 512]} | axes
    return run(deploy(model, "h200_sxm", **axes), load).values


def test_expected_tokens_are_those_of_a_simulation_of_drafts() -> None:
    """Draw drafts until the first that is refused; the model's own token follows."""
    rng = np.random.default_rng(1)
    for drafted, acceptance in ((1, 0.5), (3, 0.7), (7, 0.9)):
        accepted = rng.random((200_000, drafted)) < acceptance
        tokens = 1 + np.cumprod(accepted, axis=1).sum(axis=1)
        found = tokens_per_step(drafted, acceptance)
        assert found == pytest.approx(tokens.mean(), rel=0.01)


def test_accepted_drafts_help_small_batches_most() -> None:
    plain = values(LOAD)["tpot_s"]
    drafted = values(replace(LOAD, speculation=Speculation(3, 0.8)))["tpot_s"]
    gain = plain / drafted
    assert gain[0] > 2.0
    assert gain[0] > gain[2]


@pytest.mark.parametrize("model", MODELS)
def test_a_module_weighs_about_one_layer(model) -> None:
    plain = values(LOAD, model, tensor_parallel=4, concurrency=1)
    drafted = values(
        replace(LOAD, speculation=Speculation(1, 0.7)), model, tensor_parallel=4, concurrency=1
    )
    batch = deploy(model, "h200_sxm", tensor_parallel=4)
    weights = "memory_weights_bytes_per_chip"
    more = drafted[weights][0] - plain[weights][0]
    assert 0.3 < more / (plain[weights][0] / batch.layers[0]) < 1.7


def test_a_cached_prefix_saves_its_prefill_and_no_memory() -> None:
    cold, warm = values(LOAD), values(replace(LOAD, prefix_hit_rate=0.75))
    assert (warm["prefill_s"] < 0.4 * cold["prefill_s"]).all()
    assert (warm["ttft_s"] < cold["ttft_s"]).all()
    assert (warm["output_tokens_per_s"] > cold["output_tokens_per_s"] * 0.999).all()
    assert warm["decode_step_s"][0] == cold["decode_step_s"][0]
    assert (warm["memory_bytes_per_chip"] == cold["memory_bytes_per_chip"]).all()


def test_the_rest_of_a_prompt_attends_to_what_is_cached() -> None:
    """A quarter of a prompt of 128k costs more than a prompt of 32k."""
    rest = values(replace(workload(131_072, 64), prefix_hit_rate=0.75), concurrency=1)
    short = values(workload(32_768, 64), concurrency=1)
    assert rest["prefill_s"][0] > 1.2 * short["prefill_s"][0]
