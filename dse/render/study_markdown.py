"""report.md: the same answer as text, for a terminal, a pull request or a mail."""

from __future__ import annotations

import html

from dse.answer.glossary import GLOSSARY
from dse.answer.labels import axis_title, label
from dse.answer.numbers import show
from dse.render import describe, lifetime, prices, tables, words
from dse.render.cards import cards
from dse.render.elsewhere import compared, elsewhere_rows, refused
from dse.render.folder import StudyFolder
from dse.render.laws import law_rows, law_sentences, regret_rows
from dse.render.markdown import code, escape, table
from dse.render.roofline import operators, roofline_rows
from dse.render.sure import sentences
from dse.render.views import about, design_rows, heading, law_view_rows, level_rows

FRONT_ROWS = 50
LONG = 300
SPLIT = (
    "Shape: layers × hidden size, query heads/KV heads. Split: replicas × (TP tensor, PP pipeline, "
    "DP attention data, EP expert parallel)."
)
ROOFLINE_HEAD = (
    "operator", "phase", "time", "FLOP per byte", "TFLOP/s", "roof, TFLOP/s", "share of the roof",
)  # fmt: skip


def markdown(folder: StudyFolder) -> str:
    """The report as GitHub-flavoured Markdown."""
    study = folder.study
    command = study.get("command")
    lines = [f"<!-- {html.escape(command)} -->", ""] if command else []
    lines += [f"# {escape(folder.title)}", ""]
    if study.get("description"):
        lines += [escape(study["description"]), ""]
    wanted = "; ".join(
        f"{'lowest' if o['direction'] == 'minimize' else 'highest'} {label(o['metric']).text}"
        for o in folder.objectives
    )
    limits = ", ".join(code(constraint["text"]) for constraint in study["constraints"]) or "none"
    lines += [
        f"- Prices: {escape(words.price_basis(folder))}",
        f"- Workload: {escape(words.workload(folder))}",
        *([f"- Training: {escape(words.training(folder))}"] if words.training(folder) else []),
        *(
            f"- {name}: {escape(text)}"
            for name, text in (
                ("Trained on", lifetime.training_words(study)),
                ("Forecast", lifetime.life_words(study)),
            )
            if text
        ),
        f"- Wanted: {escape(wanted)}",
        f"- Limits: {limits}",
    ]
    if study.get("left_out"):
        left = escape("; ".join(study["left_out"]))
        known = left if len(left) < LONG else "chips without a price or a figure, listed at the end"
        lines.append(f"- Left out: {known}")
    lines += ["", "## The answer", ""]
    for sentence in words.lead(folder):
        lines += [escape(sentence), ""]
    if folder.chosen:
        head, *rows = words.summary(folder)
        lines += table(head, rows)
    if loads := prices.load_rows(folder):
        lines += [escape(prices.load_sentence(study)), ""]
        lines += table(loads[0], loads[1:])
    for card in cards(folder):
        lines += [f"### {escape(card.title)} (point {card.point})", ""]
        lines += [f"- {heading}: {escape(' '.join(text))}" for heading, text in card.rows]
        lines += [f"- Reproduce: {code(card.command)}", ""]
        if card.workloads:
            lines += table(card.workloads[0], card.workloads[1:])
    lines += (
        _life(folder)
        + _views(folder)
        + _chosen(folder)
        + _laws(folder)
        + _front(folder)
        + _certainty(folder)
        + _inputs(folder)
    )
    return "\n".join(lines).rstrip() + "\n"


def _life(folder: StudyFolder) -> list[str]:
    """Training and serving together, by demand; nothing without a forecast."""
    found = lifetime.levels(folder.study)
    lines = ["## Over the model's whole life", ""] if found else []
    for sentence in lifetime.demand_sentences(folder.study):
        lines += [escape(sentence), ""]
    for level in found:
        lines += [f"### {escape(level['title'])}", "", "The cheapest design as demand grows:", ""]
        lines += table(lifetime.LEVEL_HEAD, level["designs"])
        lines += ["What it costs at each demand:", ""]
        lines += table(lifetime.demand_head(folder.study), level["demands"])
    return lines


def _views(folder: StudyFolder) -> list[str]:
    lines = []
    for view in folder.study.get("views") or ():
        lines += [f"## {escape(heading(view))}", "", escape(about(view)), ""]
        for head, *rows in filter(None, (level_rows(view), law_view_rows(view), design_rows(view))):
            lines += table(head, rows)
    return lines


def _chosen(folder: StudyFolder) -> list[str]:
    lines = []
    for chosen in folder.chosen:
        lines += [f"## Where the time goes: {escape(chosen.under)}", ""]
        lines += table(
            ("operator", "prefill of one prompt", "decode step", "bound", "efficiency"),
            (row.values() for row in tables.time_rows(chosen)),
        )
    for chosen in folder.chosen:
        if operators(chosen):
            lines += [f"## Under the roof of the chip: {escape(chosen.under)}", ""]
            lines += table(ROOFLINE_HEAD, roofline_rows(chosen))
    for chosen in folder.chosen:
        lines += [f"## Memory of one chip: {escape(chosen.under)}", ""]
        lines += table(("part", "size"), tables.memory_rows(chosen))
    if folder.chosen:
        lines += ["## Floor against prediction", ""]
        lines += table(
            ("point", "floor of the decode step", "prediction", "80% interval", "ratio"),
            (row.values() for row in tables.floor_rows(folder)),
        )
    for chosen in folder.chosen:
        found = elsewhere_rows(folder, chosen)
        if found:
            wanted = [label(o["metric"]).text for o in compared(folder, chosen)]
            lines += [f"## The same point on every chip: {escape(chosen.label)}", ""]
            lines += table(
                ("chip", "USD per chip-hour", *wanted, "does it?"),
                (
                    (row.chip, row.price, *(" ".join(v).strip() for v in row.values), row.verdict)
                    for row in found
                ),
            )
        if refused(chosen):
            lines += [f"Not evaluated: {escape(refused(chosen))}.", ""]
    if sure := sentences(folder.study):
        lines += ["## How sure is this front", ""]
        for sentence in sure:
            lines += [escape(sentence), ""]
    lines += ["## What the constraints removed", ""]
    evaluations = folder.study["evaluations"]
    lines += [
        f"Of {evaluations:,} evaluated designs. Violated counts every design over the limit; alone "
        "those that nothing else ruled out.",
        "",
    ]
    return lines + table(
        ("constraint", "meaning", "violated", "alone", "share of evaluated"),
        (
            (
                row["constraint"],
                row["meaning"],
                f"{row['violated']:,}",
                f"{row['only']:,}",
                f"{row['share']:.1%}",
            )
            for row in tables.tallies(folder)
            if row["violated"]
        ),
    )


def _laws(folder: StudyFolder) -> list[str]:
    said = law_sentences(folder.study)
    if not said:
        return []
    lines = ["## Does the answer depend on the law?", ""]
    for sentence in said:
        lines += [escape(sentence), ""]
    for head, *rows in filter(None, (regret_rows(folder), law_rows(folder))):
        lines += table(head, rows)
    laws = folder.study["laws"]
    if laws["depends"]:
        lines += [f"Searched: {escape(laws['searched'])}.", ""]
        lines += [f"- {escape(text)}" for text in laws["definitions"]] + [""]
        lines += [f"- {row['law']}: {escape(row['title'])}" for row in laws["compared"]] + [""]
    return lines


def _front(folder: StudyFolder) -> list[str]:
    if not folder.items:
        return []
    metrics = [o["metric"] for o in folder.objectives]
    total = len(folder.items)
    shown = tables.thin(folder, min(FRONT_ROWS, total))
    note = (
        f"{len(shown)} of {total:,} points, evenly along the front; front.csv has all."
        if total > FRONT_ROWS
        else "All of it is in front.csv too."
    )
    rows = (
        [
            item["point"],
            item["deployment"]["chip"],
            describe.short_split(item["deployment"]),
            describe.dtypes(item["deployment"]["weight_dtype"]),
            describe.short_shape(item["model"]),
            *(show(metric, item["metrics"].get(metric)) for metric in metrics),
            item["metrics"]["bottleneck"],
        ]
        for item in shown
    )
    head = ("point", "chip", "split", "weights", "shape", *map(axis_title, metrics), "bound by")
    return ["## The front", "", note, "", SPLIT, "", *table(head, rows)]


def _certainty(folder: StudyFolder) -> list[str]:
    lines = ["## Certainty", ""]
    for row in tables.certainty_rows(folder):
        shares = ", ".join(f"{text} {kind}" for kind, text, _ in row["shares"])
        lines += [f"### {escape(row['names'])}", ""]
        lines += [f"Kernel efficiencies behind the decode step's time: {shares}.", ""] * bool(
            shares
        )
        lines += table(
            ("metric", "predicted", "80% interval", "kind"), (m.values() for m in row["metrics"])
        )
    assumed = tables.assumptions(folder)
    if assumed:
        lines += ["Assumed:", "", *(f"- {escape(text)} ({escape(of)})" for text, of in assumed), ""]
    law = folder.study.get("law")
    if law:
        lines += [f"The quality law: {escape(law['name'])}.", ""]
        if law.get("extrapolated_share") is not None:
            lines += [
                f"{law['extrapolated_share']:.0%} of the front lies outside the range in which "
                "the law was fitted; there its loss is extrapolated. It was fitted on:",
                "",
            ]
        lines += [f"- {escape(text)}" for text in law["fit_range"]] + [""]
        if law.get("not_seen"):
            lines += ["The law does not see:", "", *(f"- {escape(t)}" for t in law["not_seen"]), ""]
        ends = [row for row in law.get("at_bounds", ()) if row["points"]]
        if ends:
            lines += ["Points of the front at the end of a range:", ""]
            lines += [f"- {r['points']:,}: {escape(r['bound'].replace('_', ' '))}" for r in ends]
            lines.append("")
    return lines


def _inputs(folder: StudyFolder) -> list[str]:
    study = folder.study
    lines = ["## Inputs, sources, versions", ""]
    lines += table(
        ("chip", "USD per chip-hour", "date", "rule", "note", "source"),
        (
            (
                row["chip"],
                show("chip_usd_per_hour", row["usd_per_chip_hour"]),
                *(row.get(key) or "" for key in ("date", "rule", "note", "source")),
            )
            for row in study["price"]["rows"]
        ),
    )
    for rows in (prices.part_rows(study), prices.input_rows(study)):
        if rows:
            lines += table(rows[0], rows[1:])
    lines += table(
        ("figure", "kind", "date", "source"),
        (
            [row.get(key) or "" for key in ("figure", "kind", "date", "source")]
            for row in study["sources"]
        ),
    )
    lines += [f"- {name}: {escape(value)}" for name, value in tables.run_facts(folder)]
    if study.get("left_out"):
        lines.append(f"- left out: {escape('; '.join(study['left_out']))}")
    lines += ["", "## Words", ""]
    return lines + [f"- {term}: {meaning}" for term, meaning in GLOSSARY.items()]
