"""Training arguments of Megatron: what they say, and what they refuse."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from dse.errors import InputError
from dse.questions.export import export_arguments
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from tests.helpers_export import DEGREES


def arguments(model: str | Model, sequence: int = 4096, **degrees: int) -> dict[str, str | None]:
    shape = resolve_model(model) if isinstance(model, str) else model
    made = export_arguments(shape, {**DEGREES, **degrees}, sequence)
    text = made.files["megatron.sh"]
    words = shlex.split(text[text.index("=(") + 2 : text.rindex(")")])
    assert words == made.document["arguments"]
    found: dict[str, str | None] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            assert word not in found
            found[word] = None if after.startswith("--") else after
    return found


def test_megatron_arguments_of_qwen3():
    """As scripts/models/qwen3-30B-A3B.sh of THUDM/slime has them (2025-09)."""
    published = {
        "--num-layers": "48",
        "--hidden-size": "2048",
        "--ffn-hidden-size": "6144",
        "--num-attention-heads": "32",
        "--num-query-groups": "4",
        "--kv-channels": "128",
        "--vocab-size": "151936",
        "--moe-ffn-hidden-size": "768",
        "--moe-router-topk": "8",
        "--num-experts": "128",
        "--group-query-attention": None,
        "--swiglu": None,
        "--untie-embeddings-and-output-weights": None,
        "--moe-grouped-gemm": None,
        "--normalization": "RMSNorm",
        "--position-embedding-type": "rope",
        "--disable-bias-linear": None,
        "--qk-layernorm": None,
    }
    written = arguments("qwen3-30b-a3b")
    # All layers are sparse: the width of dense ones is that of no layer.
    del published["--ffn-hidden-size"]
    assert {name: written[name] for name in published} == published


def test_megatron_arguments_of_gpt_oss():
    """Sinks and biases as the guide of scripts for gpt-oss in THUDM/slime has them (2025-11)."""
    written = arguments("gpt-oss-20b")
    assert written["--softmax-type"] == "learnable"
    assert written["--quick-geglu"] is None
    assert written["--glu-linear-offset"] == "1.0"
    assert not {"--disable-bias-linear", "--add-qkv-bias", "--swiglu"} & set(written)


def test_megatron_arguments_have_what_the_class_has():
    assert "--qk-layernorm" in arguments("qwen3-8b")
    assert "--qk-layernorm" not in arguments("llama-3-70b")
    assert "--moe-shared-expert-gate" in arguments("qwen3-next-80b-a3b")
    assert "--add-qkv-bias" in arguments("qwen2.5-7b")
    assert "--normalization" not in arguments("pythia-6.9b")  # LayerNorm, with biases
    assert "--squared-relu" in arguments("nemotron-4-340b")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("gemma-3-27b", "norms after attention and feed-forward; gates of GELU"),
        ("olmo-2-7b", "published as Olmo2ForCausalLM: norms of heads"),
        ("glm-4.5", "use_qk_norm"),
        ("bloom-176b", "ALiBi"),
        ("llama-3-70b", None),
        ("qwen3-8b", None),
    ],
)
def test_what_megatron_arguments_do_not_say_is_noted(model: str, said: str | None):
    notes = export_arguments(resolve_model(model), DEGREES, 2048).notes
    assert len(notes) == 2 + (said is not None)
    assert said is None or said in notes[2]


def test_megatron_arguments_of_latent_attention():
    written = arguments("deepseek-v3", tensor=2, data=8, expert=16)
    assert written["--multi-latent-attention"] is None
    assert written["--q-lora-rank"] == "1536"
    assert written["--qk-head-dim"] == written["--v-head-dim"] == "128"
    assert written["--moe-layer-freq"] == "([0]*3+[1]*58)"
    assert written["--moe-shared-expert-intermediate-size"] == "2048"
    assert written["--expert-model-parallel-size"] == "16"
    assert written["--expert-tensor-parallel-size"] == "1"
    assert "--sequence-parallel" in written
    assert "--q-lora-rank" not in arguments("deepseek-v2-lite")


def test_megatron_arguments_of_windows_and_hybrids():
    gemma = arguments("gemma-3-27b")
    assert (gemma["--window-size"], gemma["--window-attn-skip-freq"]) == ("1023,0", "6")
    assert "--untie-embeddings-and-output-weights" not in gemma
    mistral = arguments("mistral-7b-v0.1")
    assert "--window-attn-skip-freq" not in mistral  # all layers
    hybrid = arguments("qwen3-next-80b-a3b")
    assert hybrid["--experimental-attention-variant"] == "gated_delta_net"
    assert hybrid["--linear-attention-freq"] == "4"
    assert "--attention-output-gate" in hybrid


def test_the_vocabulary_is_padded_for_tensor_parallelism():
    for model, tensor, rows in (
        ("qwen2.5-7b", 1, 152_064),
        ("qwen2.5-7b", 4, 152_064),
        ("llama-3-70b", 8, 129_024),
        ("gpt-2-xl", 1, 50_304),  # 50,257, as Megatron-LM pads it
    ):
        made = export_arguments(resolve_model(model), {**DEGREES, "tensor": tensor}, 1024)
        assert made.document["padded_vocab_size"] == rows
    assert arguments("gpt-2-xl", 1024)["--position-embedding-type"] == "learned_absolute"


@pytest.mark.parametrize(
    ("model", "degrees", "reason"),
    [
        ("llama-3-70b", {"pipeline": 81}, "80 layers in 81 stages"),
        ("llama-3-70b", {"tensor": 7}, "64 heads over 7 ranks"),
        ("mixtral-8x7b", {"expert": 3, "data": 3}, "8 experts over 3 ranks"),
        ("mixtral-8x7b", {"expert": 4}, "expert parallelism 4 in a group of 1"),
        ("jamba-v0.1", {}, "no Mamba layers"),
        ("llama-4-scout", {}, "no chunk of grouped-query attention"),
        ("gpt-2-xl", {}, "no learned positions beyond 1024"),
    ],
)
def test_what_megatron_has_no_argument_for(model: str, degrees: dict[str, int], reason: str):
    with pytest.raises(InputError, match=reason):
        arguments(model, **degrees)


@pytest.mark.parametrize(("layers", "stages"), [(61, 8), (61, 2), (80, 3), (9, 8), (91, 32)])
def test_stages_that_differ_hold_all_layers(layers: int, stages: int):
    base = resolve_model("llama-3-8b")

    def ends(layers: int) -> list[int]:
        blocks = tuple(replace(block, count=layers) for block in base.blocks)
        written = arguments(replace(base, blocks=blocks), pipeline=stages)
        flags = [f"--decoder-{end}-pipeline-num-layers" for end in ("first", "last")]
        return [int(written[flag] or 0) for flag in flags if flag in written]

    first, last = ends(layers)
    between = layers - first - last
    assert first >= last >= 1
    assert between == 0 if stages == 2 else between % (stages - 2) == 0 < between
    assert ends(8 * stages) == []


def test_deepseek_v3_in_eight_stages_gives_the_ends_sizes_of_their_own():
    """8 layers in each of the six stages between: no stage has more than an even split needs."""
    written = arguments("deepseek-v3", pipeline=8)
    assert written["--decoder-first-pipeline-num-layers"] == "7"
    assert written["--decoder-last-pipeline-num-layers"] == "6"
    made = export_arguments(resolve_model("deepseek-v3"), {**DEGREES, "pipeline": 8}, 4096)
    assert "61 layers in 8 stages: 7 in the first, 6 in the last, 8 in each between" in made.notes
    assert "--decoder-first-pipeline-num-layers" not in arguments("llama-3-70b", pipeline=8)
