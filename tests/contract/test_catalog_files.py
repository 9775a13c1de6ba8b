"""The catalog joins its files, and says what is wrong between them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dse.catalog import MEASUREMENTS, Catalog, catalog_digest, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from tests.helpers_hardware import CHIPS, catalog

__all__ = ["catalog"]


def test_the_catalog_joins_the_files(catalog: Catalog) -> None:
    assert set(catalog.chips) == set(CHIPS)
    for chip in catalog.chips.values():
        assert chip.system in catalog.systems
        efficiency = catalog.efficiencies[chip.efficiency]
        assert efficiency.hbm_bytes_per_s == pytest.approx(
            chip.memories[0].bytes_per_s, rel=0.05, nan_ok=True
        )
        for dtype, peak in efficiency.peak_flops_per_s.items():
            assert peak == pytest.approx(chip.peak_flops_per_s[dtype], rel=0.05), (chip.id, dtype)
    assert "generic" in catalog.backends
    assert load_catalog() is catalog


def test_an_unknown_chip_is_answered_with_near_spellings(catalog: Catalog) -> None:
    with pytest.raises(InputError) as caught:
        catalog.chip("h100_smx")
    assert "did you mean h100_sxm?" in str(caught.value)
    assert "dse catalog chips list" in str(caught.value)
    assert "mi300x" not in str(caught.value)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return shutil.copytree(hardware_dir(), tmp_path / "hardware")


def test_a_chip_of_the_users_own(copied: Path, tmp_path: Path) -> None:
    text = (copied / "chips" / "h100_sxm.yaml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("id: h100_sxm", "id: mine"), encoding="utf-8")
    assert load_catalog(chips=[mine]).chip("mine").capacity_bytes == 81559 * 2**20
    assert "mine" not in load_catalog().chips
    mine.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"mine\.yaml:1: id: 'h100_sxm' is the id of .* too"):
        load_catalog(copied, chips=[mine])


@pytest.mark.parametrize("field", ["system", "efficiency"])
def test_a_dangling_reference_is_refused(copied: Path, field: str) -> None:
    path = copied / "chips" / "h200_sxm.yaml"
    text = path.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"{field}:"))
    path.write_text(text.replace(line, f"{line}x"), encoding="utf-8")
    number = text.splitlines().index(line) + 1
    with pytest.raises(InputError) as caught:
        load_catalog(copied)
    assert f"{path}:{number}: {field}: read" in str(caught.value)
    assert "did you mean" in str(caught.value)


def test_the_digest_sees_every_byte_and_name(copied: Path, tmp_path: Path) -> None:
    digest = catalog_digest(copied)
    assert digest == catalog_digest(hardware_dir())
    prices = copied / "prices.csv"
    prices.write_bytes(prices.read_bytes() + b"\n")
    assert catalog_digest(copied) != digest
    prices.write_bytes(prices.read_bytes()[:-1])
    assert catalog_digest(copied) == digest
    prices.rename(copied / "prices2.csv")
    assert catalog_digest(copied) != digest
    prices.with_name("prices2.csv").rename(prices)
    (copied / MEASUREMENTS / "of_my_own.csv").write_text("model\n", encoding="utf-8")
    assert catalog_digest(copied) == digest
