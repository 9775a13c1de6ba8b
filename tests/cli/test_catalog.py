"""dse catalog, and a chip of the user's own in every command, as a new user would try it."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest

from dse.answer.numbers import show
from dse.data import hardware_dir
from dse.schema.model_catalog import load_models
from dse.schema.study import shipped_spaces
from tests.cli.conftest import SHORT, ask, dse, fits

ESTIMATE = ["estimate", "--model", "llama-3-8b", "--chip"]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_chip.yaml"
    path.write_text(SHORT, encoding="utf-8")
    return path


def test_list_shows_every_chip_within_100_columns() -> None:
    listed = dse("catalog", "chips", "list")
    assert max(map(len, listed.out.splitlines())) <= 100
    rows = ask("catalog", "chips", "list")
    assert len(rows) == len(list((hardware_dir() / "chips").glob("*.yaml"))) >= 82
    for row in rows:
        line = next(text for text in listed.out.splitlines() if text.split()[:1] == [row["id"]])
        assert row["efficiency"] in line
    h100 = next(row for row in rows if row["id"] == "h100_sxm")
    assert (h100["memory_bytes_per_s"], h100["scale_up_chips"]) == (3.35e12, 8)
    assert all(row["peak_bf16_flops_per_s"] is None for row in rows if row["id"] == "max1550")
    bow = next(row for row in rows if row["id"] == "graphcore_bow")
    assert "memory_bandwidth" in bow["missing"]
    assert bow["refused"]


def test_list_filters_and_sorts() -> None:
    rows = ask("catalog", "chips", "list", "--vendor", "amd", "--sort", "bandwidth")
    assert {row["vendor"] for row in rows} == {"AMD"}
    speeds = [row["memory_bytes_per_s"] for row in rows]
    assert speeds == sorted(speeds, reverse=True)
    assert len(rows) >= 6
    rows = ask("catalog", "chips", "list", "--family", "hopper", "--sort", "id")
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert "h20" in {row["id"] for row in rows}
    rows = ask("catalog", "chips", "list", "--sort", "price")
    prices = [row["usd_per_hour_rental_3yr"] for row in rows]
    known = [price for price in prices if price is not None]
    assert prices == sorted(known, reverse=True) + [None] * (len(prices) - len(known))


def test_show_prints_every_figure_with_its_source() -> None:
    document = ask("catalog", "chips", "show", "b300_sxm")
    assert all(f["source"] and f["date"] and f["kind"] for f in document["figures"])
    int8 = next(f for f in document["figures"] if f["name"] == "peak_int8")
    assert 4500e12 in [other["value"] for other in int8["alternatives"]]
    text = dse("catalog", "chips", "show", "h100_sxm").out
    assert fits(text, 100)
    for word in ("elsewhere", "purchase_low", "27,500", "rental_3yr", "[1] "):
        assert word in text
    wafer = dse("catalog", "chips", "show", "wse3", "--detail").out
    assert "peak_fp8, not used" in wafer
    assert "assumed: peak_bf16: 16-bit weights are taken to run at the fp16 peak" in " ".join(
        wafer.split()
    )
    ipu = dse("catalog", "chips", "show", "graphcore_bow", "--detail").out
    assert "no estimate: graphcore_bow has no memory_bandwidth" in ipu
    assert "no bf16: fp16 is the chip's 16-bit arithmetic" in " ".join(ipu.split())


def test_a_chip_that_does_not_exist(mine: Path) -> None:
    """new, check, show, list, estimate: the whole way of a new user."""
    wrong = dse(*ESTIMATE, "my_chip")
    assert wrong.code == 2
    assert "unknown chip 'my_chip'" in wrong.err
    fresh = dse("catalog", "chips", "new", "fresh")
    assert fresh.code == 0
    Path("fresh.yaml").write_text(fresh.out, encoding="utf-8")
    empty = dse("catalog", "chips", "check", "fresh.yaml")
    assert empty.code == 2
    assert "fresh.yaml:7: name" in empty.err
    assert "peak_bf16" in empty.err
    filled = fresh.out.replace("name:  #", "name: Fresh  #").replace(
        "efficiency:  #", "efficiency: h100_sxm  #"
    )
    for figure in SHORT.splitlines()[3:]:
        filled = filled.replace(f"\n{figure.split(':')[0]}:  #", f"\n{figure}  #")
    Path("fresh.yaml").write_text(filled, encoding="utf-8")
    checked = dse("catalog", "chips", "check", "fresh.yaml")
    assert (checked.code, checked.err) == (0, "")
    assert "no figure for" in checked.out
    assert "fresh: own Fresh" in checked.out
    listed = {row["id"] for row in ask("catalog", "chips", "list")}
    rows = ask("catalog", "chips", "list", "--chip-file", "fresh.yaml")
    assert {row["id"] for row in rows} == listed | {"fresh"}
    answer = ask(*ESTIMATE, "./fresh.yaml")
    assert answer["deployment"]["chip"] == "fresh"
    assert answer["provenance"]["tpot_s"] == "derived"
    same = ask(*ESTIMATE, "fresh", "--chip-file", "fresh.yaml")
    assert same["tpot_s"] == answer["tpot_s"]
    taken = dse("catalog", "chips", "new", "h100_sxm")
    assert taken.code == 2
    assert "is the id of" in taken.err


def test_a_chip_without_a_figure_is_refused(mine: Path) -> None:
    for chip, tp, said in (
        ("max1550", "1", "max1550 has no peak_bf16"),
        ("./my_chip.yaml", "2", "an instance of 2 chips needs"),
        ("nowhere.yaml", "1", "nowhere.yaml: no such file"),
    ):
        run = dse(*ESTIMATE, chip, "--tp", tp)
        assert (run.code, run.out) == (2, "")
        assert said in run.err
        assert "Traceback" not in run.err


def test_a_study_with_a_chip_of_the_users_own(mine: Path) -> None:
    links = "system: {chips: 8, bandwidth_per_direction: 450 GB/s}\n"
    mine.write_text(SHORT + links + "prices: {rental_3yr: 0.5 USD/h}\n", encoding="utf-8")
    Path("space.yaml").write_text(
        """\
name: mine
workload: {prompt_tokens: 512, output_tokens: 128, serving: continuous}
price_basis: rental_3yr
model: llama-3-8b
deployment:
  chip: [h100_sxm, my_chip.yaml, v100_sxm2_32]
  replicas: 1
  tensor_parallel: [1, 2]
  weight_dtype: bf16
  kv_dtype: bf16
  concurrency: [8, 32]
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
""",
        encoding="utf-8",
    )
    space = ask("catalog", "spaces", "show", "space.yaml")
    assert space["left_out"] == ["v100_sxm2_32"]
    run = dse("run", "space.yaml", "--out", "study")
    assert run.code == 0, run.err
    items = json.loads(Path("study/front.json").read_text(encoding="utf-8"))["items"]
    mine_first = next(item for item in items if item["deployment"]["chip"] == "my_chip")
    again = ask("estimate", "study", str(mine_first["point"]))
    assert again["tpot_s"] == pytest.approx(mine_first["metrics"]["tpot_s"], rel=1e-9)
    study = json.loads(Path("study/study.json").read_text(encoding="utf-8"))
    assert study["left_out"] == ["v100_sxm2_32 has no price on basis rental_3yr"]


def test_list_has_every_model_and_fits():
    rows = ask("catalog", "models", "list")
    assert [row["id"] for row in rows] == list(load_models())
    said = dse("catalog", "models", "list")
    assert fits(said.out, 100)
    body = said.out.split("─\n")[1].split("\n\n")[0]
    assert body.count("\n") == len(rows) - 1, "a row of the table wraps"


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v3", "gpt-oss-20b"])
def test_show_a_model(model: str):
    document = ask("catalog", "models", "show", model)
    assert document["id"] == model
    said = dse("catalog", "models", "show", model)
    assert fits(said.out, 100)
    assert f"{show('total_parameters', document['total_parameters'])} parameters" in said.out


def test_show_reads_a_config_file():
    path = Path(__file__).parents[1] / "data" / "configs" / "qwen3-32b.json"
    document = ask("catalog", "models", "show", path)
    assert document["total_parameters"] == pytest.approx(32.8e9, rel=0.01)


def test_list_has_every_shipped_space():
    rows = ask("catalog", "spaces", "list")
    assert [row["name"] for row in rows] == list(shipped_spaces())
    said = dse("catalog", "spaces", "list")
    assert fits(said.out, 100)
    assert all(f"{row['size']:,}" in said.out for row in rows)


@pytest.mark.parametrize("name", shipped_spaces())
def test_show_fits(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv("COLUMNS", "60")
    said = dse("catalog", "spaces", "show", name)
    assert said.code == 0
    assert fits(said.out, 60)
    assert "objectives: minimize" in said.out


def test_show_writes_ratios_as_fractions():
    said = dse("catalog", "spaces", "show", "quickstart")
    assert "1/160, 1/120, 1/90 x hidden_size" in said.out


def test_size_of_a_space_without_conditions_is_the_product(space: Callable[..., Path]):
    row = ask("catalog", "spaces", "show", space())
    assert row["size"] == prod(axis["values"] for axis in row["axes"]) == 18
    assert row["constraints"] == ["ttft_s <= 2 s"]


def test_a_space_is_checked(space: Callable[..., Path]):
    said = dse("catalog", "spaces", "check", space())
    assert (said.code, said.out) == (0, dse("catalog", "spaces", "show", space()).out)
