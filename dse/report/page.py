"""report.html: one file, nothing loaded from anywhere else."""

from __future__ import annotations

import re
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from dse.report import tables, words
from dse.report.figures import PALETTE, SYMBOLS, figures
from dse.report.folder import StudyFolder
from dse.report.labels import GLOSSARY, label, show

TABLE_ROWS = 200
DRAWN_POINTS = 1_500


def page(folder: StudyFolder) -> str:
    """The whole page as HTML."""
    environment = Environment(
        loader=PackageLoader("dse.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["explain"] = Explainer()
    environment.filters["source"] = linked
    data = tables.front_data(folder) if folder.items else None
    return environment.get_template("report.html").render(
        folder=folder,
        study=folder.study,
        lead=words.lead(folder),
        price_basis=words.price_basis(folder),
        workload=words.workload(folder),
        training=words.training(folder),
        cards=words.cards(folder),
        objectives=[(label(o["metric"]), o["direction"]) for o in folder.objectives],
        tallies=tables.tallies(folder),
        times=[(c.label, tables.time_rows(c)) for c in folder.chosen],
        memories=[(c.label, tables.memory_rows(c)) for c in folder.chosen],
        floors=tables.floor_rows(folder),
        certainty=tables.certainty_rows(folder),
        assumptions=tables.assumptions(folder),
        facts=tables.run_facts(folder),
        glossary=GLOSSARY,
        show=show,
        data=data,
        data_json=tables.script_json(data),
        page_json=tables.script_json(
            {
                "figures": figures(folder),
                "palette": PALETTE,
                "symbols": SYMBOLS,
                "table_rows": TABLE_ROWS,
                "drawn_points": DRAWN_POINTS,
            }
        ),
        plotly=get_plotlyjs(),
        script=_text("report.js"),
        style=_text("report.css"),
    )


class Explainer:
    """Marks the first use of each glossary word on a page with its meaning."""

    def __init__(self) -> None:
        terms = sorted(GLOSSARY, key=len, reverse=True)
        self.pattern = re.compile(
            r"\b(" + "|".join(re.escape(str(escape(term))) for term in terms) + r")\b",
            re.IGNORECASE,
        )
        self.meaning = {term.lower(): text for term, text in GLOSSARY.items()}
        self.seen: set[str] = set()

    def __call__(self, text: object) -> Markup:
        def mark(found: re.Match[str]) -> str:
            term = found[0].lower()
            if term in self.seen:
                return found[0]
            self.seen.add(term)
            return f'<abbr title="{escape(self.meaning[term])}">{found[0]}</abbr>'

        # Every part of the result is escaped: the text here, the meaning in `mark`.
        return Markup(self.pattern.sub(mark, str(escape(text))))  # noqa: S704


def linked(text: object) -> Markup:
    """A source: a link where it is a web address, else its text."""
    address = str(text)
    if re.fullmatch(r"https?://\S+", address):
        return Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(address)
    return escape(address)


def _text(name: str) -> str:
    return (files("dse.report") / "templates" / name).read_text(encoding="utf-8")
