"""The report of a study as an Answer: what report.html, report.md and the console show."""

from __future__ import annotations

from collections.abc import Sequence

from dse.answer.answer import FULL, Answer, Block, Facts, Notes, Section
from dse.answer.labels import GLOSSARY, label
from dse.questions.study import tables, words
from dse.questions.study.cards import cards
from dse.questions.study.chosen import StudyFolder, landmark_tables
from dse.questions.study.decisions import change_section, decided
from dse.questions.study.explorer import explorer
from dse.questions.study.figures import floor_figure, importance_section, roof_figures, time_figures
from dse.questions.study.laws import laws_section, loss_runs_section
from dse.questions.study.lifetime import life_words, lifetime_section, training_words
from dse.questions.study.opening import opening
from dse.questions.study.systems import system_sections
from dse.questions.study.views import view_sections
from dse.questions.study.words import history_figures, sentences

QUESTION = "report"  # its files are report.html and report.md
TIME = (
    "Predicted time of the chosen points by operator, coloured and hatched by what bounds each: "
    "arithmetic (compute), chip memory (memory bandwidth), waiting for other chips (network), or "
    "launch and host work (fixed overhead). Prefill and decode are apart; the two scales differ."
)
OF_A_MIX = "Of several workloads, each point is shown under the one that takes most of its time."
POOLS = (
    "Workers of either pool, in the ratio in which their rates fit together: decode workers keep "
    "their batch, prefill workers are as few as bring what these take. Time goes by the steps of "
    "each phase on its own pool; memory is that of the decode pool."
)
ROOF = (
    "The roofline: how much arithmetic an operator does for each byte that it moves (its "
    "arithmetic intensity) sets the highest rate that the chip allows, which is the line. On the "
    "slope memory bandwidth is the limit, on the flat part arithmetic is. Each mark is an "
    "operator, larger where it takes more of its phase; its distance below the line is what the "
    "software loses. Circles are prefill, diamonds decode. Operators without arithmetic and those "
    "that wait for other chips are not here."
)
MEMORY = (
    "What one chip holds, and the capacity it has: weights are the model, the KV cache grows with "
    "the requests in flight, activations are intermediate results, communication is the buffers of "
    "the links, runtime is the reserve that the serving software leaves for the driver and itself."
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
DRAWS = (
    "A point is on the front in a share of draws (front_probability in front.csv): errors are "
    "drawn from the 80% intervals, in part alike for chips whose kernel laws have one origin. In "
    "the other draws a near neighbour takes its place."
)
BESIDE = "Beside this report: front.csv (every point of the front), front.json, study.json."


def study_answer(folder: StudyFolder) -> Answer:
    """Everything that the folder says, the answer first and the inputs last."""
    study, chosen = folder.study, folder.chosen
    headline, *rest = words.lead(folder)
    mixes = [tables.workloads(one) for one in chosen if one.item.get("workloads")]
    first = [
        *decided(folder),
        words.summary(folder),
        *landmark_tables(folder),
        *tables.average_loads(folder),
        *cards(folder),
        *mixes,
    ]
    removed = f"Of {study['evaluations']:,} evaluated designs. {REMOVED}"
    return Answer(
        question=QUESTION,
        title=folder.title,
        headline=headline,
        document=study,
        asked=words.asked(folder),
        sentences=rest,
        blocks=(
            *system_sections(study),
            Section("The front" if study.get("systems") else "", first, name=FULL),
            *change_section(folder),
            *view_sections(study),
            explorer(folder),
            *importance_section(study),
            *lifetime_section(study),
            *_chosen(folder),
            *laws_section(folder),
            *loss_runs_section(folder),
            *_sure(folder),
            *_part(
                "What the constraints removed", "constraints", [tables.tallies(folder)], removed
            ),
            *_part("Certainty", "certainty", _certainty(folder), CERTAINTY, DRAWS),
            *_part("What was asked", "asked", [_asked(folder)]),
            *_part("Inputs, sources, versions", "inputs", _inputs(folder), BESIDE),
        ),
        command=study.get("command") or "",
        words=GLOSSARY,
        opening=opening(folder),
        names=study.get("chips") or {},
    )


def _part(title: str, name: str, blocks: Sequence[Block], *about: str) -> list[Section]:
    """A section of the page and of report.md; none without a block."""
    return [Section(title, blocks, about, name, on_console=False)] if blocks else []


def _folded(title: str, blocks: Sequence[Block]) -> Section:
    return Section(title, blocks, folded=True)


def _chosen(folder: StudyFolder) -> list[Section]:
    """Where time and memory of the chosen points go, and the same points on other chips."""
    mix = [OF_A_MIX] if folder.study["workload"] is None else []
    times = [
        *time_figures(folder),
        _folded("The numbers", [tables.times(c) for c in folder.chosen]),
    ]
    drawn = roof_figures(folder)
    known = [tables.roof(one) for one in folder.chosen]
    under = [table for table in known if table.rows]
    memory = [tables.memories(folder)]
    floor = [floor_figure(folder), tables.floors(folder)]
    others = [tables.elsewhere(folder, c) for c in folder.chosen if c.detail.get("elsewhere")]
    roofs = [*drawn, _folded("The numbers", under)] if drawn else []
    pools = [table for one in folder.chosen for table in tables.pools(one)]
    return [
        *_part("Prefill and decode on pools of their own", "pools", pools, POOLS),
        *_part("Where the time goes", "time", times, TIME, *mix),
        *_part("Under the roof of the chip", "roofline", roofs, ROOF),
        *_part("Memory against capacity", "memory", memory, MEMORY),
        *_part("Floor against prediction", "floor", floor, FLOOR),
        *_part("The same point on every chip", "elsewhere", others, ELSEWHERE),
    ]


def _sure(folder: StudyFolder) -> list[Section]:
    """How near the front is to the true one; the answer itself says where it is that."""
    if folder.study["evaluations"] >= folder.study["size"]:
        return []
    said = sentences(folder.study)
    history = history_figures((folder.study.get("proof") or {}).get("history", ()))
    return [Section("How sure is this front", history, said, "sure")] if said else []


def _certainty(folder: StudyFolder) -> list[Block]:
    """What the chosen points rest on, what was assumed, and how far the quality law reaches."""
    points = [tables.certainty(folder, chosen) for chosen in folder.chosen]
    assumed: dict[str, list[str]] = {}
    for chosen in folder.chosen:
        for sentence in chosen.metrics.get("assumed", ()):
            assumed.setdefault(sentence, []).append(chosen.label)
    listed = {"Assumed": [f"{sentence} ({', '.join(of)})" for sentence, of in assumed.items()]}
    if law := folder.study.get("law"):
        outside = [
            f"{row['quantity'].replace('_', ' ')} {row['share']:.0%}"
            for row in law["extrapolated"]
            if row["share"]
        ]
        listed["The quality law"] = [
            f"{law['name']}.",
            f"{law['extrapolated_share']:.0%} of the front lies outside the range in which the law "
            "was fitted; there its loss is extrapolated."
            + (f" By quantity: {', '.join(outside)}." if outside else ""),
        ]
        listed["The law was fitted on"] = law["fit_range"]
        listed["The law does not see"] = law["not_seen"]
        listed["Points of the front at the end of a range; a wider range may hold better ones"] = [
            f"{row['points']:,}: {row['bound'].replace('_', ' ')}"
            for row in law["at_bounds"]
            if row["points"]
        ]
        listed["Sources of the law"] = law["sources"]
    notes = [Notes(title, texts) for title, texts in listed.items() if texts]
    return [_folded("What the chosen points rest on", points), *notes]


def _asked(folder: StudyFolder) -> Facts:
    study = folder.study
    wanted = [
        f"{words.extreme(objective)}{f' ({known.meaning})' if known.meaning else ''}"
        for objective in folder.objectives
        for known in [label(objective["metric"])]
    ]
    rows = (
        ("The study", study.get("description") or ""),
        ("Prices", words.price_basis(folder)),
        ("Workload", words.workload(folder)),
        ("Training", words.training(folder)),
        ("Trained on", training_words(study)),
        ("Forecast", life_words(study)),
        ("Wanted", "; ".join(wanted)),
        ("Limits", ", ".join(row["text"] for row in study["constraints"]) or "none"),
        ("Left out", "; ".join(study.get("left_out") or ())),
    )
    return Facts("The study", [row for row in rows if row[1]], on_console=False)


def _inputs(folder: StudyFolder) -> list[Block]:
    study = folder.study
    return [
        tables.prices(study),
        *tables.owned(study),
        _folded("Figures and their sources", [tables.sources(study)]),
        Facts("The run", tables.run_facts(study), on_console=False),
    ]
