"""The scores as a Markdown page, tables only: docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dse.report.accuracy_words import (
    COLUMNS,
    HEADER,
    HELD_HEADER,
    held_out_rows,
    percent,
    score_row,
    short,
    speed_words,
    worst_row,
)
from dse.report.markdown import code, escape

BY = {"chip": "By chip", "model": "By model", "backend": "By serving software"}
BY_HEADER = ("metric", "serving", "rows of", "groups", "rows", "group", "bias", "in 80%")


def accuracy_markdown(
    document: dict[str, Any],
    worst: Sequence[dict[str, Any]],
    lead: Sequence[str],
    command: str,
    pictures: Iterable[str],
) -> str:
    """The page. `document` is that of `dse validate --json`, `worst` the groups to name, `lead` the
    sentences that answer first, `command` what writes the page, `pictures`
    the files beside it that it shows."""
    scores = document["scores"]
    lines = ["# Accuracy", "", f"Written by {code(command)}.", ""]
    lines += [f"- {escape(sentence)}" for sentence in (*lead, *speed_words(document))]
    lines += ["", "## By metric", ""]
    lines += _table(HEADER, (score_row(item) for item in scores if item["by"] == "all"))
    lines += [escape(COLUMNS), ""]
    lines += [f"![{escape(name)}]({name})" for name in pictures]
    lines += [""]
    lines += ["## What the fit has seen", ""]
    if "cross_validation" not in document:
        lines += ["Not measured here: `--cross-validate` adds the error of held-out rows.", ""]
    else:
        lines += [
            "The tables above and below are in-sample: the constants that they use were fitted to "
            "rows of the same groups. Here each row is predicted by a fit that left out its group "
            "(the model on the chip), its chip, or its model; error by group. "
            "With nothing out it is the table above.",
            "",
            *_table(HELD_HEADER, held_out_rows(document)),
        ]
    if any(item["serving"] == "disaggregated" for item in scores):
        lines += ["No constant was fitted to disaggregated rows.", ""]
    lines += ["Kernel laws come from tables of kernels, which no row of this page enters.", ""]
    for by, title in BY.items():
        lines += [f"## {title}", ""]
        lines += _table(
            BY_HEADER,
            (
                (
                    short(item["metric"]), item["serving"], item["key"], f"{item['groups']:,}",
                    f"{item['rows']:,}", percent(item["group_median_error"]),
                    percent(item["bias"], sign=True), percent(item["interval_coverage"]),
                )
                for item in scores
                if item["by"] == by
            ),
        )  # fmt: skip
    lines += ["## Worst groups with 5 rows or more", ""]
    lines += _table(
        ("metric", "serving", "group", "rows", "median", "bias"), (worst_row(w) for w in worst)
    )
    lines += ["## One chip against another", "", "Pairs of rows that differ in the chip alone.", ""]
    lines += _table(
        ("chip", "over", "pairs", "measured speed", "predicted speed", "median error"),
        (
            (
                pair["chip_a"], pair["chip_b"], f"{pair['pairs']:,}", f"{pair['measured']:.2f}",
                f"{pair['predicted']:.2f}", percent(pair["median_error"]),
            )
            for pair in document["speed_up"]["chips"]
        ),
    )  # fmt: skip
    lines += ["## Not covered", ""]
    lines += _table(
        ("rows", "reason"),
        ((f"{item['rows']:,}", item["reason"]) for item in document["not_covered"]),
    )
    return "\n".join(lines).rstrip() + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [
        f"| {' | '.join(map(escape, head))} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows),
        "",
    ]
