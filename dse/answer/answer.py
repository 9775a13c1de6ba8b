"""The one answer of every question.

A question takes typed arguments and returns an `Answer`; nobody else formats it. The console,
Markdown, HTML, JSON, CSV and XLSX each have one renderer (`dse.render`), which knows no question.
`dse.questions.scale` is the example to follow:

- A question computes named frames (`dse.answer.frames`): their columns are keys of the vocabulary,
  which has their titles, kinds and meanings. The JSON document, the files, the sheets, the tables
  and the pictures follow from them.
- The headline is the answer in one sentence, from a template; at most five more sentences each
  change a decision. Every number in them goes through `dse.answer.numbers`: `show(key, value)` for
  a key of the vocabulary, else `time`, `dollars`, `share`, `large`, ...
- A cell that is already text stays as it is in any column. None is a dash. Units stand in the
  cells, so titles need none. Columns that are `first` are the small table of the first screen.
  `on_console=False` keeps a long table for the page and the files.
- A `Figure` is a plotly dictionary and what it shows in words. A colour "ink" or "grid" follows the
  page's own, light or dark. Escape names with `plots.plain`.
- `asked` is one line: model, workload, limits, price basis; without it the console begins with the
  headline. `words` explains terms of this question, beside the common ones (`dse.answer.numbers`).
- `cli/VERB.py` makes the command from the function's signature (`dse.cli.signature`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.answer import numbers
from dse.answer.numbers import NONE
from dse.record import record

if TYPE_CHECKING:
    from pandas import DataFrame


@record
class Formula:
    """A cell that a workbook computes: `text` without its =, and the value that it has now."""

    text: str
    value: float | str


Cell = str | float | int | bool | Formula | None
BESIDE_ROWS, BESIDE_WIDTH = 9, 72  # rows and characters of a table beside a picture
FORMATS = ("json", "csv", "xlsx", "md", "html")


@record
class Column:
    """One column: `key` names it in CSV and in the rows, `title` on paper. `kind` is a metric or a
    key of `numbers.KINDS`; empty: words. `right` aligns it; None: where it has a kind. Those that
    are `first` stand beside the picture of the first screen, of a table that has no room there."""

    key: str
    title: str
    kind: str = ""
    right: bool | None = None
    explain: str = ""
    first: bool = False

    @property
    def aligned_right(self) -> bool:
        return bool(self.kind) if self.right is None else self.right

    def text(self, value: Cell) -> str:
        """A cell as every format but CSV, XLSX and JSON shows it."""
        if value is None:
            return NONE
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, Formula):
            return self.text(value.value)
        if not self.kind:
            return numbers.show_as("number", value, 9)
        kind = numbers.kind_of(self.kind)
        if self.kind in numbers.KINDS:
            return numbers.show_as(kind, value)
        return numbers.show(self.kind, value)


@record
class Table:
    """Raw values under `columns`. `name` is that of its CSV file and sheet; `notes` explain it."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Cell]]
    notes: Sequence[str] = ()
    on_console: bool = True
    shown: Sequence[str] = ()

    def __getitem__(self, key: str) -> list[Any]:
        """The cells of a column."""
        return [row[key] for row in self.rows]

    @property
    def columns_shown(self) -> Sequence[Column]:
        """The columns that the terminal and the page show: those of `shown`, else all."""
        known = {column.key: column for column in self.columns}
        return [known[key] for key in self.shown] if self.shown else self.columns

    def to_pandas(self) -> DataFrame:
        """Every column under its key."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=[column.key for column in self.columns])

    @property
    def beside(self) -> Table | None:
        """What has room beside a picture on one screen: the first rows of its `first` columns,
        without any the whole table; None where that has no room."""
        if few := [one for one in self.columns if one.first]:
            return Table(f"{self.name}-first", "", few, self.rows[:BESIDE_ROWS])
        widths = [max(map(len, cells)) for cells in zip(self.titles, *self.texts(), strict=True)]
        fits = 0 < len(self.rows) <= BESIDE_ROWS and sum(widths) + 2 * len(widths) <= BESIDE_WIDTH
        return self if fits else None

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self.columns_shown]

    @property
    def right(self) -> list[int]:
        return [k for k, column in enumerate(self.columns_shown) if column.aligned_right]

    def texts(self) -> list[list[str]]:
        """The cells as people read them."""
        return [[one.text(row.get(one.key)) for one in self.columns_shown] for row in self.rows]

    def values(self) -> list[list[Cell]]:
        """The cells as they are."""
        return [[row.get(one.key) for one in self.columns] for row in self.rows]


@record
class Figure:
    """A picture: `plotly` is {"data": [...], "layout": {...}}, `shows` says it in words for who
    cannot see it."""

    name: str
    title: str
    plotly: Mapping[str, Any]
    shows: str


@record
class Notes:
    """Sentences under a heading."""

    title: str
    sentences: Sequence[str]


@record
class Commands:
    """Command lines to run next."""

    title: str
    lines: Sequence[str]


@record
class Facts:
    """One thing by its facts: `rows` are (what, sentence). `strong` are a few numbers, (what,
    value), which a page prints large."""

    title: str
    rows: Sequence[tuple[str, str]]
    strong: Sequence[tuple[str, str]] = ()
    on_console: bool = True


@record
class Explorer:
    """Many designs to look around in. `data` are the columns that the page's script draws as a
    scatter, parallel axes, pairs and a table that filter each other (`explorer.js`); `table` is
    what other formats show."""

    table: Table
    data: Mapping[str, Any]


@record
class Section:
    """Blocks that belong together, under a heading and an introduction; without a heading they
    belong to the answer itself. `name` is its id on a page."""

    title: str
    blocks: Sequence[Block]
    about: Sequence[str] = ()
    name: str = ""
    on_console: bool = True


@record
class Opening:
    """The first screen of a page, and nothing else on it: what was asked in a line, the decision in
    one sentence, a picture, a small table and a line on how sure it is. The sentences and tables of
    the answer say all of it too, which other formats show; a page has them behind a click."""

    asked: str
    headline: str
    figure: Figure
    table: Table | None
    sure: str = ""


FULL = "designs"
Block = Table | Figure | Notes | Commands | Facts | Explorer | Section


def table_of(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of a document as data: every value under its key, that of an object inside it under both
    keys with a dot between (`deployment.chip`). Lists are left out. Every row has every column."""
    flat = [dict(_scalars(row)) for row in rows]
    keys = dict.fromkeys(key for row in flat for key in row)
    return Table(name, name, [Column(key, key) for key in keys], flat)


def long_table(name: str, parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """The rows of several parts of a document as one table: part, row, quantity, value."""
    rows = [
        {"part": part, "row": k, "quantity": key, "value": value}
        for part, found in parts.items()
        for k, row in enumerate(found, 1)
        for key, value in _scalars(row)
        if value is not None
    ]
    keys = ("part", "row", "quantity", "value")
    return Table(name, name, [Column(key, key) for key in keys], rows)


def _scalars(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Cell]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{prefix}{key}.")
        elif not isinstance(value, (list, tuple)):
            yield f"{prefix}{key}", value


@record
class Answer:
    """What a question found: a sentence, tables and pictures, and how sure it is.

        answer = dse.fleet("dense-70b-billion-tokens")
        print(answer.to_text())
        answer.to_html("fleet.html")
        answer.document["usd"]

    Each `to_` gives one format; `write` puts the files into a folder. `document` holds the numbers
    in SI units. A notebook shows the sentence, the first table and the first picture. Texts are
    plain: each renderer escapes them for its own format. `memo` makes one page of it for who
    decides, which `write` puts beside the page. `sheets` are tables of the workbook alone, whose
    cells may be formulas over each other. `names` are the makers' names of chips by their ids: a
    page says the names, other formats the ids, which commands take.
    """

    question: str
    title: str
    headline: str
    document: Any  # a JSON object; of a list an array
    asked: str = ""
    sentences: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    certainty: Sequence[str] = ()
    rests: Sequence[str] = ()
    command: str = ""
    data: Sequence[Table] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    opening: Opening | None = None
    memo: Callable[[], Answer] | None = None
    sheets: Sequence[Table] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def _all(self) -> Iterator[Block]:
        """Every block, those of a section after it."""
        waiting = list(self.blocks)
        while waiting:
            block = waiting.pop(0)
            yield block
            if isinstance(block, Section):
                waiting[:0] = block.blocks

    @property
    def tables(self) -> list[Table]:
        found = [b.table if isinstance(b, Explorer) else b for b in self._all()]
        return [block for block in found if isinstance(block, Table)]

    @property
    def explorer(self) -> Explorer | None:
        return next((block for block in self._all() if isinstance(block, Explorer)), None)

    @property
    def figures(self) -> list[Figure]:
        first = [self.opening.figure] if self.opening else []
        drawn = (block for block in self._all() if isinstance(block, Figure))
        return first + [figure for figure in drawn if figure not in first]

    @property
    def first_screen(self) -> Opening | None:
        """The opening; without one, the headline with the first picture, the first table that fits
        beside it and the first line on how sure the answer is. None without a picture."""
        if self.opening or not self.figures:
            return self.opening
        small = (one.beside for one in self.tables if one.on_console)
        beside = next((one for one in small if one), None)
        sure = f"How sure: {self.certainty[0]}" if self.certainty else ""
        return Opening(self.asked, self.headline, self.figures[0], beside, sure)

    def to_text(self, width: int = 100, detail: bool | None = None) -> str:
        """Sentences and tables within `width` columns. Where `detail` is false, only how many
        assumptions the answer rests on; where it is true, tables for the page, too."""
        from dse.render.console import answer_text

        return answer_text(self, width, detail)

    def to_markdown(self) -> str:
        """GitHub-flavoured Markdown, without the pictures."""
        from dse.render.markdown import answer_markdown

        return answer_markdown(self)

    def to_html(self, path: str | Path | None = None) -> str:
        """One page that loads nothing from anywhere else; also written to `path`."""
        from dse.render.page import answer_html

        text = answer_html(self)
        if path is not None:
            from dse.files import write_text

            write_text(Path(path).parent, Path(path).name, text)
        return text

    def to_json(self) -> str:
        """The document, one line for each value; null for what does not apply."""
        import json

        return json.dumps(self.document, indent=1, allow_nan=False)

    def to_csv(self, name: str | None = None) -> str:
        """The data, or the table `name`: raw values in nine significant digits."""
        from dse.render.files import table_csv

        known = {table.name: table for table in (*self.data, *self.tables)}
        return table_csv(known[name or next(iter(known))])

    def to_xlsx(self) -> bytes:
        """A workbook: the answer in words, then a sheet for each table."""
        from dse.render.files import answer_workbook

        return answer_workbook(self)

    def write(self, folder: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
        """Writes QUESTION.FORMAT for each of `formats` into `folder`, each whole or not at all.
        Raises StorageError where they cannot be written."""
        from dse.render.files import write_answer_files

        return write_answer_files(self, Path(folder), formats)

    def __repr__(self) -> str:
        return f"Answer({self.question}: {self.headline})"

    def _repr_html_(self) -> str:
        """In a notebook: the sentence, the first table and the first picture."""
        from dse.render.page import answer_cell

        return answer_cell(self)
