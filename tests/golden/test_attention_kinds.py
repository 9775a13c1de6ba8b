"""What each kind of attention keeps for a token and for a request, by hand, and what it reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dse
from dse.blocks import KINDS
from dse.physics.deployed import Deployed
from dse.physics.parameters import (
    index_bytes_per_token,
    kv_elements_per_token,
    state_bytes_per_request,
)
from dse.physics.step import Step, Work
from dse.schema.model_catalog import resolve_model
from tests.helpers import deploy, machines, run, workload
from tests.helpers_models import batch_of_models

ON = machines()
CONFIGS = Path(__file__).parents[1] / "data" / "configs"

# elements a token, bytes of indexer keys a token, bytes of state a request
BY_HAND = {
    # multi-head, grouped, multi-query: keys and values of every KV head of every layer
    "llama-2-7b": (2 * 32 * 128 * 32, 0, 0),
    "llama-3-70b": (2 * 8 * 128 * 80, 0, 0),
    "falcon-7b": (2 * 1 * 64 * 32, 0, 0),
    # keys of 192 and values of 128; 9 full layers of 4 KV heads, 39 windowed ones of 8
    "mimo-v2-flash": (9 * 4 * (192 + 128) + 39 * 8 * (192 + 128), 0, 0),
    # 10 full layers of 4 heads of 512, 50 windowed ones of 16 heads of 256; values from keys are
    # normed apart, so both are kept
    "gemma-4-31b": (10 * 2 * 4 * 512 + 50 * 2 * 16 * 256, 0, 0),
    # two layers share keys and values: 32 of 64 keep some
    "hunyuan-large": (32 * 2 * 8 * 80, 0, 0),
    # latent attention: 512 + 64
    "deepseek-v3": (576 * 61, 0, 0),
    # and one fp8 key of 128 a layer for the indexer
    "deepseek-v3.2": (576 * 61, 128 * 61, 0),
    "glm-5": (576 * 78, 128 * 78, 0),
    "minimax-m3": (60 * 2 * 4 * 128, 57 * 128, 0),
    # a latent of 512 for 4 tokens in 21 layers and for 128 in 20; a window of 128 in all 43
    "deepseek-v4-flash": (21 * 128 + 20 * 4, 21 * 32, 43 * 128 * 512 * 2),
    # gated delta-net: 32 heads of 128 x 128 in float32, 3 tokens of 2 x 2,048 + 4,096 channels
    "qwen3-next-80b-a3b": (12 * 2 * 2 * 256, 0, 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)),
    # lightning attention: 64 heads of 128 x 128, no convolution
    "minimax-text-01": (10 * 2 * 8 * 128, 0, 70 * 64 * 128 * 128 * 4),
    # Kimi delta attention: 96 heads of 128 x 128, 3 tokens of 3 x 12,288 channels
    "kimi-k3": (24 * 576, 0, 69 * (96 * 128 * 128 * 4 + 3 * 36_864 * 2)),
    # Mamba-2: 16,384 x 256, 3 tokens of 16,384 + 2 x 8 x 256 channels
    "nemotron-h-56b": (10 * 2 * 8 * 128, 0, 54 * (16_384 * 256 * 4 + 3 * 20_480 * 2)),
    # Mamba-1: 8,192 x 16, 3 tokens of 8,192 channels
    "jamba-v0.1": (4 * 2 * 8 * 128, 0, 28 * (8192 * 16 * 4 + 3 * 8192 * 2)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_cache_and_state_by_hand(name):
    batch = batch_of_models(resolve_model(name))
    elements, index, state = BY_HAND[name]
    assert kv_elements_per_token(batch) == elements
    assert index_bytes_per_token(batch) == index
    assert state_bytes_per_request(batch) == state
    metric = run(deploy(name, "h200_sxm"), workload(100, 10), ON).values["kv_bytes_per_token"]
    assert metric == 2 * elements + index


def kept(name: str, tokens: float, **axes: float) -> float:
    """Bytes that one request keeps on one chip at a length of `tokens`."""
    batch = deploy(name, "h200_sxm", **axes)
    deployed = Deployed(batch, ON)
    length = np.array([tokens])
    total = 0.0
    for block in batch.blocks:
        bytes_ = KINDS[block.kind].kv_bytes_per_request(deployed, block, length)
        total += float((block.count * bytes_)[0])
    return total


@pytest.mark.parametrize("name", BY_HAND)
def test_a_request_keeps_what_its_tokens_and_its_states_add_up_to(name):
    """At a length that no window or chunk caps, on one chip, in whole pages of 16 tokens."""
    elements, index, state = BY_HAND[name]
    windowed = {"gemma-4-31b": 1024, "mimo-v2-flash": 128}
    if name in windowed:
        assert kept(name, windowed[name]) == windowed[name] * 2 * elements
    else:
        assert kept(name, 2048 * 16) == 2048 * 16 * (2 * elements + index) + state


def test_windows_and_chunks_cap_the_cache():
    """Llama 4: 12 layers keep every token, 36 keep their chunk of 8,192."""
    layer = 2 * 8 * 128 * 2
    assert kept("llama-4-scout", 4096) == 48 * layer * 4096
    assert kept("llama-4-scout", 65_536) == layer * (12 * 65_536 + 36 * 8192)
    full, windowed = 4 * 320 * 2, 8 * 320 * 2
    assert kept("mimo-v2-flash", 65_536) == 9 * full * 65_536 + 39 * windowed * 128


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "minimax-text-01", "nemotron-h-56b"])
def test_states_are_split_over_the_chips(name):
    _, _, state = BY_HAND[name]
    assert kept(name, 0, tensor_parallel=8) == state / 8


def entries(name: str, *, decode=(0, 0), prefill=0) -> dict[str, tuple[float, float]]:
    """(compute, memory) seconds of a step's operators on an H200; operators of one name add up."""
    batch = deploy(name, "h200_sxm", tensor_parallel=8)
    rows, context, prompt = (np.array([float(v)]) for v in (*decode, prefill))
    work = Work(rows, context, prefill_rows=prompt, prompt_tokens=np.maximum(prompt, 1.0))
    step = Step(Deployed(batch, ON), work, keep=True)
    found: dict[str, tuple[float, float]] = {}
    for entry in step.ledger.entries or []:
        compute, memory = found.get(entry.name, (0.0, 0.0))
        found[entry.name] = (compute + entry.compute_s[0], memory + entry.memory_s[0])
    return found


def test_sparse_attention_reads_2048_tokens_and_scores_all():
    at = {
        context: entries("deepseek-v3.2", decode=(8, context)) for context in (1024, 2048, 65_536)
    }
    attention = {context: found["attention over the KV cache"][1] for context, found in at.items()}
    indexer = {context: found["indexer over the cache"][1] for context, found in at.items()}
    assert attention[2048] == 2 * attention[1024] == attention[65_536]
    assert indexer[65_536] == pytest.approx(64 * indexer[1024])
    dense = entries("deepseek-v3", decode=(8, 1024))["attention over the KV cache"]
    assert at[1024]["attention over the KV cache"] == dense


def test_a_prompt_runs_the_cheaper_form_of_sparse_attention():
    """Short prompts are expanded over all tokens, as in DeepSeek-V3; a long one costs 2,048 latents
    a token, less the first ones, which see fewer."""
    for prompt in (1000, 8192):
        name = "attention over the prompt"
        dense = entries("deepseek-v3", prefill=prompt)[name]
        assert entries("deepseek-v3.2", prefill=prompt)[name] == dense
    long = 131_072
    sparse, dense = (
        entries(name, prefill=long)["attention over the prompt"][0]
        for name in ("deepseek-v3.2", "deepseek-v3")
    )
    absorbed = 2 * (2048 - 2048**2 / 2 / long) * (576 + 512)
    assert sparse / dense == pytest.approx(absorbed / (long * (192 + 128)))


def test_a_chunk_hides_what_is_before_it():
    """Llama 4 on 36 of 48 layers: from the second chunk on a new token reads half a chunk."""
    read = {
        context: entries("llama-4-scout", decode=(8, context))["attention over the KV cache"][1]
        for context in (4096, 8192, 65_536)
    }
    token = read[4096] / (48 * 4096)
    assert read[8192] == pytest.approx(token * 48 * 8192)
    assert read[65_536] == pytest.approx(token * (12 * 65_536 + 36 * 4096))
    first, second = (
        entries("llama-4-scout", prefill=prompt)["attention over the prompt"][0]
        for prompt in (8192, 16_384)
    )
    assert second / first == pytest.approx((12 * 4 + 36 * 2) / 48)


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "jamba-v0.1", "nemotron-h-56b", "kimi-k3"])
def test_states_cost_the_same_at_any_length(name):
    short, long = (entries(name, decode=(8, context)) for context in (100, 100_000))
    assert short["state read and written"] == long["state read and written"]
    assert entries(name, decode=(16, 100))["state read and written"][1] == pytest.approx(
        2 * short["state read and written"][1]
    )
    a, b = (entries(name, prefill=prompt)["state over the prompt"] for prompt in (1024, 4096))
    assert b == pytest.approx((4 * a[0], 4 * a[1]))


def test_state_traffic_by_hand():
    """Qwen3-Next, 8 requests on one rank of 8: 36 layers read and write 4 heads of 128 x 128 in
    float32; the same bytes of cache take the same time."""
    state = entries("qwen3-next-80b-a3b", decode=(8, 512))
    moved = 36 * 2 * 8 * 4 * 128 * 128 * 4
    cache = 12 * 8 * 512 * (1 * 2 * 256) * 2  # one KV head of two on each rank
    assert state["state read and written"][1] / moved == pytest.approx(
        state["attention over the KV cache"][1] / cache
    )


def test_borrowed_laws_count_as_derived():
    load = workload(1000, 100)
    for name, kind in (("llama-3-8b", 0), ("qwen3-next-80b-a3b", 1), ("deepseek-v3.2", 1)):
        found = run(deploy(name, "h200_sxm", tensor_parallel=8, weight_dtype="bf16"), load, ON)
        assert found.provenance[0] >= kind, name


# Milliseconds of BERT-Large in 16 bits on an A100 of 40 GB by (tokens, sequences):
# github:NVIDIA/TensorRT demo/BERT/README.md@007c347, fused kernels, not fitted to.
TENSORRT = {
    (384, 128): 163.70,
    (384, 32): 43.01,
    (384, 8): 11.53,
    (384, 1): 3.12,
    (128, 128): 51.61,
    (128, 32): 13.85,
}


@pytest.mark.parametrize(("tokens", "sequences"), TENSORRT)
def test_an_encoder_is_read_as_fast_as_nvidia_measured(tokens, sequences):
    found = dse.estimate(
        CONFIGS / "bert-large.json",
        "a100_40_sxm",
        prompt_tokens=tokens,
        output_tokens=1,
        concurrency=sequences,
        serving="static",
    ).document
    assert found["kv_bytes_per_token"] == 0.0
    assert 0.9 < found["prefill_s"] * 1e3 / TENSORRT[tokens, sequences] < 1.3


def test_a_token_of_an_encoder_sees_the_whole_prompt():
    """Arithmetic of attention over the width of all ranks: twice that of a causal model."""
    widths = {"bert-large": 24 * 1024, "gpt-2-xl": 48 * 2048}  # 4 of 25 heads a rank
    seconds = {
        name: entries(str(CONFIGS / f"{name}.json"), prefill=384)["attention over the prompt"][0]
        for name in widths
    }
    encoder, causal = (seconds[name] / width for name, width in widths.items())
    assert encoder == pytest.approx(2.0 * causal)
