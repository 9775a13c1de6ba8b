"""`dse calibrate` with PyTorch on the CPU of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from dse.measure.session import Work
from dse.schema.efficiency import load_efficiency

pytestmark = pytest.mark.extra
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `dse calibrate --json`, in a process of its own: PyTorch's warnings
    are not this project's."""
    folder = tmp_path_factory.mktemp("calibrated")
    command = [sys.executable, "-m", "dse", "calibrate", "--device", "cpu"]
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *sys.path])
    ended = subprocess.run(
        [*command, "--new-chip", "here", "--json"],
        cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    (folder / "document.json").write_text(ended.stdout, encoding="utf-8")
    return folder


def test_the_laws_are_read_back(measured: Path):
    laws = load_efficiency(measured / "here_efficiency.yaml")
    assert laws.operators["gemm"]["bf16"].kind == "fitted"
    assert laws.operators["experts"]["bf16"].kind != "fitted"
    assert laws.all_reduce.kind != "fitted"
    assert laws.provenance["software"].startswith("torch ")


def test_times_are_physical(measured: Path):
    points = pd.read_csv(measured / "here_efficiency.csv")
    document = json.loads((measured / "document.json").read_text(encoding="utf-8"))
    assert len(points) >= 30
    assert (points.seconds > 0).all()
    # The fastest GEMM needs no more than the time of the slowest per operation.
    gemms = points[(points.operator == "gemm") & (points.dtype == "bf16")]
    assert gemms.flops.max() / gemms.seconds.max() > 1e8
    assert {row["kernel"] for row in document["memory"]} == {"copy", "triad", "read"}
    assert all(1e8 < row["bytes_per_s"] < 1e13 for row in document["memory"])


def test_an_estimate_uses_them(measured: Path):
    command = [sys.executable, "-m", "dse", "estimate", "--model", "qwen3-0.6b", "--json"]
    files = ["--chip", "here.yaml", "--efficiency-file", "here_efficiency.yaml"]
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *sys.path])
    ended = subprocess.run(
        [*command, *files], cwd=measured, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    answer = json.loads(ended.stdout)
    assert any("measured here" in line for line in answer["assumed"])
    assert answer["decode_step_s"] > answer["latency_floor_s"]


def test_folded_query_heads_are_the_same_attention():
    """The query heads of a KV head as rows of one query: the numbers of grouped attention."""
    import torch

    from dse.measure.torch_bench import TorchBench

    bench = TorchBench("cpu", 0, 64 * 2.0**20)
    work = Work("decode_attention", "bf16", (2, 64, 8, 2, 32))
    bench.prepare(work)
    folded = bench._attention(work, 0)()
    size = 2 * 2 * 64 * 32
    keys, values = bench.pools["cold"][: 2 * size].view(2, 2, 2, 64, 32)
    query = bench.pools["hot"][: 2 * 8 * 32].view(2, 8, 1, 32)
    grouped = torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
    assert torch.allclose(
        folded.reshape(2, 8, 32).float(), grouped.reshape(2, 8, 32).float(), atol=2e-2
    )
