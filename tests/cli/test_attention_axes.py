"""A space that searches kinds of attention, as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import dse, fits

SPACE = """\
name: kinds
workload: {prompt_tokens: 32768, output_tokens: 512, serving: continuous, backend: current,
  draft_tokens: 1, acceptance: 0.8}
price_basis: rental_3yr
model:
  vocab_size: 128256
  hidden_size: [2048, 3072]
  num_hidden_layers: 48
  head_dim: 128
  num_attention_heads: {ratio_of: hidden_size / head_dim, values: [1]}
  attention: [gqa, mla]
  linear_attention: [none, gated_delta_net, mamba2]
  full_attention_interval: [4, 8]
  num_key_value_heads: [8, 16]
  sliding_window: {values: [0, 1024], when: {linear_attention: none}}
  sliding_window_pattern: [2, 6]
  kv_lora_rank: 512
  index_topk: [0, 2048]
  intermediate_size: {ratio_of: hidden_size, values: [3.5], multiple_of: 256}
  num_nextn_predict_layers: [0, 1]
  training_tokens: [5T, 15T]
deployment:
  chip: h200_sxm
  replicas: 1
  tensor_parallel: [1, 2, 4]
  weight_dtype: fp8
  kv_dtype: [bf16, fp8]
  concurrency: {from: 4, to: 64, powers_of: 2}
objectives:
  usd_per_million_total_tokens: minimize
  tpot_s: minimize
  full_attention_share: maximize
constraints: [training_flops <= 1e24 FLOP, query_heads_per_kv_head <= 16, tpot_s <= 100 ms]
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "kinds.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return path


def test_a_study_from_check_to_explain(written: Path, tmp_path: Path) -> None:
    said = dse("catalog", "spaces", "check", written)
    assert said.code == 0
    assert "no mistake found" in said.out
    assert "no law sees it: windows and chunks" in said.out
    assert fits(said.out, 100)
    assert "5T, 15T" in dse("catalog", "spaces", "show", written).out
    hypervolumes = []
    for engine in ("pareto-local", "exhaustive"):
        out = tmp_path / engine
        said = dse("run", written, "--engine", engine, "--out", out)
        assert said.code == 0
        assert fits(said.out, 100)
        hypervolumes.append(json.loads((out / "study.json").read_text())["hypervolume"])
    assert hypervolumes[0] == pytest.approx(hypervolumes[1], rel=0.02)
    items = json.loads((out / "front.json").read_text())["items"]
    kinds = {block["kind"] for item in items for block in item["model"]["blocks"]}
    assert {"gqa", "mla"} <= kinds
    for item in items[:: max(len(items) // 8, 1)]:
        again = dse("estimate", out, item["point"], "--json").json()
        for name in ("tpot_s", "ttft_s", "kv_bytes_per_token", "memory_bytes_per_chip"):
            assert again[name] == item["metrics"][name]
        assert again["feasible"]
    latent = next(i for i in items if any(b["kind"] == "mla" for b in i["model"]["blocks"]))
    said = dse("estimate", "--detail", out, latent["point"])
    assert said.code == 0
    assert "latent attention (MLA, 512 numbers cached" in said.out
    header = (out / "front.csv").read_text().splitlines()[0].split(",")
    assert "layers" in header
    assert "full_attention_share" in header
    assert "training_flops" in header
    report = (out / "report.md").read_text()
    assert "no law sees it: latent attention" in report


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("[gqa, mla]", "[gqa, mlaa]", 11, "did you mean mla?"),
        ("delta_net, mamba2]", "deltanet, mamba2]", 12, "did you mean gated_delta_net?"),
        ("  kv_lora_rank: 512\n", "", 5, "mla models need kv_lora_rank"),
        ("sliding_window_pattern", "sliding_window_patern", 16, "sliding_window_pattern"),
        ("[5T, 15T]", "[5T, 15TB]", 21, "15TB"),
        ("[5T, 15T]", "[5T, -1]", 21, "numbers of tokens, such as 15T"),
        ("[5T, 15T]", "[5, 15T]", 21, "numbers of tokens, such as 15T"),
        ("draft_tokens: 1, acceptance: 0.8", "prefix_hit_rate: 0.1", 20, "draft_tokens"),
        ("full_attention_interval: [4, 8]", "full_attention_interval: 0", 13, "from 2 to"),
    ],
)
def test_mistakes_name_their_line(written: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in SPACE
    written.write_text(SPACE.replace(old, new), encoding="utf-8")
    answer = dse("catalog", "spaces", "check", written)
    assert answer.code == 2
    assert said in answer.err
    assert f"kinds.yaml:{line}" in answer.err
