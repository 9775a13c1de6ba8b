"""A chip of a hardware folder is one file: its figures and its dated prices, rented and bought."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dse
from dse.data import hardware_dir
from dse.errors import InputError
from dse.schema import catalog as catalogs

ROWS = """\
prices:
  - basis: rental_3yr
    usd_per_chip_hour: 1.25
    provider: Example Cloud
    date: 2026-11
    source: https://example.com/prices
  - {basis: on_demand, usd_per_chip_hour: 2, date: 2026-10, source: a quote, note: from 8 chips}
  - {basis: on_demand, usd_per_chip_hour: 3, date: 2026-11, source: another quote}
purchases:
  - {kind: purchase_street, usd_per_chip: 9000, date: 2026-11, source: a shop}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(hardware_dir(), tmp_path / "hardware")


def add(folder: Path, rows: str) -> None:
    """A new chip file with these rows."""
    text = (folder / "chips" / "l40s.yaml").read_text(encoding="utf-8")
    text = text.replace("id: l40s\n", "id: l40s_next\n")
    (folder / "chips" / "l40s_next.yaml").write_text(text + rows, encoding="utf-8")


@pytest.mark.parametrize("shipped", [False, True])
def test_one_file_is_a_chip_with_its_prices(
    folder: Path, shipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(folder, ROWS)
    if shipped:  # read as the project's own folder is: each file when it is asked for
        monkeypatch.setattr(catalogs, "hardware_dir", lambda: folder)
        monkeypatch.setattr(catalogs, "_shipped_folder", catalogs._shipped_folder.__wrapped__)
        monkeypatch.setattr(catalogs, "_shipped_catalog", catalogs._shipped_catalog.__wrapped__)
    catalog = dse.load_catalog(folder)
    rent = catalog.prices.select("rental_3yr")["l40s_next"]
    assert (rent.usd_per_chip_hour, rent.sources) == (1.25, ("https://example.com/prices",))
    assert catalog.prices.select("on_demand")["l40s_next"].usd_per_chip_hour == 2.5
    (bought,) = (row for row in catalog.purchases if row.chip == "l40s_next")
    assert (bought.kind, bought.usd_per_chip) == ("purchase_street", 9000.0)
    assert "l40s_next" not in catalog.as_of("2026-09").prices.select("on_demand")
    answer = dse.estimate("llama-3-8b", "l40s_next", catalog=catalog)
    assert answer.document["usd_per_million_output_tokens"] > 0


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("    source: https://example.com/prices\n", "", "prices[0].source"),
        ("date: 2026-10", "date: someday", "prices[1].date"),
        ("usd_per_chip_hour: 3", "usd_per_chip_hour: 0", "prices[2].usd_per_chip_hour"),
        ("basis: rental_3yr", "basis: owned_tco", "prices[0].basis"),
        ("usd_per_chip: 9000", "usd_per_chip: free", "purchases[0].usd_per_chip"),
    ],
)
def test_rows_of_a_chip_file_are_checked(folder: Path, old: str, new: str, field: str) -> None:
    add(folder, ROWS.replace(old, new))
    with pytest.raises(InputError) as caught:
        dse.load_catalog(folder)
    assert caught.value.field == field
    assert caught.value.line
    assert str(caught.value.file).endswith("l40s_next.yaml")
    assert caught.value.accepted


def test_a_chip_of_your_own_may_give_the_same_rows(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "id: mine\nname: Mine\nefficiency: class_gpu\nmemory_capacity: 96 GB\n"
        "memory_bandwidth: 4 TB/s\npeak_bf16: 1000 TFLOP/s\n" + ROWS,
        encoding="utf-8",
    )
    catalog = dse.load_catalog(chips=path)
    assert catalog.prices.select("rental_3yr")["mine"].usd_per_chip_hour == 1.25
    assert [row.usd_per_chip for row in catalog.purchases if row.chip == "mine"] == [9000.0]
