"""`dse calibrate` on a device that is a law, and its files in every command that takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dse.measure import torch_bench
from tests.cli.conftest import ask, dse, fits
from tests.fake_bench import CPU, H100, FakeBench

RATE = {"bf16": 4e11, "fp8": 8e11}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a device in the place of PyTorch's: the CPU, or a GPU that is a slow H100 PCIe."""

    def put(gpu: bool = False) -> None:
        scale = 800.0 if gpu else 1.0
        rate = {dtype: value * scale for dtype, value in RATE.items()}
        made = FakeBench(
            H100 if gpu else CPU, rate, 1e12 if gpu else 4e10, room=2e9 if gpu else 3e8
        )
        monkeypatch.setattr(torch_bench, "pick_device", lambda wanted: wanted or "cpu")
        monkeypatch.setattr(torch_bench, "TorchBench", lambda kind, seed, pool: made)

    return put


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An efficiency file of h100_sxm at a third of the shipped compute."""
    from dse.data import hardware_dir

    text = (hardware_dir() / "efficiency" / "h100_sxm.yaml").read_text(encoding="utf-8")
    text = text.replace("divided_by:", "provenance: {device: a test}\ndivided_by:")
    text = text.replace("    bf16: {compute: 0.7", "    bf16: {compute: 0.2").replace(
        "memory: 0.8", "memory: 0.4"
    )
    path = tmp_path_factory.mktemp("mine") / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_cpu_is_measured_and_used(device: Callable, tmp_path: Path, monkeypatch):
    device()
    monkeypatch.chdir(tmp_path)
    said = dse("calibrate")
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    assert "GEMMs in bf16" in said.err
    assert "Chip: my_cpu.yaml" in said.out
    for word in ("held out", "Not measured", "my_cpu_efficiency.csv"):
        assert word in said.out
    use = said.out.split("Use them: dse ")[1].split("\n\n")[0].split()
    answer = ask(*use)
    assert answer["deployment"]["chip"] == "my_cpu"
    assert answer["provenance"]["decode_step_s"] == "fitted"
    shown = dse(
        "catalog", "chips", "show", "my_cpu.yaml", "--efficiency-file", "my_cpu_efficiency.yaml"
    )
    assert "measured here" in " ".join(shown.out.split())


def test_the_document_and_the_named_files(device: Callable, tmp_path: Path):
    device(gpu=True)
    out = tmp_path / "deep" / "pcie.yaml"
    said = dse("calibrate", "--json", "--out", out, "--seed", 3)
    document = said.json()
    assert document["id"] == "h100_pcie"
    assert document["chip_file"] is None
    assert {row["dtype"] for row in document["gemm"]} == {"bf16", "fp8"}
    assert document["provenance"]["seed"] == "3"
    assert sorted(path.name for path in out.parent.iterdir()) == ["pcie.csv", "pcie.yaml"]
    checked = ask(
        "estimate", "--model", "llama-3-8b", "--chip", "h100_pcie", "--efficiency-file", out
    )
    assert any("measured here" in line for line in checked["assumed"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--chip", "h100_smx"], "did you mean h100_sxm?"),
        (["--chip", "a", "--new-chip", "b"], "one of the two"),
        (["--new-chip", "h100_sxm"], "is a chip of the catalog"),
        (["--new-chip", "../mine"], "letters, digits, _ and -"),
        (["--out", "laws.json"], "ends in .yaml"),
        (["--device", "tpu"], "tpu"),
    ],
)
def test_bad_input_is_one_line(device: Callable, flags: list[str], words: str):
    device()
    said = dse("calibrate", *flags)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert "Traceback" not in said.err


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    said = dse("calibrate")
    assert said.code == 2
    assert said.err == "dse: dse calibrate needs PyTorch: pip install torch\n"


POINT = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--json")


def test_every_command_takes_the_file(mine: Path):
    flag = ("--efficiency-file", mine)
    plain, changed = (dse("estimate", *POINT, *more).json() for more in ((), flag))
    assert changed["decode_step_s"] > 1.3 * plain["decode_step_s"]
    assert (
        dse("estimate", "--detail", *POINT, *flag).json()["decode_step_s"]
        == changed["decode_step_s"]
    )
    shown = ask("catalog", "chips", "show", "h100_sxm", *flag)
    assert shown["measured_here"] == {"device": "a test"}
    assert ask("catalog", "chips", "show", "h100_sxm")["measured_here"] is None
    assert dse("catalog", "chips", "list", "--json", *flag).code == 0


def test_a_study_keeps_the_file(mine: Path, space: Callable[..., Path], tmp_path: Path):
    plain, changed = tmp_path / "plain", tmp_path / "changed"
    one = ask("run", space(), "--out", plain)
    two = ask("run", space(), "--out", changed, "--efficiency-file", mine)
    assert one["data_digest"] != two["data_digest"]
    assert one["fingerprint"] == two["fingerprint"]
    assert two["efficiency_files"] == [str(mine)]
    assert "efficiency_files" not in one
    assert f"--efficiency-file {mine}" in two["command"]
    again = ask("estimate", changed, 1)
    item = (changed / "front.csv").read_text(encoding="utf-8").splitlines()
    row = dict(zip(item[0].split(","), item[1].split(","), strict=True))
    assert again["tpot_s"] == pytest.approx(float(row["tpot_s"]), rel=1e-8)
    assert any(str(mine) in line for line in again["assumed"])
    said = " ".join(dse("compare", plain, changed).out.split())
    assert f"hardware data: kernel laws of one's own in one of them: {mine}" in said


def test_laws_of_another_chip_are_no_quiet_nothing(mine: Path):
    said = dse("estimate", "--model", "llama-3-8b", "--chip", "h200_sxm", "--efficiency-file", mine)
    assert (said.code, said.out) == (2, "")
    assert "h200_sxm" in said.err
    assert "h100_sxm" in said.err
    relative = dse("estimate", "--model", "llama-3-8b", "--chip", "h20", "--efficiency-file", mine)
    assert relative.code == 0
    pools = ("--serving", "disaggregated", "--set", "prefill_chip=h100_sxm")
    assert dse("estimate", "--model", "llama-3-8b", "--chip", "h200_sxm", *pools,
               "--efficiency-file", mine).code == 0  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no such file"),
        ("id: h100_sxm\n", "missing field"),
        ("- 1\n", "not a mapping"),
    ],
)
def test_a_wrong_efficiency_file_is_one_error(tmp_path: Path, text: str | None, words: str):
    path = tmp_path / "wrong.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    said = dse("estimate", *POINT, "--efficiency-file", path)
    assert (said.code, said.out) == (2, "")
    assert f"{path}" in said.err
    assert words in said.err
