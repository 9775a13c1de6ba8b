"""report.html: one file, nothing loaded from anywhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dse.render import lifetime, prices, tables, words
from dse.render.cards import cards
from dse.render.elsewhere import compared, elsewhere_rows, refused
from dse.render.figures import PALETTE, SYMBOLS, figures
from dse.render.folder import StudyFolder
from dse.render.labels import GLOSSARY, label, show
from dse.render.laws import law_figure, law_rows, law_sentences, regret_rows
from dse.render.roofline import operators, roofline_figures, roofline_rows
from dse.render.sure import history_svg, sentences
from dse.render.views import view_figures, view_sections

# The bundle of plotly.js that draws scatters and bars, as published, without maps and surfaces.
PLOTLY = "plotly-basic.min.js"
TABLE_ROWS, PRINTED_ROWS = 200, 40
DRAWN_POINTS = 1_500
DRAWN_LINES = 600
# Elements whose text is no prose: it is copied, clicked or already an explanation.
UNEXPLAINED = ("a", "abbr", "b", "button", "code", "h1", "select", "summary")


def page(folder: StudyFolder) -> str:
    """The whole page as HTML."""
    data = tables.front_data(folder) if folder.items else None
    template = environment().get_template("report.html")
    text = template.render(
        folder=folder,
        study=folder.study,
        lead=words.lead(folder),
        summary=words.summary(folder),
        mix=folder.study["workload"] is None,
        price_basis=words.price_basis(folder),
        price_parts=prices.part_rows(folder.study),
        price_inputs=prices.input_rows(folder.study),
        load_rows=prices.load_rows(folder),
        load_sentence=prices.load_sentence(folder.study),
        workload=words.workload(folder),
        training=words.training(folder),
        trained_on=lifetime.training_words(folder.study),
        life=lifetime.life_words(folder.study),
        demand_sentences=lifetime.demand_sentences(folder.study),
        levels=lifetime.levels(folder.study),
        level_head=lifetime.LEVEL_HEAD,
        demand_head=lifetime.demand_head(folder.study),
        cards=cards(folder),
        objectives=[(label(o["metric"]), o["direction"]) for o in folder.objectives],
        tallies=tables.tallies(folder),
        sure=sentences(folder.study),
        sure_picture=history_svg((folder.study.get("proof") or {}).get("history", ())),
        views=view_sections(folder.study),
        law_sentences=law_sentences(folder.study),
        law_rows=law_rows(folder),
        regret_rows=regret_rows(folder),
        law_plot=bool(law_figure(folder)),
        times=[(c.under, tables.time_rows(c)) for c in folder.chosen],
        memories=[(c.under, tables.memory_rows(c)) for c in folder.chosen],
        roofs=[
            {
                "id": f"roof-{k}",
                "names": c.under,
                "chip": c.item["deployment"]["chip"],
                "rows": roofline_rows(c),
            }
            for k, c in enumerate(folder.chosen)
            if operators(c)
        ],
        elsewheres=[
            (
                c.label,
                [label(o["metric"]) for o in compared(folder, c)],
                elsewhere_rows(folder, c),
                refused(c),
            )
            for c in folder.chosen
            if c.detail.get("elsewhere")
        ],
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
                "figures": figures(folder)
                | lifetime.demand_figure(folder.study)
                | roofline_figures(folder)
                | law_figure(folder)
                | view_figures(folder),
                "palette": PALETTE,
                "symbols": SYMBOLS,
                "table_rows": TABLE_ROWS,
                "printed_rows": PRINTED_ROWS,
                "drawn_points": DRAWN_POINTS,
                "drawn_lines": DRAWN_LINES,
            }
        ),
        plotly=template_text(PLOTLY),
        script=template_text("common.js", "parallel.js", "report.js"),
        style=template_text("report.css"),
    )
    return explained(text, GLOSSARY)


def answer_page(
    template: str,
    glossary: Mapping[str, str],
    *,
    plots: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    data: Any = None,
    script: str = "scale.js",
    **values: Any,
) -> str:
    """A page of one answer as HTML: `template` with `values`, its words explained by `glossary`.
    `plots` by the id of their element are what its `script` draws, `settings` and the rows of
    `data` what it reads beside them."""
    text = (
        environment()
        .get_template(template)
        .render(
            **values,
            glossary=glossary,
            plotly=template_text(PLOTLY) if plots or settings else "",
            data_json=tables.script_json(data),
            page_json=tables.script_json({"figures": plots, **(settings or {})}),
            script=template_text("common.js", script),
            style=template_text("report.css"),
        )
    )
    return explained(text, glossary)


def heads(drawn: Mapping[str, tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """What a page that extends answer.html says of each of {id: (title, figure)}."""
    return [
        {"id": name, "title": title, "height": figure["layout"]["height"]}
        for name, (title, figure) in drawn.items()
    ]


def explained(text: str, glossary: Mapping[str, str]) -> str:
    """A page with the first use of each word of a glossary marked, from its header on."""
    start, end = text.index("<header>"), text.index("</main>")
    return text[:start] + Explainer(glossary).page(text[start:end]) + text[end:]


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
    return made


class Explainer:
    """Marks the first use of each glossary word on a page with its meaning."""

    def __init__(self, glossary: Mapping[str, str] = GLOSSARY) -> None:
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
                parts[i] = part if inside else self._marked(part)
                continue
            tag = part.strip("</>").split()[0]
            if part.startswith("</"):
                if inside and inside[-1] == tag:
                    inside.pop()
            elif tag in UNEXPLAINED or inside[-1:] == [tag] or 'class="glossary"' in part:
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
