"""Pages of one file, which load nothing from anywhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dse.answer.answer import Answer, Block, Column, Section
from dse.answer.numbers import GLOSSARY, SHOWN_AS, kind_of
from dse.answer.plots import plain
from dse.answer.sentences import spoken, with_names
from dse.schema.loader import Lazy

# The bundle of plotly.js that draws scatters and bars, as published, without maps and surfaces.
PLOTLY = "plotly-basic.min.js"
# A notebook's cell says the answer itself, so the page of its picture does not.
PICTURE_ALONE = "<style>header, #answer { display: none }</style>"
# Elements whose text is no prose: it is copied, clicked or already an explanation.
UNEXPLAINED = ("a", "abbr", "b", "button", "code", "h1", "select", "summary")
SILENT = re.compile('class="glossary"')


def answer_html(answer: Answer) -> str:
    """The page of an answer: the sentences, the pictures, the tables, what it rests on, the command
    and the words that it uses, each explained at its first use and once in a list."""
    names = answer.names
    drawn = Lazy(names, lambda one: plain(names[one]))
    figures = {one.name: _told(one.plotly, partial(spoken, names=drawn)) for one in answer.figures}
    first = answer.first_screen
    shown = () if first is None else (first.figure, first.table)
    explorer = answer.explorer
    data = {"front": _told(explorer.data, partial(with_names, names=names))} if explorer else {}
    scripts = ("common.js", "parallel.js", "explorer.js", "answer.js")
    text = (
        environment()
        .get_template("answer.html")
        .render(
            answer=answer,
            title=spoken(answer.title, names),
            first=first,
            blocks=_without(answer.blocks, shown),
            plotly=template_text(PLOTLY) if figures or explorer else "",
            page_json=script_json({"figures": figures, **data}),
            script=template_text(*(scripts if explorer else ("common.js", "answer.js"))),
            style=template_text("report.css"),
        )
    )
    escaped = Lazy(names, lambda one: str(escape(names[one])))
    glossary = {**GLOSSARY, **answer.words}
    explainer = Explainer(glossary, partial(spoken, names=escaped))
    start, end = text.index("<header>"), text.index("</main>")
    marked = explainer.page(text[start:end])
    words = {term: glossary[term] for term in glossary if term.lower() in explainer.seen}
    listed = environment().get_template("words.html").render(glossary=words) if words else ""
    return text[:start] + marked + listed + text[end:]


def _told(value: Any, say: Callable[[str], str]) -> Any:
    """A JSON value with its texts as `say` has them; keys stay."""
    if isinstance(value, str):
        return say(value)
    if isinstance(value, Mapping):
        return {key: _told(one, say) for key, one in value.items()}
    return [_told(one, say) for one in value] if isinstance(value, list | tuple) else value


def answer_cell(answer: Answer) -> str:
    """An answer in a notebook: the sentence, the first table, and the front to look around in or
    the first picture."""
    parts = [Markup("<p><b>{}</b></p>").format(answer.headline)]
    tables = [table for table in answer.tables if table.on_console][:1]
    for one in tables:
        head = Markup("").join(Markup("<th>{}</th>").format(title) for title in one.titles)
        rows = Markup("").join(
            Markup("<tr>{}</tr>").format(
                Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row)
            )
            for row in one.texts()
        )
        caption = Markup("<caption>{}</caption>").format(one.caption) if one.caption else ""
        parts.append(Markup("<table>{}<tr>{}</tr>{}</table>").format(caption, head, rows))
    shown = [answer.explorer] if answer.explorer else answer.figures[:1]
    if shown:
        alone = answer_html(
            replace(
                answer,
                sentences=(),
                blocks=shown,
                certainty=(),
                rests=(),
                command="",
                data=(),
                opening=None,
            )
        ).replace("</head>", f"{PICTURE_ALONE}</head>", 1)
        parts.append(
            Markup(
                '<iframe srcdoc="{}" style="width: 100%; height: 640px; border: 0"></iframe>'
            ).format(alone)
        )
    return str(Markup("").join(parts))


def _without(blocks: Sequence[Block], shown: Sequence[Block | None]) -> list[Block]:
    """The blocks but those that the first screen has, also inside of sections."""
    found: list[Block] = []
    for block in blocks:
        if isinstance(block, Section):
            left = _without(block.blocks, shown)
            if left or not block.blocks:
                found.append(replace(block, blocks=left))
        elif not any(block is one for one in shown):
            found.append(block)
    return found


def _of_kind(blocks: Sequence[Block], *kinds: str) -> list[Block]:
    return [block for block in blocks if type(block).__name__ in kinds]


def _runs(blocks: Sequence[Block]) -> list[tuple[str, list[Block]]]:
    """(kind, neighbours of that kind), in the order given."""
    return [(kind, list(run)) for kind, run in groupby(blocks, lambda one: type(one).__name__)]


def _unit(column: Column) -> str:
    """The unit of the raw values of a column, for who copies them; empty for words and counts."""
    return SHOWN_AS.get(kind_of(column.kind), {}).get("raw_unit", "") if column.kind else ""


def environment() -> Environment:
    """Of the pages' templates: everything escaped, a missing name is an error."""
    made = Environment(
        loader=PackageLoader("dse.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["source"] = linked
    made.filters["of_kind"] = _of_kind
    made.filters["runs"] = _runs
    made.filters["unit"] = _unit
    return made


class Explainer:
    """Marks the first use of each glossary word on a page with its meaning. `say` gives the words
    that a page has for a text."""

    def __init__(
        self, glossary: Mapping[str, str] = GLOSSARY, say: Callable[[str], str] = str
    ) -> None:
        self.say = say
        terms = sorted(glossary, key=len, reverse=True)
        self.pattern = re.compile(
            r"\b(" + "|".join(re.escape(str(escape(term))) for term in terms) + r")\b",
            re.IGNORECASE,
        )
        self.meaning = {term.lower(): text for term, text in glossary.items()}
        self.seen: set[str] = set()

    def __call__(self, text: object) -> Markup:
        # Every part of the result is escaped: the text here, the meaning in `_marked`.
        return Markup(self._marked(str(escape(text))))  # noqa: S704

    def page(self, html: str) -> str:
        """`html`, whose text is escaped, with the first use of each word in its prose marked."""
        parts = re.split(r"(<[^>]*>)", html)
        inside: list[str] = []
        for i, part in enumerate(parts):
            if not part.startswith("<"):
                said = part if "code" in inside or not part.strip() else self.say(part)
                parts[i] = said if inside else self._marked(said)
                continue
            tag_itself, label, words = part.partition("aria-label=")
            parts[i] = tag_itself + label + self.say(words)
            tag = part.strip("</>").split()[0]
            if part.startswith("</"):
                if inside and inside[-1] == tag:
                    inside.pop()
            elif tag in UNEXPLAINED or inside[-1:] == [tag] or SILENT.search(part):
                inside.append(tag)
        return "".join(parts)

    def _marked(self, escaped: str) -> str:
        def mark(found: re.Match[str]) -> str:
            term = found[0].lower()
            if term in self.seen:
                return found[0]
            self.seen.add(term)
            return f'<abbr title="{escape(self.meaning[term])}" tabindex="0">{found[0]}</abbr>'

        return self.pattern.sub(mark, escaped)


def linked(text: object) -> Markup:
    """A source: a link where it is a web address, else its text."""
    address = str(text)
    if re.fullmatch(r"https?://\S+", address):
        return Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(address)
    return escape(address)


def template_text(*names: str) -> str:
    """Files of the templates folder, one after the other."""
    folder = files("dse.render") / "templates"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def script_json(value: object) -> str:
    """JSON that is harmless inside a script element, whatever text it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
