"""The scores as a Markdown page with pictures: `python -m tools.accuracy_page docs/accuracy.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dse.accuracy import measurements
from dse.accuracy.ask import held_out, predicted
from dse.accuracy.present import BY, WORST
from dse.accuracy.targets import (
    BACKTEST_HEADER,
    CHOICES,
    TARGET_HEADER,
    backtest_rows,
    backtest_words,
    target_rows,
)
from dse.accuracy.words import (
    COLUMNS,
    HEADER,
    HELD_HEADER,
    SPEED_HEADER,
    WORST_HEADER,
    held_out_rows,
    lead,
    score_row,
    short,
    speed_rows,
    speed_words,
    worst_row,
)
from dse.answer.numbers import tenths
from dse.files import write_text
from dse.render.markdown import code, escape
from tools.accuracy_svg import pictures

# What the tables by chip, model and software show: a column each.
SHOWN = (
    ("tpot_s", "continuous"),
    ("ttft_s", "continuous"),
    ("output_tokens_per_s", "offline"),
    ("tokens_per_s_per_chip", "pretrain"),
)


def accuracy_markdown(
    document: dict[str, Any],
    worst: Sequence[dict[str, Any]],
    said: Sequence[str],
    command: str,
    drawn: Iterable[str],
) -> str:
    """The page. `document` is that of `dse validate --json`, `worst` the groups to name, `said` the
    sentences that answer first, `command` what writes the page, `drawn` the files beside it that
    it shows."""
    scores = document["scores"]
    lines = ["# Accuracy", "", f"Written by {code(command)}.", ""]
    lines += [f"- {escape(sentence)}" for sentence in (*said, *speed_words(document))]
    lines += ["", "## By metric", ""]
    lines += _table(HEADER, (score_row(item) for item in scores if item["by"] == "all"))
    lines += [escape(COLUMNS), ""]
    lines += [f"![{escape(name)}]({name})" for name in drawn]
    lines += [""]
    lines += _targets(document)
    lines += _seen(document)
    lines += _backtest(document)
    lines += [
        "## By chip, model and software",
        "",
        "Error of the groups, as above. `dse validate --out DIR` writes every metric, with bias "
        "and intervals.",
        "",
    ]
    for by in BY:
        lines += _table((by, *(f"{short(m)} {serving}" for m, serving in SHOWN)), _by(scores, by))
    lines += ["## Worst groups with 5 rows or more", ""]
    lines += _table(WORST_HEADER, map(worst_row, worst))
    lines += ["## One chip against another", "", "Pairs of rows that differ in the chip alone.", ""]
    lines += _table(SPEED_HEADER, speed_rows(document))
    lines += ["## Not covered", ""]
    lines += _table(
        ("rows", "reason"),
        ((f"{item['rows']:,}", item["reason"]) for item in document["not_covered"]),
    )
    return "\n".join(lines).rstrip() + "\n"


def _by(scores: Sequence[dict[str, Any]], by: str) -> list[tuple[str, ...]]:
    """A row a chip, model or software: the error of each metric that is SHOWN."""
    found = {
        (item["key"], item["metric"], item["serving"]): tenths(item["group_median_error"])
        for item in scores
        if item["by"] == by and (item["metric"], item["serving"]) in SHOWN
    }
    keys = sorted({key for key, _, _ in found})
    return [(key, *(found.get((key, *shown), "–") for shown in SHOWN)) for key in keys]


def _targets(document: dict[str, Any]) -> list[str]:
    if "cross_validation" not in document:
        return []
    return [
        "## Targets",
        "",
        "What the project set out to reach, the worst missed first. What counts is the worst of "
        "the ways to hold rows out (below) or the one that is named, or the model as it is where "
        "no constant was fitted to such rows. Held-out figures over several metrics are without "
        "disaggregated rows.",
        "",
        *_table(TARGET_HEADER, target_rows(document)),
    ]


def _seen(document: dict[str, Any]) -> list[str]:
    lines = ["## What the fit has seen", ""]
    if "cross_validation" not in document:
        return [
            *lines,
            "Not measured here: `dse validate --cross-validate` adds the error of held-out rows.",
            "",
        ]
    return [
        *lines,
        "- Kernel laws come from tables of kernels, which no row of this page enters; their own "
        "errors (efficiency.md) are in-sample.",
        "- The factors on them and on the backends (`hardware/efficiency/serving/calibration.yaml`)"
        " are fitted to the static, continuous and offline rows of this page. For these, every "
        "figure of the page is in-sample, except those marked as held out and those of the day of "
        "purchase.",
        "- The 80% intervals are the narrowest that hold 80% of rows whose source was left out of "
        "the fit, but of these very rows, so their share inside is in-sample too. In the held-out "
        "tables a row's interval comes from the other folds alone.",
        "- The constants of the training stacks (`hardware/training/`) are fitted to the training "
        "rows, except whole runs in chip-hours (training-accuracy.md).",
        "- No constant was fitted to disaggregated rows.",
        "",
        "Here each row is predicted by a fit that left out its group (the model on the chip), its "
        "chip, its model, its backend or its source (a repository or campaign); error by group.",
        "",
        *_table(HELD_HEADER, held_out_rows(document)),
        "Some choices were made while looking at these rows, and no fold undoes them:",
        "",
        *(f"- {escape(choice)}" for choice in CHOICES),
        "",
        "So a new model or chip may do worse than a fold says.",
        "",
    ]


def _backtest(document: dict[str, Any]) -> list[str]:
    if "backtest" not in document:
        return []
    cases = document["backtest"]
    return [
        "## On the day of purchase",
        "",
        "A new chip as it would have been predicted before anybody measured it: with the kernel "
        "laws of an older chip as fractions of its own data sheet (*derived*), or of a class "
        "(*assumed*), and with factors and intervals that have seen no row of its family. A format "
        "that the older chip does not compute in takes the fractions of fp8. `class_gpu` is the "
        "median of NVIDIA's chips, later ones among them; `class_mi300x` has in addition the "
        "chip's best published matrix product, and AMD's times of all-reduces, experts and "
        "block-scaled products. Forms, backend files and the choices above are today's. Beside it, "
        "today's fit with the chip's own kernel laws and without its serving rows.",
        "",
        *_table(BACKTEST_HEADER, backtest_rows(cases)),
        *(f"- {escape(line)}" for line in backtest_words(cases)),
        "",
        "Intervals of derived and assumed laws are those of fitted ones, widened by how much "
        "farther rows with such laws were off: derived ones by Qwen3.5 and gpt-oss, whose kernels "
        "are borrowed (without Blackwell three groups, far off), assumed ones by Trainium, Gaudi "
        "2, TPU v4 and MI300X too. "
        "Nothing in them was tuned to this table.",
        "",
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [
        f"| {' | '.join(map(escape, head))} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows),
        "",
    ]


def main(path: Path) -> None:
    """Scores of the shipped rows, held-out ones among them, as `path` and pictures beside it."""
    answer = predicted(None, None)
    document = measurements.accuracy(answer)
    document |= held_out(answer, None, None, lambda text: print(text, file=sys.stderr))
    scored = answer[answer["status"] == "ok"]
    drawn = {
        f"{path.stem}-{name}.svg": picture
        for name, picture in pictures(document["scores"], scored).items()
    }
    for name, picture in drawn.items():
        write_text(path.parent, name, picture)
    worst = measurements.worst_groups(answer)[:WORST]
    command = f"python -m tools.accuracy_page {path}"
    text = accuracy_markdown(document, worst, lead(document, None), command, drawn)
    write_text(path.parent, path.name, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
