"""The report of a study as an Answer: what report.html, report.md and the console show."""

from __future__ import annotations

from dataclasses import replace

from dse.answer.answer import Answer, Block, Explorer, Facts, Notes, Section
from dse.answer.glossary import GLOSSARY
from dse.answer.labels import label
from dse.questions.study import lifetime, tables, words
from dse.questions.study.cards import cards, workload_tables
from dse.questions.study.elsewhere import elsewhere_table
from dse.questions.study.figures import floor_figure, memory_figure, time_figures
from dse.questions.study.folder import StudyFolder
from dse.questions.study.laws import laws_section
from dse.questions.study.prices import load_tables, owned_tables
from dse.questions.study.roofline import roofline_section
from dse.questions.study.sure import history_figures, sentences
from dse.questions.study.views import view_sections

QUESTION = "report"  # its files are report.html and report.md
FRONT_ROWS = 50
TIME = (
    "Predicted time of the chosen points by operator, coloured and hatched by what bounds each: "
    "arithmetic (compute), chip memory (memory bandwidth), waiting for other chips (network), or "
    "launch and host work (fixed overhead). Prefill and decode are apart; the two scales differ."
)
OF_A_MIX = "Of several workloads, each point is shown under the one that takes most of its time."
MEMORY = (
    "What one chip holds, and the capacity it has (the line). Space left of the line is free: "
    "weights are the model, the KV cache grows with the requests in flight, activations are "
    "intermediate results, communication is the buffers of the links, runtime is the reserve that "
    "the serving software leaves for the driver and itself."
)
FLOOR = (
    "The floor is the time of a decode step if the chip ran at its peak arithmetic and full "
    "bandwidth and lost nothing: no software can go below it. The prediction adds the losses; its "
    "bar is the 80% interval, in which the truth is expected in four of five cases."
)
ELSEWHERE = (
    "Nothing but the chip changes: the same shape, split, dtypes and requests in flight, on every "
    "chip that has a price on this basis. × is against the point's own chip. A chip that comes out "
    "badly here may do well with a split of its own; a chip of the space had that chance, the "
    "others did not."
)
REMOVED = (
    "“Violated” counts every design over the limit; “alone” counts those that nothing else ruled "
    "out: the designs that come back when only this limit is lifted."
)
CERTAINTY = (
    "Each number carries where it comes from: measured on a device, fitted to measurements, "
    "derived from other figures, assumed with a reason, or extrapolated beyond the range of its "
    "law."
)


def study_answer(folder: StudyFolder) -> Answer:
    """Everything that the folder says, the answer first and the inputs last."""
    study = folder.study
    headline, *rest = words.lead(folder)
    loads = load_tables(folder)
    first: list[Block] = [words.summary(folder), *loads] if folder.chosen else []
    return Answer(
        question=QUESTION,
        title=folder.title,
        headline=headline,
        document=study,
        asked=words.asked(folder),
        sentences=rest,
        blocks=(
            Section("", [*first, *cards(folder), *workload_tables(folder)]),
            *view_sections(study),
            *_front(folder),
            *lifetime.lifetime_section(study),
            *_chosen(folder),
            *laws_section(folder),
            *_sure(folder),
            Section(
                "What the constraints removed",
                [tables.tallies(folder)],
                [f"Of {study['evaluations']:,} evaluated designs. {REMOVED}"],
                "constraints",
                on_console=False,
            ),
            _certainty(folder),
            Section("What was asked", [_asked(folder)], name="asked", on_console=False),
            _inputs(folder),
        ),
        command=study.get("command") or "",
        words=GLOSSARY,
    )


def _front(folder: StudyFolder) -> list[Explorer]:
    if not folder.items:
        return []
    return [Explorer(tables.front(folder, FRONT_ROWS), tables.front_data(folder))]


def _asked(folder: StudyFolder) -> Facts:
    study = folder.study
    wanted = "; ".join(
        f"{'lowest' if o['direction'] == 'minimize' else 'highest'} {known.text}"
        + (f" ({known.meaning})" if known.meaning else "")
        for o in folder.objectives
        for known in [label(o["metric"])]
    )
    rows = (
        ("The study", study.get("description") or ""),
        ("Prices", words.price_basis(folder)),
        ("Workload", words.workload(folder)),
        ("Training", words.training(folder)),
        ("Trained on", lifetime.training_words(study)),
        ("Forecast", lifetime.life_words(study)),
        ("Wanted", wanted),
        ("Limits", ", ".join(row["text"] for row in study["constraints"]) or "none"),
        ("Left out", "; ".join(study.get("left_out") or ())),
    )
    return Facts("The study", [row for row in rows if row[1]], on_console=False)


def _chosen(folder: StudyFolder) -> list[Section]:
    """Where time and memory of the chosen points go, and the same points on other chips."""
    if not folder.chosen:
        return []
    mix = [OF_A_MIX] if folder.study["workload"] is None else []
    operators = Section("The numbers", [tables.times(c) for c in folder.chosen], folded=True)
    parts = Section("The numbers", [tables.memories(folder)], folded=True)
    others = [elsewhere_table(folder, c) for c in folder.chosen if c.detail.get("elsewhere")]
    found = [
        Section("Where the time goes", [*time_figures(folder), operators], [TIME, *mix], "time"),
        *roofline_section(folder),
        Section("Memory against capacity", [memory_figure(folder), parts], [MEMORY], "memory"),
        Section(
            "Floor against prediction",
            [floor_figure(folder), tables.floors(folder)],
            [FLOOR],
            "floor",
        ),
        Section("The same point on every chip", others, [ELSEWHERE], "elsewhere"),
    ]
    return [replace(one, on_console=False) for one in found if one.blocks]


def _sure(folder: StudyFolder) -> list[Section]:
    said = sentences(folder.study)
    history = history_figures((folder.study.get("proof") or {}).get("history", ()))
    return [Section("How sure is this front", history, said, "sure")] if said else []


def _certainty(folder: StudyFolder) -> Section:
    blocks: list[Block] = []
    if folder.chosen:
        points = [tables.certainty(folder, chosen) for chosen in folder.chosen]
        blocks.append(Section("What the chosen points rest on", points, folded=True))
    if assumed := tables.assumptions(folder):
        blocks.append(Notes("Assumed", assumed))
    law = folder.study.get("law")
    if law:
        outside = law.get("extrapolated_share")
        said = [f"{law['name']}."]
        if outside is not None:
            said.append(
                f"{outside:.0%} of the front lies outside the range in which the law was fitted; "
                "there its loss is extrapolated."
            )
        said += [
            f"Outside the fitted range by {row['quantity'].replace('_', ' ')}: {row['share']:.0%} "
            "of the front."
            for row in law.get("extrapolated", ())
        ]
        ends = [
            f"{row['points']:,}: {row['bound'].replace('_', ' ')}"
            for row in law.get("at_bounds", ())
            if row["points"]
        ]
        listed = (
            ("The quality law", said),
            ("The law was fitted on", law["fit_range"]),
            ("The law does not see", law.get("not_seen", ())),
            ("Points of the front at the end of a range; a wider range may hold better ones", ends),
            ("Sources of the law", law.get("sources", ())),
        )
        blocks += [Notes(title, texts) for title, texts in listed if texts]
    return Section("Certainty", blocks, [CERTAINTY], "certainty", on_console=False)


def _inputs(folder: StudyFolder) -> Section:
    study = folder.study
    blocks: list[Block] = [tables.prices(study), *owned_tables(study)]
    blocks.append(Section("Figures and their sources", [tables.sources(study)], folded=True))
    blocks.append(Facts("The run", tables.run_facts(folder), on_console=False))
    beside = "Beside this report: front.csv (every point of the front), front.json, study.json."
    return Section("Inputs, sources, versions", blocks, [beside], "inputs", on_console=False)
