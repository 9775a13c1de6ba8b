"""`dse catalog chips list / show / check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.data import hardware_dir
from tests.cli.conftest import dse, fits

CHIP = (hardware_dir() / "chips" / "h100_sxm.yaml").read_text(encoding="utf-8")


def test_list_has_every_chip_file():
    rows = dse("catalog", "chips", "list", "--json").json()
    files = {path.stem for path in (hardware_dir() / "chips").glob("*.yaml")}
    assert {row["id"] for row in rows} == files
    h100 = next(row for row in rows if row["id"] == "h100_sxm")
    assert h100["memory_bytes_per_s"] == 3.35e12
    assert h100["scale_up_chips"] == 8


def test_list_fits_a_console():
    said = dse("catalog", "chips", "list")
    assert fits(said.out, 100)
    body = said.out.split("─\n")[1].split("\n\n")[0]
    assert body.count("\n") == len(dse("catalog", "chips", "list", "--json").json()) - 1
    assert "nan" not in said.out
    assert "TFLOP/s" in said.out


@pytest.mark.parametrize("chip", ["h100_sxm", "mi300x", "tpu_v5p"])
def test_show_gives_a_source_for_every_figure(chip: str):
    document = dse("catalog", "chips", "show", chip, "--json").json()
    for figure in document["figures"]:
        assert figure["source"]
        assert figure["date"]
        assert figure["kind"]
    said = dse("catalog", "chips", "show", chip)
    assert said.code == 0
    assert fits(said.out, 100)
    for source in {figure["source"] for figure in document["figures"]}:
        assert source in " ".join(said.out.split())


def test_check_accepts_a_chip_of_the_user(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(CHIP.replace("id: h100_sxm", "id: mine"), encoding="utf-8")
    said = dse("catalog", "chips", "check", path)
    assert (said.code, said.err) == (0, "")
    assert "mine is well-formed" in " ".join(said.out.split())
    mine = dse(
        "estimate", "--model", "llama-3-8b", "--chip", "mine", "--chip-file", path, "--json"
    ).json()
    known = dse("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm", "--json").json()
    assert mine["decode_step_s"] == known["decode_step_s"]


def test_check_says_where_a_chip_is_wrong(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(CHIP.replace("3.35 TB/s", "3.35 TB"), encoding="utf-8")
    said = dse("catalog", "chips", "check", path)
    assert said.code == 2
    assert "mine.yaml:" in said.err
    assert "memory_bandwidth" in said.err
