"""Exported configurations in Hugging Face transformers: every class is built on the meta device in
a shape that it publishes or that a space searches, and small copies run a forward pass."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dse.questions.export import counted_parameters, export_config
from dse.schema.huggingface import ARCHITECTURES, TRANSFORMERS, Written, write_config
from dse.schema.model import BlockSpec, Model
from dse.schema.model_catalog import resolve_model

pytestmark = pytest.mark.extra
torch = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

# A published model of every class that has one.
PUBLISHED = {
    "LlamaForCausalLM": "llama-3.2-1b",
    "Qwen2ForCausalLM": "qwen2.5-7b",
    "MistralForCausalLM": "mistral-7b-v0.1",
    "Qwen3ForCausalLM": "qwen3-8b",
    "Gemma3ForCausalLM": "gemma-3-27b",
    "NemotronForCausalLM": "nemotron-4-15b",
    "GPT2LMHeadModel": "gpt-2-xl",
    "OPTForCausalLM": "opt-6.7b",
    "GPTNeoXForCausalLM": "pythia-6.9b",
    "BloomForCausalLM": "bloom-176b",
    "MixtralForCausalLM": "mixtral-8x7b",
    "Glm4MoeForCausalLM": "glm-4.5",
    "Qwen3MoeForCausalLM": "qwen3-30b-a3b",
    "Qwen2MoeForCausalLM": "qwen1.5-moe-a2.7b",
    "GptOssForCausalLM": "gpt-oss-20b",
    "Llama4ForCausalLM": "llama-4-maverick",
    "DeepseekV3ForCausalLM": "deepseek-v3",
    "DeepseekV32ForCausalLM": "deepseek-v3.2",
    "GlmMoeDsaForCausalLM": "glm-5",
    "Qwen3NextForCausalLM": "qwen3-next-80b-a3b",
    "Qwen3_5ForCausalLM": "qwen3.5-27b",
    "MiniMaxForCausalLM": "minimax-text-01",
    "NemotronHForCausalLM": "nemotron-3-super-120b-a12b",
    "JambaForCausalLM": "jamba-v0.1",
    "Gemma4ForCausalLM": "gemma-4-26b-a4b",
}
BF16 = dict.fromkeys(("attention", "mlp", "experts", "embedding"), "bf16")
GQA = {"heads": 4, "kv_heads": 2, "head_dim": 16, "v_head_dim": 16, "window": 0, "qkv_bias": 0}
MLA = {
    "heads": 4, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip
KIMI = {
    "key_heads": 4, "key_head_dim": 16, "value_heads": 4, "value_head_dim": 16, "conv_width": 4,
    "gates_per_head": 1, "decay_rank": 16, "output_gate_rank": 16,
}  # fmt: skip
DELTA = {**KIMI, "key_heads": 2, "gates_per_head": 2, "decay_rank": 0, "output_gate_rank": 0}
MLP = {"intermediate_size": 96, "matrices": 3}
MOE = {
    "experts": 8, "experts_per_token": 2, "expert_intermediate_size": 32,
    "shared_intermediate_size": 0, "matrices": 3,
}  # fmt: skip
SHARED = {**MOE, "shared_intermediate_size": 64}


def small(*blocks: tuple[str, int, dict[str, int]], tied: bool = False) -> Model:
    """Layers of one or two sorts, small enough to run."""
    made = tuple(BlockSpec(kind, count, sizes) for kind, count, sizes in blocks)
    return Model("small", "small", 64, 512, tied, made, BF16, None, None, "a test")


MAMBA2 = {
    "inner_size": 128, "heads": 8, "groups": 1, "state_size": 16, "conv_width": 4, "dt_rank": 0,
}  # fmt: skip
MAMBA1 = {**MAMBA2, "heads": 0, "groups": 0, "dt_rank": 4}
SEARCHED = {
    "LlamaForCausalLM": small(("gqa", 2, GQA), ("mlp", 2, MLP), tied=True),
    "Qwen2ForCausalLM": small(("gqa", 2, {**GQA, "qkv_bias": 1}), ("mlp", 2, MLP)),
    "MistralForCausalLM": small(("gqa", 2, {**GQA, "window": 8}), ("mlp", 2, MLP)),
    "Qwen3ForCausalLM": small(
        ("gqa", 1, GQA), ("gqa", 3, {**GQA, "window": 8}), ("mlp", 4, MLP)
    ),
    "Gemma3ForCausalLM": small(
        ("gqa", 1, GQA), ("gqa", 3, {**GQA, "window": 8}), ("mlp", 4, MLP), tied=True
    ),
    "MixtralForCausalLM": small(("gqa", 2, GQA), ("moe", 2, MOE)),
    "Glm4MoeForCausalLM": small(("gqa", 3, GQA), ("mlp", 1, MLP), ("moe", 2, SHARED)),
    "Qwen3MoeForCausalLM": small(("gqa", 3, GQA), ("mlp", 1, MLP), ("moe", 2, MOE)),
    "Qwen2MoeForCausalLM": small(
        ("gqa", 3, GQA), ("mlp", 1, MLP), ("moe", 2, {**MOE, "shared_intermediate_size": 40})
    ),
    "Dots1ForCausalLM": small(
        ("gqa", 1, GQA), ("gqa", 2, {**GQA, "window": 8}), ("mlp", 1, MLP), ("moe", 2, SHARED)
    ),
    "GptOssForCausalLM": small(
        ("gqa", 1, GQA), ("gqa", 1, {**GQA, "window": 8}), ("moe", 2, {**MOE, "expert_bias": 1})
    ),
    "DeepseekV3ForCausalLM": small(("mla", 3, MLA), ("mlp", 1, MLP), ("moe", 2, SHARED)),
    "Qwen3NextForCausalLM": small(
        ("gqa", 1, {**GQA, "output_gate": 1}), ("delta_net", 3, DELTA), ("moe", 4, SHARED)
    ),
    "Qwen3_5ForCausalLM": small(
        ("gqa", 1, {**GQA, "output_gate": 1}), ("delta_net", 3, DELTA), ("mlp", 4, MLP)
    ),
    "GraniteMoeHybridForCausalLM": small(("gqa", 1, GQA), ("mamba", 3, MAMBA2), ("mlp", 4, MLP)),
    "JambaForCausalLM": small(
        ("gqa", 1, GQA), ("mamba", 3, MAMBA1), ("mlp", 2, {**MLP, "intermediate_size": 32}),
        ("moe", 2, MOE),
    ),
    "KimiLinearForCausalLM": small(
        ("mla", 1, {**MLA, "q_lora_rank": 0}), ("delta_net", 3, KIMI), ("mlp", 1, MLP),
        ("moe", 3, SHARED),
    ),
}  # fmt: skip


def built(written: Written, folder: Path, device: str) -> Any:
    """The class that transformers makes of the file."""
    (folder / "config.json").write_text(json.dumps(written.config), encoding="utf-8")
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@pytest.fixture(autouse=True)
def warnings_of_others():
    """Warnings of transformers and torch are not this project's."""
    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_the_version_is_the_one_that_is_named():
    assert transformers.__version__ == TRANSFORMERS


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_are_those_of_the_class(name: str, tmp_path: Path):
    """To the parameter: the count of dse and what `beyond` says."""
    models = [SEARCHED[name]] if name in SEARCHED else []
    if name in PUBLISHED:
        models.append(resolve_model(PUBLISHED[name]))
    assert models
    for model in models:
        written = write_config(model, architecture=name)
        module = built(written, tmp_path, "meta")
        assert type(module).__name__ == name
        total = sum(parameter.numel() for parameter in module.parameters())
        assert total == counted_parameters(model) + written.parameters_beyond


@pytest.mark.parametrize("name", SEARCHED)
def test_a_small_copy_runs(name: str, tmp_path: Path):
    torch.manual_seed(0)
    module = built(write_config(SEARCHED[name], architecture=name), tmp_path, "cpu").eval()
    with torch.no_grad():
        logits = module(torch.arange(12).reshape(1, 12)).logits
    assert logits.shape == (1, 12, SEARCHED[name].vocab_size)
    assert torch.isfinite(logits).all()


def test_the_exported_file_is_the_one_that_is_built(tmp_path: Path):
    made = export_config(replace(SEARCHED["LlamaForCausalLM"], training_tokens=1e9), context=64)
    (tmp_path / "config.json").write_text(made.files["config.json"], encoding="utf-8")
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.model_type, config.max_position_embeddings) == ("llama", 64)
    assert made.document["parameters"]["of_the_class"] == counted_parameters(
        SEARCHED["LlamaForCausalLM"]
    )
