"""Hypothetical chips: derive, compare, `whatif --require`, `--set`, and mistakes in chip files."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SHORT, ask, dse, fits, unmarked

POINT = ("--model", "llama-3-70b", "--tp", 8, "--concurrency", 1)
PRICED = f"{SHORT}prices: {{rental_3yr: 1 USD/h}}\n"


def derived(folder: Path, *settings: str, parent: object = "h200_sxm", name: str = "fast.yaml"):
    path = folder / name
    flags = [part for setting in settings for part in ("--set", setting)]
    said = dse("catalog", "chips", "derive", "--from", parent, *flags, "--out", path)
    assert said.code == 0, said.err
    return path


def test_a_file_and_a_flag_are_the_same_chip(tmp_path: Path):
    path = derived(tmp_path, "hbm_bandwidth=2x", "link=1.5x")
    assert dse("catalog", "chips", "check", path).code == 0
    shown = ask("catalog", "chips", "show", path)
    assert shown["derived_from"] == "h200_sxm"
    assert shown["availability"] == "hypothetical"
    file = ask("estimate", *POINT, "--chip", path)
    flag = ask(
        "estimate", *POINT, "--chip", "h200_sxm", "--set", "hbm_bandwidth=2x", "--set", "link=1.5x"
    )
    assert file == flag
    assert file["deployment"]["chip"] == "hypothetical_h200_sxm_hbm_bandwidth_2x_link_1.5x"
    assert any("hypothetical, h200_sxm with memory_bandwidth 2 x" in s for s in file["assumed"])
    again = derived(tmp_path, "tdp=+10%", parent=path, name="again.yaml")
    twice = ask("catalog", "chips", "show", again)
    assert twice["changes"][:2] == shown["changes"]


def test_twice_the_bandwidth_speeds_up_decode_and_not_prefill():
    """A single user of Llama 3 70B on eight chips: a step reads every weight once, a prompt of
    2,048 tokens is bound by arithmetic and links."""
    real = ask("estimate", *POINT, "--chip", "h200_sxm")
    twice = ask("estimate", *POINT, "--chip", "h200_sxm", "--set", "hbm_bandwidth=2x")
    decode = real["decode_step_s"] / twice["decode_step_s"]
    prefill = real["prefill_s"] / twice["prefill_s"]
    assert 1.2 < decode < 2.0
    assert 1.0 < prefill < 1.1
    assert twice["output_tokens_per_s_per_user"] > 1.2 * real["output_tokens_per_s_per_user"]
    assert real["provenance"]["tpot_s"] == "fitted"
    assert twice["provenance"]["tpot_s"] == "derived"


def test_the_label_is_wherever_the_chip_is(tmp_path: Path, space: Callable[..., Path]):
    derived(tmp_path, "hbm_bandwidth=2x")
    path, out = space("chip: h100_sxm", "chip: [h100_sxm, fast.yaml]"), tmp_path / "out"
    said = dse("run", path, "--out", out)
    assert said.code == 0, said.err
    name = "hypothetical_h200_sxm_hbm_bandwidth_2x"
    assert name in said.out
    for file in ("front.csv", "front.json", "report.md", "report.html", "study.json"):
        text = (out / file).read_text(encoding="utf-8").replace("\\_", "_")
        shown = "H200 SXM 141GB, hypothetical" if file == "report.html" else name
        assert shown in text, file
    with (out / "front.csv").open(encoding="utf-8", newline="") as stream:
        points = [row["point"] for row in csv.DictReader(stream) if row["chip"] == name]
    told = dse("estimate", "--detail", out, points[0]).out
    assert name in told
    assert fits(told, 100)
    assert name in dse("compare", out, out).out + told


def test_compare_gives_figures_operators_and_a_page(tmp_path: Path):
    chips = ("h200_sxm", "b200_sxm", "mi300x", "sn40l")
    flags = ("--set", "hbm_bandwidth=2x", *POINT)
    document = ask("compare", *chips, *flags, "--out", tmp_path)
    ids = document["chips"]
    assert ids == ["h200_sxm", "hypothetical_h200_sxm_hbm_bandwidth_2x", *chips[1:]]
    figures = {(row["chip"], row["figure_name"]): row for row in document["figures"]}
    bandwidth = figures["h200_sxm", "memory bandwidth"]
    assert (bandwidth["value"], bandwidth["kind"]) == (4.8e12, "spec")
    assert figures[ids[1], "memory bandwidth"]["kind"] == "assumed"
    ridge = figures["h200_sxm", "ridge at bf16, FLOP per byte"]["value"]
    assert ridge == pytest.approx(989 / 4.8)
    price = figures["h200_sxm", "$/h rental_3yr"]["value"]
    assert figures["h200_sxm", "$/h per TB/s"]["value"] == pytest.approx(price / 4.8)
    points = {point["chip"]: point for point in document["points"]}
    assert "no bandwidth_per_direction" in document["refused"]["sn40l"]
    for chip in ids[:-1]:
        alone = ("--chip", "h200_sxm", "--set", "hbm_bandwidth=2x")
        alone = alone if chip == ids[1] else ("--chip", chip)
        known = ask("estimate", *POINT, *alone)
        assert points[chip]["tpot_s"] == known["tpot_s"]
        parts = sum(row["decode_s"] for row in document["operators"] if row["chip"] == chip)
        assert parts == pytest.approx(known["decode_step_s"])
    fastest = min(ids[:-1], key=lambda chip: points[chip]["tpot_s"])
    assert {row["metric"]: row["chip"] for row in document["leaders"]}["tpot_s"] == fastest
    page = (tmp_path / "compare.html").read_text(encoding="utf-8")
    assert "hypothetical H200 SXM 141GB writes fastest" in unmarked(page)
    assert "Rooflines at bf16" in page
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]* (?:src|href)="(?!data:)', page)
    said = dse("compare", *chips, *flags)
    assert said.code == 0
    assert fits(said.out, 100)
    assert "nan" not in said.out.lower().replace("hypothetical", "")


def test_a_hostile_chip_name_stays_text(tmp_path: Path):
    path = tmp_path / "x.yaml"
    hostile = "</script><img src=x onerror=alert(1)>"
    path.write_text(PRICED.replace("My chip", f'"{hostile}"'), encoding="utf-8")
    said = dse("compare", path, "h200_sxm", "--model", "llama-3-8b", "--out", tmp_path)
    assert said.code == 0, said.err
    assert "<img src=x" not in (tmp_path / "compare.html").read_text(encoding="utf-8")


SMALL_CHIPS = "chip: [h100_sxm, b200_sxm]"


@pytest.fixture
def study(tmp_path: Path, space: Callable[..., Path]) -> Path:
    out, path = tmp_path / "study", space("chip: h100_sxm", SMALL_CHIPS)
    text = path.read_text(encoding="utf-8")  # what enters, enters the exact front
    path.write_text(f"{text}\nresolution: 0\n", encoding="utf-8")
    said = dse("run", path, "--out", out)
    assert said.code == 0, said.err
    return out


def on_front(folder: Path, space: Callable[..., Path], parent: str, setting: str) -> bool:
    """Whether the derived chip is on the front of the same space with that chip in it."""
    file = derived(folder, setting, parent=parent, name="one.yaml")
    path = space("chip: h100_sxm", SMALL_CHIPS.replace("]", ", one.yaml]"), "one-space.yaml")
    text = path.read_text(encoding="utf-8")  # to enter is to enter the exact front
    path.write_text(f"{text}\nresolution: 0\n", encoding="utf-8")
    said = dse("run", path, "--out", folder / "one", "--fresh")
    assert said.code == 0, said.err
    file.unlink()
    return "hypothetical" in (folder / "one" / "front.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("chip", ["mi250x", "gaudi3"])
def test_what_is_required_enters_and_two_percent_less_does_not(
    tmp_path: Path, space: Callable[..., Path], study: Path, chip: str
):
    answer = ask("whatif", study, "--require", chip)
    assert not answer["enters_as_it_is"]
    found = [row for row in answer["requirements"] if row["setting"]]
    assert "price" in {row["quantity"] for row in found}
    if chip == "gaudi3":
        assert answer["usd_per_chip_hour"] is None
        assert len(found) == 1
    for row in found:
        name, value = row["setting"].split("=")
        number = float(re.sub(r"[^0-9.e-]", "", value.removesuffix("USD/h").removesuffix("x")))
        less = number * (1.02 if name.startswith(("price", "tdp")) else 0.98)
        unit = "USD/h" if "USD/h" in value else "x"
        assert on_front(tmp_path, space, chip, row["setting"]), row["setting"]
        if name != "domain":
            assert not on_front(tmp_path, space, chip, f"{name}={less:.9g}{unit}"), row["setting"]
        assert f" {chip} " in row["deployed"]
        assert row["usd_per_million_total_tokens"] > 0.0
        assert row["tpot_s"] > 0.0
    for row in answer["requirements"]:
        assert (row["enters"] is None) == (row["reason"] is not None)
    said = dse("whatif", study, "--require", chip)
    assert said.code == 0
    assert fits(said.out, 100)
    assert f"{chip} enters the front of small" in said.out


def test_what_is_on_the_front_needs_nothing(study: Path):
    answer = ask("whatif", study, "--require", "h100_sxm")
    assert answer["on_front"]
    assert answer["requirements"] == []
    assert not answer["enters_as_it_is"]


def test_requirements_of_shapes_are_those_of_the_front(tiny: Path, tmp_path: Path):
    answer = ask("whatif", tiny, "--require", "mi250x")
    assert answer["shapes"] == answer["shapes_of_front"] > 1
    assert {"memory bandwidth", "price"} <= {row["quantity"] for row in answer["requirements"]}
    out = tmp_path / "as-it-is"
    on = ask("whatif", tiny, "--require", "b200_sxm", "--out", out)
    assert on["enters_as_it_is"]
    assert "b200_sxm" in on["requirements"][0]["deployed"]
    assert "as it is" in (out / "whatif.csv").read_text("utf-8")


def test_a_study_of_another_space_is_refused(study: Path, space: Callable[..., Path]):
    space("[1, 16, 64]", "[1, 16]")
    said = dse("whatif", study, "--require", "mi300x")
    assert said.code == 2
    assert "has changed since" in said.err


SIX = {
    "short": [
        ("name: My chip", "nmae: My chip", "nmae: unknown field 'nmae'; did you mean name?"),
        ("class_gpu", "class_gup", "efficiency: read 'class_gup': no such efficiency; did you"),
        ("96 GB", "96 TB/s", "memory_capacity: read '96 TB/s': a bandwidth, not a size"),
        ("4 TB/s", "0 TB/s", "memory_bandwidth: read '0 TB/s': zero"),
        ("1000 TFLOP/s", "1000", "peak_bf16: read '1000': a bare number, its unit is missing"),
        ("1 USD/h", "1 USD", "prices.rental_3yr: read '1 USD': a price, not a price per hour"),
    ],
    "derived": [
        ("vendor: NVIDIA\n", "", "vendor: missing field"),
        ("efficiency: h200_sxm", "efficiency: h200_sxn", "efficiency: read 'h200_sxn'"),
        ("value: 141 GB", "value: 141", "figures.memory_capacity.value: read '141': a bare number"),
        ("value: 700 W", "value: 0 W", "figures.tdp.value: read '0 W': zero"),
        ("value: 900 GB/s", "value: 900 GB",
         "system.levels[0].bandwidth_per_direction.value: read '900 GB': a size, not a bandwidth"),
        ("value: 50 GB/s", "valu: 50 GB/s",
         "system.levels[1].bandwidth_per_direction.valu: unknown field 'valu'; did you mean"),
        ("value: 5 us", "value: 5 um", "system.levels[1].latency.value: read '5 um': unknown unit"),
        ("value: 1.6 USD/h", "value: 1.6", "prices.rental_3yr.value: read '1.6': a bare number"),
        ("id: hypothetical_", "id: ", "an id that begins with hypothetical_"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", list(SIX))
def test_six_mistakes_get_six_messages_each_with_its_line(tmp_path: Path, form: str):
    path = tmp_path / "chip.yaml"
    text = PRICED
    if form == "derived":
        text = derived(tmp_path, "link=2x").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    assert dse("catalog", "chips", "check", path).code == 0
    lines = []
    for old, *_ in SIX[form]:
        assert old in text, old
        lines.append(text[: text.index(old)].count("\n") + 1)
    for old, new, _ in SIX[form]:
        # An emptied line stays, so that the others keep their numbers.
        text = text.replace(old, new or "\n", 1)
    path.write_text(text, encoding="utf-8")
    said = dse("catalog", "chips", "check", path)
    assert (said.code, said.out) == (2, "")
    messages = said.err.strip().removeprefix("dse: ").splitlines()
    assert len(messages) == len(SIX[form]) >= 6
    for (_, new, words), line in zip(SIX[form], lines, strict=True):
        found = [message for message in messages if words in message]
        assert len(found) == 1, (words, messages)
        assert "(accepted: " in found[0]
        if new:
            assert found[0].startswith(f"{path}:{line}: "), (line, found[0])


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path):
    (tmp_path / "taken.yaml").mkdir()
    said = dse(
        "catalog", "chips", "derive", "--from", "h200_sxm", "--set", "tdp=2x", "--out",
        tmp_path / "taken.yaml",
    )  # fmt: skip
    assert said.code == 4
    assert "cannot be written" in said.err
    found: list[Any] = [path.name for path in tmp_path.iterdir()]
    assert found == ["taken.yaml"]
