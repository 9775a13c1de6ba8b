"""report.html: one file, nothing loaded from anywhere else."""

from __future__ import annotations

from dse.answer.glossary import GLOSSARY
from dse.answer.labels import label
from dse.answer.numbers import show
from dse.answer.palette import PALETTE, SYMBOLS
from dse.render import lifetime, prices, tables, words
from dse.render.cards import cards
from dse.render.elsewhere import compared, elsewhere_rows, refused
from dse.render.figures import figures
from dse.render.folder import StudyFolder
from dse.render.laws import law_figure, law_rows, law_sentences, regret_rows
from dse.render.page import PLOTLY, environment, explained, script_json, template_text
from dse.render.roofline import operators, roofline_figures, roofline_rows
from dse.render.sure import history_svg, sentences
from dse.render.views import view_figures, view_sections

TABLE_ROWS, PRINTED_ROWS = 200, 40
DRAWN_POINTS = 1_500
DRAWN_LINES = 600


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
        data_json=script_json(data),
        page_json=script_json(
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
