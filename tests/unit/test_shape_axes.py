"""Attention kinds and layers as axes: published models from axes, counted layers, mistakes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dse.candidates import CandidateBatch
from dse.perf.parameters import parameters, state_bytes_per_request
from dse.space.batches import batch_of_values
from dse.space.space import Space
from dse.specs.study import Study, load_study
from tests.helpers import CHIPS, deploy, run, workload

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
MLA = {"attention": "mla", "q_lora_rank": 1536, "kv_lora_rank": 512}
DELTA = {"linear_attention": "gated_delta_net", "full_attention_interval": 4}
# The values that a config.json has, under its names; what is left out is a default of the axes.
PUBLISHED: dict[str, dict[str, Any]] = {
    "deepseek-v3": MLA
    | {
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
        "vocab_size": 129280, "sparse": True, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "num_shared_experts": 1, "num_dense_layers": 3,
        "intermediate_size": 18432,
    },
    "kimi-k2": MLA
    | {
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64,
        "vocab_size": 163840, "sparse": True, "num_experts": 384, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "num_shared_experts": 1, "num_dense_layers": 1,
        "intermediate_size": 18432,
    },
    "deepseek-v3.2": MLA
    | {
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
        "vocab_size": 129280, "sparse": True, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "num_shared_experts": 1, "num_dense_layers": 3,
        "intermediate_size": 18432, "index_topk": 2048,
    },
    "gemma-3-27b": {
        "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32,
        "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 262144,
        "tied_embeddings": True, "intermediate_size": 21504, "sliding_window": 1024,
        "sliding_window_pattern": 6,
    },
    "gpt-oss-120b": {
        "hidden_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "attention_bias": True,
        "sliding_window": 128, "sliding_window_pattern": 2, "sparse": True, "num_experts": 128,
        "num_experts_per_tok": 4, "moe_intermediate_size": 2880,
    },
    "qwen3-next-80b-a3b": DELTA
    | {
        "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "attn_output_gate": True,
        "vocab_size": 151936, "sparse": True, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 512, "num_shared_experts": 1,
    },
    "llama-4-maverick": {
        "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048,
        "attention_chunk_size": 8192, "no_rope_layer_interval": 4, "sparse": True,
        "num_experts": 128, "num_experts_per_tok": 1, "moe_intermediate_size": 8192,
        "num_shared_experts": 1, "intermediate_size": 16384, "interleave_moe_layer_step": 2,
    },
    "jamba-v0.1": {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 65536, "sparse": True,
        "linear_attention": "mamba", "full_attention_interval": 8, "num_experts": 16,
        "num_experts_per_tok": 2, "moe_intermediate_size": 14336, "intermediate_size": 14336,
        "interleave_moe_layer_step": 2,
    },
}  # fmt: skip
KIMI = {
    "attention": "mla", "kv_lora_rank": 512, "hidden_size": 2304, "num_hidden_layers": 28,
    "num_attention_heads": 32, "vocab_size": 163840, "sparse": True, "num_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "num_shared_experts": 1,
    "num_dense_layers": 1, "intermediate_size": 9216, "linear_attention": "kimi_delta",
    "full_attention_interval": 4, "linear_num_value_heads": 32,
}  # fmt: skip
METRICS = (
    "total_parameters", "active_parameters", "kv_bytes_per_token", "prefill_s", "tpot_s", "ttft_s",
    "decode_step_s", "memory_bytes_per_chip", "running_requests", "latency_floor_s",
)  # fmt: skip


def space_file(tmp_path, model: Mapping[str, Any], **rest: Any):
    document = {
        "name": "sample",
        "workload": {"prompt_tokens": 16384, "output_tokens": 1024, "serving": "continuous"},
        "price_basis": "rental_3yr",
        "training_tokens": "15T",
        "model": dict(model),
        "deployment": {
            "chip": "h200_sxm", "replicas": 1, "tensor_parallel": 8, "weight_dtype": "bf16",
            "kv_dtype": "bf16", "concurrency": 64,
        },
        "objectives": {"tpot_s": "minimize"},
        **rest,
    }  # fmt: skip
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def read(tmp_path, model: Mapping[str, Any], **rest: Any) -> Study:
    return load_study(space_file(tmp_path, model, **rest))


def batch(study: Study) -> CandidateBatch:
    space = Space.of(study)
    found = batch_of_values(space.values(space.unrank(np.arange(space.size))))
    return replace(found, chip=np.full(len(found), CHIPS.index("h200_sxm")))


def check_equal(ours: CandidateBatch, model: str) -> None:
    theirs = deploy(model, "h200_sxm", weight_dtype="bf16", tensor_parallel=8, concurrency=64)
    load = workload(16384, 1024)
    mine, other = run(ours, load), run(theirs, load)
    for metric in METRICS:
        assert mine.values[metric][0] == other.values[metric][0], metric
    assert state_bytes_per_request(ours)[0] == state_bytes_per_request(theirs)[0]
    for part in ("attention", "mlp", "experts", "router", "norms", "head"):
        found, wanted = (getattr(parameters(one), part)[0] for one in (ours, theirs))
        assert found == wanted, part


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_from_axes_is_that_of_the_catalog(name: str, tmp_path) -> None:
    check_equal(batch(read(tmp_path, PUBLISHED[name])), name)


def test_kimi_linear_with_a_layer_more_is_that_of_its_configuration(tmp_path) -> None:
    """The published one has attention in its last layer, too: 7 of 27, where every 4th makes 6."""
    config = json.loads((CONFIGS / "kimi-linear-48b-a3b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "num_hidden_layers": 28}))
    check_equal(batch(read(tmp_path, KIMI)), str(path))
