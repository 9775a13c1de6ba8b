"""Parameter counts: matrices counted by hand, laws that every shape obeys, published caches."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.perf.parameters import Parameters, kv_elements_per_token, parameters
from dse.specs.model import BlockSpec, Model
from dse.specs.model_catalog import resolve_model
from tests.helpers_models import batch_of_models, gqa, mlp, model, moe


def count(shape: Model) -> Parameters:
    return parameters(batch_of_models(shape))


def sizes_of(matrices: list[tuple[int, int]]) -> int:
    return sum(math.prod(matrix) for matrix in matrices)


def test_dense_model_by_its_matrices():
    found = count(model(gqa(2, heads=4, kv_heads=2, head_dim=8), mlp(2, 96), hidden=64, vocab=100))
    assert found.attention == 2 * sizes_of([(64, 32), (64, 16), (64, 16), (32, 64)])
    assert found.mlp == 2 * sizes_of([(64, 96), (64, 96), (96, 64)])
    assert found.norms == 2 * 2 * 64 + 64
    assert found.embedding == found.head == 100 * 64
    assert found.experts == found.router == found.active_experts == 0


def test_plain_feed_forward_has_two_matrices():
    found = count(model(gqa(1, 4, 4, 16), mlp(1, 256, matrices=2)))
    assert found.mlp == sizes_of([(64, 256), (256, 64)])


def test_biases_of_query_key_value_count_as_vectors():
    plain = count(model(gqa(3, 4, 2, 8), mlp(3, 96)))
    biased = count(model(gqa(3, 4, 2, 8, qkv_bias=1), mlp(3, 96)))
    assert biased.norms - plain.norms == 3 * (4 + 2 + 2) * 8
    assert biased.attention == plain.attention


def test_sparse_model_by_its_matrices():
    blocks = (gqa(3, 4, 2, 8), mlp(1, 96), moe(2, experts=10, per_token=3, width=16, shared=32))
    found = count(model(*blocks))
    expert = sizes_of([(64, 16), (64, 16), (16, 64)])
    assert found.experts == 2 * 10 * expert
    assert found.active_experts == 2 * 3 * expert
    assert found.router == 2 * 64 * 10
    assert found.mlp == 3 * 64 * 96 + 2 * 3 * 64 * 32  # the dense layer, and the shared experts


@pytest.mark.parametrize("rank", [0, 24])
def test_latent_attention_by_its_matrices(rank):
    sizes = {
        "heads": 4,
        "q_lora_rank": rank,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 6,
        "v_head_dim": 10,
    }
    found = count(model(BlockSpec("mla", 1, sizes), mlp(1, 96)))
    query = [(64, rank), (rank, 4 * 14)] if rank else [(64, 4 * 14)]
    assert found.attention == sizes_of([*query, (64, 12 + 6), (12, 4 * (8 + 10)), (4 * 10, 64)])
    assert found.norms == 3 * 64 + rank + 12


def test_tied_table_is_counted_once_and_serves_as_head():
    untied = count(model(gqa(1, 4, 4, 16), mlp(1, 96)))
    tied = count(model(gqa(1, 4, 4, 16), mlp(1, 96), tied=True))
    assert tied.head == 0
    assert untied.total - tied.total == 100 * 64
    assert tied.active == untied.active
    assert tied.non_embedding == untied.non_embedding


def test_empty_blocks_add_nothing_and_rows_do_not_meet():
    dense = model(gqa(5, 4, 2, 8), mlp(5, 90))
    sparse = model(gqa(7, 4, 2, 8, window=128), moe(7, 6, 2, 30, 10), hidden=192)
    latent = resolve_model("deepseek-v3")
    batch = batch_of_models(dense, sparse, latent)
    together = parameters(batch)
    cache = kv_elements_per_token(batch)
    for row, shape in enumerate((dense, sparse, latent)):
        alone = batch_of_models(shape)
        for field in dataclasses.fields(Parameters):
            value = getattr(together, field.name)[row]
            assert value == getattr(parameters(alone), field.name)[0], field.name
        assert cache[row] == kv_elements_per_token(alone)[0]
    sliced = parameters(batch[1:2])
    assert np.array_equal(sliced.total, together.total[1:2])


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("llama-3-70b", 2 * 8 * 128 * 80),
        ("llama-2-7b", 2 * 32 * 128 * 32),
        ("deepseek-v3", 576 * 61),  # arXiv 2412.19437: a latent of 512 and a rope key of 64
        ("gpt-oss-120b", 2 * 8 * 64 * 36),
    ],
)
def test_cache_elements_of_a_token(name, elements):
    assert kv_elements_per_token(batch_of_models(resolve_model(name))) == elements


@given(
    heads=st.integers(1, 64),
    group=st.integers(1, 8),
    head_dim=st.sampled_from([64, 80, 128]),
    layers=st.integers(1, 100),
    experts=st.integers(1, 256),
    width=st.integers(1, 4096),
    shared=st.integers(0, 4096),
    tied=st.booleans(),
    data=st.data(),
)
def test_laws_of_every_shape(*, heads, group, head_dim, layers, experts, width, shared, tied, data):
    per_token = data.draw(st.integers(1, experts))
    attention = gqa(layers, heads * group, heads, head_dim)

    def of(routed: int, chosen: int) -> Parameters:
        block = moe(layers, routed, chosen, width, shared)
        return count(model(attention, block, hidden=512, vocab=1000, tied=tied))

    found = of(experts, per_token)
    assert 0 < found.active <= found.total
    assert found.total == found.non_embedding + found.embedding + found.head
    # More experts to choose from cost the token nothing but the router.
    more = of(2 * experts, per_token)
    assert more.active - more.router == found.active - found.router
    assert more.experts == 2 * found.experts
    # With every expert chosen, all that is not the input table is active.
    whole = of(experts, experts)
    assert whole.active_non_embedding == whole.non_embedding
