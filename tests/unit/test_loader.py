"""Mistakes in a file a user writes: each is named with file, line, field, value and remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dse.data import hardware_dir, search_spaces_dir
from dse.errors import InputError
from dse.schema import loader
from dse.schema.chip import EXPECTED, load_chip
from dse.schema.efficiency import load_efficiency
from dse.schema.loader import compiled_line, load_yaml
from dse.schema.prices import load_prices
from dse.schema.reader import (
    ByName,
    Field,
    Listed,
    Number,
    Quantity,
    Refused,
    Schema,
    Table,
    Text,
    Whole,
    field,
    gathered,
    read,
)
from dse.schema.system import load_system
from tests.helpers_files import mistakes, refusal, write

CHIP = """\
id: mine
vendor: Mine
name: Mine 1
family: mine
availability: internal
memory_kind: HBM3
system: hgx_h100
efficiency: h100_sxm
figures:
  peak_bf16:
    value: 100 TFLOP/s
    kind: spec
    source: our data sheet
    date: 2026-11
  memory_capacity: {value: 80 GB, kind: spec, source: our data sheet, date: 2026-11}
"""
SYSTEM = """\
id: mine
name: Mine
levels:
- name: inner
  topology: {value: switched, kind: spec, source: s, date: 2026}
  size: {value: 8, kind: spec, source: s, date: 2026}
  bandwidth_per_direction: {value: 450 GB/s, kind: spec, source: s, date: 2026}
  latency: {value: 1 us, kind: spec, source: s, date: 2026}
  jitter: {value: 0 s, kind: spec, source: s, date: 2026}
"""


def test_several_mistakes_are_reported_together(tmp_path: Path) -> None:
    text = CHIP.replace("vendor:", "vendr:").replace("kind: spec\n", "kind: guess\n")
    fields = {error.field for error in mistakes(load_chip, write(tmp_path, text))}
    assert fields == {"vendr", "figures.peak_bf16.kind"}


def test_a_chip_that_lacks_figures_loads_and_lists_them(tmp_path: Path) -> None:
    chip = load_chip(write(tmp_path, CHIP))
    assert set(chip.missing) == set(EXPECTED) - {"peak_bf16", "memory_capacity"}
    assert chip.peak_flops_per_s == {"bf16": 100e12}
    assert chip.capacity_kind == "vendor_label"
    with pytest.raises(InputError, match=r"mine has no memory_bandwidth"):
        chip.require("memory_bandwidth", "peak_bf16")


def test_a_level_with_figures_of_its_own(tmp_path: Path) -> None:
    figures = {"software": "75 us", "reached": "0.8", "ramp": "0.36"}
    said = "value: {}, kind: spec, source: s, date: 2026"
    more = "".join(f"  {name}: {{{said.format(value)}}}\n" for name, value in figures.items())
    (one,) = load_system(write(tmp_path, SYSTEM + more)).levels
    assert (one.software_s, one.reached, one.ramp) == (75e-6, 0.8, 0.36)


def test_levels_grow_outwards(tmp_path: Path) -> None:
    level = SYSTEM[SYSTEM.index("- name") :]
    with pytest.raises(InputError, match=r"not larger than the level inside it"):
        load_system(write(tmp_path, SYSTEM + level))
    outer = "".join(line for line in level.splitlines(True) if "size" not in line)
    assert load_system(write(tmp_path, SYSTEM + outer)).levels[1].size is None
    with pytest.raises(InputError, match=r"a size on every level but the last"):
        load_system(write(tmp_path, SYSTEM + outer + level))


HEADER = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "chip,price\nh100_sxm,2\n",
            ":1: price: unknown column 'price'; did you mean provider?",
        ),
        (HEADER + "h100_sxm,mine,free,us,2026,invoice,\n", ":2: usd_per_chip_hour: read 'free'"),
        (HEADER + "h100_sxm,mine,-2,us,2026,invoice,\n", ":2: usd_per_chip_hour: read '-2'"),
        (HEADER + "h100_sxm,mine,2\n", ":2: read 3 cells (accepted: 7 cells)"),
        (HEADER + "h100_sxm,mine,2,us,2026,,\n", ":2: source: missing field"),
    ],
)
def test_price_mistakes(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text, "prices.csv")
    assert f"{path}{expected}" in str(refusal(load_prices, path))


def test_a_price_is_its_row_or_the_median_of_its_rows(tmp_path: Path) -> None:
    rows = [
        "a,mine,2,us,2026-01,invoice,",
        "b,mine,2,us,2026-01,invoice,",
        "b,mine,9,them,2026-03,invoice,",
        "b,mine,4,others,2026-02,list,",
        "b,mine,100,us,2026-09,old,superseded: by the list",
        "b,other,50,us,2026-09,old,",
    ]
    table = load_prices(write(tmp_path, HEADER + "\n".join(rows) + "\n", "prices.csv"))
    prices = table.select("mine")
    assert prices["a"].usd_per_chip_hour == 2
    assert prices["b"].usd_per_chip_hour == 4
    assert prices["b"].newest_date == "2026-03"
    assert prices["b"].rule == "median of 3 prices, 2026-01 to 2026-03"
    assert table.bases() == ("mine", "other")
    with pytest.raises(InputError, match=r"did you mean mine\?"):
        table.select("mines")


LAW = "{compute: 0.7, memory: 0.8, fixed: 3 us, p: 2, kind: fitted}"
COLLECTIVE = "{chips: [2, 8], latency: [2 us, 3 us], bandwidth_fraction: [0.6, 0.7], kind: fitted}"
OPERATORS = (
    "gemm", "prefill_attention", "decode_attention", "mla_prefill_attention",
    "mla_decode_attention", "experts",
)  # fmt: skip
EFFICIENCY = (
    "id: mine\ntitle: Mine\nsource: our kernels\ndate: 2026\noperators:\n"
    + "".join(f"  {operator}: {{bf16: {LAW}}}\n" for operator in OPERATORS)
    + f"expert_padding_rows: 16\nall_reduce: {COLLECTIVE}\nall_to_all: {COLLECTIVE}\n"
    "divided_by: {bf16: 100 TFLOP/s, memory_bandwidth: 1 TB/s}\n"
)


def test_an_efficiency_file_carries_what_its_fractions_were_divided_by(tmp_path: Path) -> None:
    efficiency = load_efficiency(write(tmp_path, EFFICIENCY))
    assert efficiency.peak_flops_per_s == {"bf16": 100e12}
    assert efficiency.hbm_bytes_per_s == 1e12
    assert efficiency.operators["experts"]["bf16"].fixed_s == 3e-6
    assert efficiency.all_reduce.latency_s == {2: 2e-6, 8: 3e-6}
    assert not efficiency.is_class


def test_a_class_default_refers_to_the_chip_that_uses_it(tmp_path: Path) -> None:
    text = EFFICIENCY[: EFFICIENCY.index("divided_by")]
    efficiency = load_efficiency(write(tmp_path, text))
    assert efficiency.is_class
    chip = load_chip(hardware_dir() / "chips" / "mi355x.yaml")
    own = efficiency.of_chip(chip)
    assert own.id == "mine:mi355x"
    assert own.hbm_bytes_per_s == chip.memories[0].bytes_per_s
    assert own.peak_flops_per_s == chip.peak_flops_per_s


OUTER = Table(
    Field("parts", ByName(Listed(Table(Field("size", Whole())))), {}),
    Field("text", Text(), ""),
)


def test_a_field_inside_maps_and_lists_is_found(tmp_path: Path) -> None:
    path = write(tmp_path, "parts:\n  first:\n  - size: 1\n  - sise: 2\n")
    said = f"{path}:4: parts.first[1].sise: unknown field 'sise'; did you mean size?"
    assert said in str(refusal(read, OUTER, load_yaml(path)))


def test_a_date_stays_the_text_that_was_written(tmp_path: Path) -> None:
    assert load_yaml(write(tmp_path, "text: 2026-11-20\n")).data == {"text": "2026-11-20"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a mapping"),
        (b"- a\n", "not a mapping"),
        (b"a: 1\n---\nb: 2\n", "not YAML"),
        (b"a: \xff\n", "not UTF-8"),
        (b"a: !!python/object:os.system x\n", "not YAML"),
        (b"{a: b}: c\n", "not YAML"),
        (b"a: !!int x\n", "not YAML"),
        (b"a: 1\nb: \x1b[31m\n", r":2: read the character U\+001B"),
        (b"a: &a [*a]\ntext: [b\n", "not YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_an_input_error(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    said = str(refusal(load_yaml, path))
    assert re.search(reason, said)
    assert str(path) in said


def test_a_compiled_document_is_what_the_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of its own, or none: another file is no document, and what JSON cannot say has no line;
    a broken line leaves the YAML file."""
    path = hardware_dir() / "chips" / "h100_sxm.yaml"
    content, first = path.read_bytes(), load_yaml(path)
    assert compiled_line(b"8: one", {8: "one"}) == b""  # JSON has no key but text
    assert compiled_line(b"a: .nan", {"a": float("nan")}) == b""
    digest, text = compiled_line(content, {**first.data, "name": "compiled"}).split(b" ", 1)
    for lines, name in (
        ({digest: text}, "compiled"),
        ({digest: text[:-7]}, first.data["name"]),
        ({b"0" * 32: text}, first.data["name"]),
    ):
        monkeypatch.setattr(loader, "compiled", lambda lines=lines: lines)
        assert load_yaml(path).data == {**first.data, "name": name}


def test_a_shipped_file_read_compiled_still_says_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    path = hardware_dir() / "chips" / "h100_sxm.yaml"
    first = load_yaml(path)
    line = compiled_line(path.read_bytes(), dict(first.data))
    monkeypatch.setattr(loader, "compiled", lambda: dict([line.rstrip().split(b" ", 1)]))
    second = load_yaml(path)
    assert first.data == second.data
    assert dict(second.lines or {}) == dict(first.lines or {})
    assert second.line(("figures", "peak_bf16")) == first.line(("figures", "peak_bf16")) != 1


def test_every_shipped_file_can_be_compiled() -> None:
    for path in (*hardware_dir().rglob("*.yaml"), *search_spaces_dir().glob("*.yaml")):
        assert compiled_line(path.read_bytes(), dict(load_yaml(path).data)), path


# A file kind is a class whose fields are its schema.


class Overlap(Schema, kw_only=True):
    tokens: int = field(Whole(1), default=2048)
    wait_s: float = field(Quantity("s"), written="wait")
    shares: Mapping[str, float] = gathered(Field("own", Number(0, 1), None), default={})

    def check(self) -> None:
        if self.wait_s > 1.0:
            raise Refused("read {}", "1 s at most", "wait")


def test_an_object_is_what_a_mapping_says() -> None:
    assert Overlap(wait_s=0.5) == Overlap.of({"wait": "500 ms"})
    assert Overlap.of({"wait": "1 s", "own": 0.5}).shares == {"own": 0.5}
    assert Overlap.table.names == ("tokens", "wait", "own")
    assert replace(Overlap(wait_s=0.5), tokens=1).tokens == 1


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"wait": "2 s"}, "wait: read '2 s' .*1 s at most"),
        ({"wait": "1 s", "tokns": 3}, "tokns: unknown field 'tokns'; did you mean tokens?"),
        ({}, "wait: missing field .*'wait', among tokens, wait, own"),
        ({"wait": "1 s", "own": 2}, "own: read 2 .*less than or equal to 1"),
    ],
)
def test_a_mistake_is_told_with_its_field(written: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Overlap.of(written)
