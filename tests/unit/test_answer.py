"""One answer in every format: the same cells, escaped, and files that are there before words."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import subprocess
import sys
import zipfile
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.answer.answer import (
    Answer,
    Column,
    Commands,
    Figure,
    Notes,
    Section,
    Table,
    long_table,
    table_of,
)
from dse.answer.sentences import spoken
from dse.errors import InputError, StorageError
from dse.files import text_of, write_files, write_text
from dse.render.console import continued, scatter_text

HOSTILE = '<img src=x onerror="alert(1)">|`*'
TABLE = Table(
    "rows",
    "Two rows",
    (
        Column("name", "name"),
        Column("tpot_s", "a token", "tpot_s"),
        Column("usd", "price", "dollars"),
        Column("fits", "fits"),
    ),
    [
        {"name": "plain", "tpot_s": 0.008012345678912, "usd": 0.0694, "fits": True},
        {"name": HOSTILE, "tpot_s": None, "usd": "free", "fits": False},
    ],
    notes=("A note.",),
)
ANSWER = Answer(
    question="sample",
    title=f"Title {HOSTILE}",
    headline="The knee is best.",
    asked="one model",
    sentences=("It costs less.",),
    blocks=(
        Figure("dots", "Dots", {"data": [], "layout": {"height": 300}}, "two dots"),
        TABLE,
        Section("More", (Notes("Why", ("Because.",)),), about=("About it.",)),
        Commands("Next", ("dse next --model '<b>'",)),
    ),
    certainty=("Within 20%.",),
    rests=("An assumption.",),
    command="dse sample --x '<b>'",
    document={"value": 1.0, "none": None},
)
CELLS = ["8.01 ms", "$0.0694", "yes", "no", "free", "–"]


def test_a_table_shows_the_same_cells_in_text_markdown_and_html() -> None:
    assert [cell for row in TABLE.texts() for cell in row][1:4] == ["8.01 ms", "$0.0694", "yes"]
    html = re.findall(r"<td[^>]*>(.*?)</td>", ANSWER.to_html(), flags=re.S)
    assert [unescape(re.sub("<[^>]*>", "", cell)) for cell in html] == [
        cell for row in TABLE.texts() for cell in row
    ]
    for text in (ANSWER.to_text(), ANSWER.to_markdown()):
        assert all(cell in text for cell in CELLS)


def test_csv_and_xlsx_hold_raw_values() -> None:
    first, second = csv.DictReader(io.StringIO(ANSWER.to_csv("rows")))
    assert first["tpot_s"] == "0.00801234568"
    assert second["tpot_s"] == ""
    assert second["name"] == HOSTILE
    with zipfile.ZipFile(io.BytesIO(ANSWER.to_xlsx())) as book:
        sheet = book.read("xl/worksheets/sheet2.xml").decode()
    assert "<v>0.008012345678912</v>" in sheet


def test_command_lines_to_run_next_stand_in_every_text() -> None:
    assert "  dse next --model '<b>'" in ANSWER.to_text().splitlines()
    assert "`dse next --model '<b>'`" in ANSWER.to_markdown()
    assert "dse next --model &#39;&lt;b&gt;&#39;" in ANSWER.to_html()


def test_rows_of_a_document_are_data() -> None:
    rows = [{"chip": "a", "at": {"tp": 2, "more": {"x": 0.5}}, "list": [1]}, {"none": None}]
    table = table_of("data", rows)
    assert [column.key for column in table.columns] == ["chip", "at.tp", "at.more.x", "none"]
    assert table.values() == [["a", 2, 0.5, None], [None, None, None, None]]
    long = long_table("data", {"winner": rows, "nobody": []})
    assert long.values() == [
        ["winner", 1, "chip", "a"],
        ["winner", 1, "at.tp", 2],
        ["winner", 1, "at.more.x", 0.5],
    ]


def test_text_of_others_is_escaped() -> None:
    for text in (ANSWER.to_html(), ANSWER._repr_html_()):
        assert "<img" not in text
    page = ANSWER.to_html()
    assert "dse sample --x &#39;&lt;b&gt;&#39;" in page
    first = ('<p class="lead">', ">Dots<", ">Two rows<", ">The answer in full<")
    places = [page.index(text) for text in first]
    assert places == sorted(places)
    assert "<img" not in ANSWER.to_markdown()


def test_text_fits_the_width_and_starts_with_the_answer() -> None:
    text = ANSWER.to_text(60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.splitlines()[1] == "- The knee is best."


def test_files_are_whole_or_absent(tmp_path: Path) -> None:
    paths = ANSWER.write(tmp_path / "out")
    assert [path.name for path in paths] == [
        f"sample.{kind}" for kind in ("json", "csv", "xlsx", "md", "html")
    ]
    written = json.loads(paths[0].read_text())
    assert written == {**ANSWER.document, "command": ANSWER.command}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in paths}
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        ANSWER.write(tmp_path / "file")


def test_where_one_file_does_not_fit_none_is_replaced(tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in ANSWER.write(tmp_path)}
    sizes = sorted(map(len, before.values()))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (0, sizes[1], sizes[-2], sizes[-1] // 2):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
        try:
            with pytest.raises(StorageError, match="cannot be written: File too large"):
                replace(ANSWER, command="another").write(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "sample.html").unlink()
    (tmp_path / "sample.html").mkdir()
    with pytest.raises(StorageError, match=r"sample.html: cannot be written: Is a directory"):
        replace(ANSWER, command="another").write(tmp_path)
    assert (tmp_path / "sample.json").read_bytes() == before["sample.json"]


def test_a_closed_pipe_is_no_error_and_the_files_are_there(tmp_path: Path) -> None:
    flags = ["--model", "llama-3-8b", "--chip", "h100_sxm", "--chips-up-to", "2", "--out"]
    command = [sys.executable, "-m", "dse", "scale", *flags, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as said:
        assert said.stdout is not None
        said.stdout.close()  # the reader left before the first word
        assert said.wait(120) == 0
    assert (tmp_path / "out" / "scale.html").stat().st_size > 1000
    assert json.loads((tmp_path / "out" / "scale.json").read_text())["model"] == "Llama-3-8B"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Rent 24 h100_sxm on rental_3yr (in quarter 1)", "Rent 24 H100 for three years (in q"),
        ("an hour of h100_sxm (rental_3yr) is", "an hour of H100 (three-year rent) is"),
        ("no price on the basis on_demand.", "no price on the basis of rent by the hour."),
        ("ttft_s <= 2 s", "time to first token at most 2 s"),
        ("chip.h100_sxm.price +60%", "price of H100 +60%"),
        ("chip.all.memory_bandwidth", "memory bandwidth of every chip"),
        ("workload.chat.prompt_tokens", "prompt tokens of chat"),
        ("limit.tpot_s", "limit on time per output token"),
        ("from h100_sxm.", "from H100."),
        ("hardware/chips/h100_sxm.yaml", "hardware/chips/h100_sxm.yaml"),
        ("hardware/costs.yaml", "hardware/costs.yaml"),
        ("my_h100_sxm_2", "my_h100_sxm_2"),
        ("limit.METRIC of any metric", "limit.METRIC of any metric"),
    ],
)
def test_a_page_says_names_and_words_for_ids(written: str, said: str):
    assert spoken(written, {"h100_sxm": "H100"}).startswith(said)


def test_names_are_on_the_page_and_ids_in_files_and_commands():
    dots = {"data": [{"name": "h100_sxm", "x": [1]}], "layout": {}}
    table = Table(
        "chips",
        "Chips",
        (Column("chip", "chip"),),
        [{"chip": "h100_sxm"}],
    )
    answer = Answer(
        question="sample",
        title="On h100_sxm",
        headline="Take h100_sxm.",
        blocks=(Figure("h100_sxm", "Dots of h100_sxm", dots, "h100_sxm alone"), table),
        command="dse estimate --chip h100_sxm",
        document={"chip": "h100_sxm"},
        data=(table,),
        names={"h100_sxm": HOSTILE},
    )
    page = answer.to_html()
    assert "<img src=x" not in page
    body = re.sub(r"<code.*?</code>", "", page[page.index("<title>") : page.index("</main>")])
    assert "h100_sxm" not in body.replace('id="h100_sxm"', "")
    assert "h100_sxm" in answer.to_text()
    assert "h100_sxm" in answer.to_csv()
    data = json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])
    assert data["figures"]["h100_sxm"]["data"][0]["name"] == escape(HOSTILE, quote=False)


def test_a_wide_table_stands_beside_the_picture_by_its_first_columns():
    wide = [Column(f"c{k}", "a title that is long " * 2, first=k < 2) for k in range(4)]
    table = Table("wide", "Wide", wide, [{f"c{k}": k for k in range(4)}] * 20)
    assert table.beside is not None
    assert [one.key for one in table.beside.columns] == ["c0", "c1"]
    assert 0 < len(table.beside.rows) < 20
    assert Table("wide", "Wide", [Column("c", "t" * 90)], table.rows).beside is None


# A scatter in characters: every mark at its place, nothing beyond the width.


def figure(x: list[float | None], y: list[float | None], **across: Any) -> Figure:
    axis = {"title": {"text": "cost &lt;USD&gt;"}, "range": [0.0, 10.0], **across}
    up = {"title": {"text": "loss"}, "range": [1.0, 2.0]}
    chip = {"name": "a &amp; b", "x": x, "y": y, "marker": {"symbol": "circle"}}
    mark = {"name": "decisions", "x": [10.0], "y": [1.0], "text": ["7"], "marker": {"symbol": "x"}}
    return Figure("f", "", {"data": [chip, mark], "layout": {"xaxis": axis, "yaxis": up}}, "")


def test_corners_and_middle() -> None:
    text = scatter_text(figure([0.0, 5.0, 11.0, None], [2.0, 1.5, 1.5, 1.5]), 47, height=11)
    title, *rows, floor, ends, legend = text.splitlines()
    assert title.strip() == "loss"
    assert [row[6:] for row in rows if "•" in row] == ["•", " " * 20 + "•"]
    assert rows[-1].rstrip().endswith("7")
    assert len(rows[-1]) == len(floor) == 47
    assert rows[0].startswith("2.00 │")
    assert rows[-1].startswith("1.00 │")
    assert "cost <USD>" in ends
    assert legend.strip() == "• a & b; numbers are the decisions"


def test_a_decade_is_as_wide_as_the_next() -> None:
    text = scatter_text(figure([1.0, 10.0, 100.0], [1.5] * 3, type="log", range=[0.0, 2.0]), 47)
    row = next(line for line in text.splitlines() if "•" in line)
    places = [k for k, one in enumerate(row) if one == "•"]
    assert places[1] - places[0] == places[2] - places[1] == 20


@given(
    st.lists(st.floats(-1e9, 1e9) | st.none(), max_size=9),
    st.integers(40, 200),
    st.sampled_from(["linear", "log"]),
    st.integers(0, 40),
)
def test_it_keeps_to_its_width(x: list[float | None], width: int, kind: str, words: int) -> None:
    title = {"text": " ".join(["cost"] * words)}
    text = scatter_text(figure(x, [1.5] * len(x), type=kind, title=title), width)
    assert max(map(len, text.splitlines())) <= width


# Command lines over several lines.


COMMAND = "vllm bench serve --ignore-eos --max-concurrency 64 --num-prompts 640 --seed 1"


@given(st.integers(30, 90))
def test_an_option_stands_beside_its_value(columns: int) -> None:
    lines = continued(COMMAND, columns).split(" \\\n")
    assert all(len(line) + 2 <= columns for line in lines)
    assert " ".join(line.strip() for line in lines) == COMMAND
    for pair in ("--max-concurrency 64", "--num-prompts 640", "--seed 1"):
        assert any(pair in line for line in lines)


# Files are replaced whole, together and where they lead to.


def test_a_link_is_kept_and_what_it_leads_to_is_replaced(tmp_path: Path):
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    write_text(tmp_path, "link.csv", "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_standard_output_is_written_itself(tmp_path: Path):
    stand_in = tmp_path / "stdout"
    stand_in.symlink_to("/proc/self/fd/1")
    code = f"from pathlib import Path; from dse.files import write_text\n\
write_text(Path({str(tmp_path)!r}), 'stdout', 'said')"
    with (tmp_path / "said.txt").open("w") as file:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=file)
    assert stand_in.is_symlink()
    assert (tmp_path / "said.txt").read_text() == "said"


def test_the_last_file_is_renamed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """study.json says that a study is finished."""
    order = []
    rename = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (order.append(Path(to).name), rename(self, to))[1]
    )
    write_files(tmp_path, {"front.csv": b"1", "front.json": b"2", "study.json": b"3"})
    assert order == ["front.csv", "front.json", "study.json"]


@pytest.mark.parametrize("escape", [r"\u001b", r"\u202E", r"\b", r"\f"])
def test_what_a_string_of_json_escapes_is_seen_too(escape: str):
    text = f'{{"a": "x",\n "b": "{escape}"}}'.encode()
    assert text_of(text, "x.json")
    with pytest.raises(InputError, match=r"x\.json:2: read the character U\+"):
        text_of(text, "x.json", escapes=True)
    assert text_of(text.replace(b'"\\', b'"\\\\'), "x.json", escapes=True)
