"""The workbook of `dse fleet` in a spreadsheet program: what is changed in its inputs gives the
totals of a run with that change."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path
from typing import Any

import pytest

import dse

OFFICE = shutil.which("soffice")
MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
PLAN: dict[str, Any] = {
    "name": "mixed",
    "title": "Rents and buys",
    "quarters": 4,
    "price_basis": "rental_3yr",
    "largest_instance": 8,
    "used_after_end": "50 %",
    "demand": [
        {
            "name": "chat",
            "model": "llama-3-8b",
            "requests_per_second": 400,
            "prompt_tokens": 1024,
            "output_tokens": 256,
            "ttft": "1 s",
            "tpot": "30 ms",
            "growth_per_quarter": "20 %",
            "weight_dtype": ["bf16"],
            "kv_dtype": ["bf16"],
        }
    ],
    "chips": [
        {
            "chip": "h100_sxm",
            "rent": {"price": "1.3 USD/h", "term_quarters": 12},
            "buy": {"lead_quarters": 1, "price_change_per_quarter": "-3 %"},
        },
        {"chip": "mi300x", "rent": {"price": "1.55 USD/h", "term_quarters": 12}},
    ],
    "stock": [{"chip": "h100_sxm", "chips": 8}],
    "costs": {
        "lines": {
            "insurance": "0.1 %",
            "installation": "50 USD/server",
            "support": "20 USD/chip-year",
        }
    },
}


def sheets(path: Path) -> dict[str, list[list[Any]]]:
    """The cells of every sheet, by its name."""
    with zipfile.ZipFile(path) as book:
        names = ET.fromstring(book.read("xl/workbook.xml")).iter(f"{MAIN}sheet")  # noqa: S314
        shared: list[str] = []
        if "xl/sharedStrings.xml" in book.namelist():
            strings = ET.fromstring(book.read("xl/sharedStrings.xml"))  # noqa: S314
            shared = ["".join(text.itertext()) for text in strings]
        found = {}
        for k, name in enumerate(names, 1):
            sheet = ET.fromstring(book.read(f"xl/worksheets/sheet{k}.xml"))  # noqa: S314
            rows = [[_value(cell, shared) for cell in row] for row in sheet.iter(f"{MAIN}row")]
            found[name.get("name", "")] = rows
    return found


def _value(cell: ET.Element, shared: list[str]) -> Any:
    text = cell.findtext(f"{MAIN}v")
    if cell.get("t") == "inlineStr":
        return "".join(cell.itertext())
    if text is None or cell.get("t") in ("str", "e"):
        return text
    return shared[int(text)] if cell.get("t") == "s" else float(text)


def changed(source: Path, target: Path, factors: dict[str, float]) -> None:
    """A copy with inputs times these factors, and without any computed value."""
    rows = sheets(source)["inputs"]
    with zipfile.ZipFile(source) as book, zipfile.ZipFile(target, "w") as copy:
        for name in book.namelist():
            text = book.read(name).decode()
            if name == "xl/worksheets/sheet2.xml":
                lines = text.split("<row>")
                for k, row in enumerate(rows, 1):
                    if row[0] in factors:
                        new = f"<v>{row[1] * factors[row[0]]!r}</v>"
                        lines[k], done = re.subn("<v>.*?</v>", new, lines[k], count=1)
                        assert done == 1
                text = "<row>".join(lines)
            copy.writestr(name, re.sub("</f><v>.*?</v>", "</f>", text))


def recalculated(path: Path, folder: Path) -> dict[str, list[list[Any]]]:
    assert OFFICE is not None
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    command = [OFFICE, profile, "--headless", "--convert-to", "xlsx", "--outdir", folder, path]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    return sheets(folder / path.name)


@pytest.mark.extra
@pytest.mark.skipif(OFFICE is None, reason="no LibreOffice: sh tests/extra/install.sh installs it")
@pytest.mark.parametrize(
    ("factors", "plan"),
    [
        ({}, {}),
        (
            {"h100_sxm, rent": 1.36 / 1.3},
            {"chips": [{**PLAN["chips"][0], "rent": {"price": "1.36 USD/h", "term_quarters": 12}}]},
        ),
        (
            {"h100_sxm electricity": 1.1},
            {"costs": {"electricity": f"{1.1 * 0.0869:.8f} USD/kWh"}},
        ),
    ],
)
def test_a_changed_input_gives_the_totals_of_a_run(
    tmp_path: Path, factors: dict[str, float], plan: dict[str, Any]
) -> None:
    (tmp_path / "out").mkdir()
    first = dse.fleet(PLAN)
    (tmp_path / "fleet.xlsx").write_bytes(first.to_xlsx())
    written = {**PLAN, **plan, "costs": {**PLAN["costs"], **plan.get("costs", {})}}
    if "chips" in plan:
        written["chips"] = [*plan["chips"], PLAN["chips"][1]]
    again = dse.fleet(written).document
    changed(tmp_path / "fleet.xlsx", tmp_path / "changed.xlsx", factors)
    found = recalculated(tmp_path / "changed.xlsx", tmp_path / "out")
    totals = {row[0]: row[1] for row in found["totals"]}
    orders = [(row["offer"], row["order_quarter"], row["chips"]) for row in again["orders"]]
    before = [
        (row["offer"], row["order_quarter"], row["chips"]) for row in first.document["orders"]
    ]
    assert orders == before, "the orders moved: choose a smaller change"
    assert totals["signed for in all"] == pytest.approx(again["usd_signed"], rel=1e-9)
    assert totals["cost of the plan"] == pytest.approx(again["usd_undiscounted"], rel=1e-9)
    total = totals["discounted cost, with what is written off"]
    assert total == pytest.approx(again["usd"], rel=1e-9)
    present = again["finance"]["present_usd"]
    assert totals["today's worth of the cash"] == pytest.approx(present, rel=1e-9)
    each = again["usd_per_million_tokens"]
    assert totals["cost per million tokens"] == pytest.approx(each, rel=1e-9)
    assert totals["the orders serve the demand"] == "yes"
