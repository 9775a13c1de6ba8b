"""The rows of `benchmarks.search` as Markdown: the tables that it prints, and their summary in
docs/search.md."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from dse.questions.study.report import percent

Row = dict[str, Any]


LOCAL, WHOLE = "pareto-local", "exhaustive"


def summary(rows: Sequence[Row]) -> str:
    """A line a space: the share of the hypervolume that each engine reaches, the worst of its
    seeds, and what the local search evaluates and takes."""
    found = [row for row in rows if row["part"] == "engines"]
    engines = [one for one in dict.fromkeys(row["engine"] for row in found) if one != WHOLE]
    parts = [
        *_head(
            "space",
            "points",
            *(f"`{engine}`" for engine in engines),
            "points evaluated",
            f"CPU s (`{WHOLE}`)",
        )
    ]
    for space in dict.fromkeys(row["space"] for row in found):
        mine = {
            engine: [row for row in found if (row["space"], row["engine"]) == (space, engine)]
            for engine in (*engines, WHOLE)
        }
        local, points = mine.get(LOCAL, []), next(r["points"] for r in found if r["space"] == space)
        name, _, part = space.partition("@")
        cpu = [
            f"{_mean(mine[one], 'cpu_s'):.1f}" if mine.get(one) else "–" for one in (LOCAL, WHOLE)
        ]
        parts.append(
            _row(
                f"{name}{', a part' if part else ''}",
                f"{points:,}",
                *(percent(min(r["share"] for r in mine[e])) if mine[e] else "–" for e in engines),
                f"{_mean(local, 'evaluations') / points:.1%}" if local else "–",
                f"{cpu[0]} ({cpu[1]})",
            )
        )
    if alone := [row for row in rows if row["part"] == "agreement"]:
        parts += ["", _agreed(alone)]
    return "\n".join(parts)


def tables(rows: Sequence[Row]) -> str:
    """Three tables: engines, restarts on a space too large to enumerate, growth."""
    day = datetime.now(UTC).date().isoformat()
    parts = [f"Measured on {day}, {platform.machine()}, Python {platform.python_version()}."]
    if found := [row for row in rows if row["part"] == "engines"]:
        parts += [*_engines(found)]
    if found := [row for row in rows if row["part"] == "agreement"]:
        parts += _agreement(found)
    if found := [row for row in rows if row["part"] in ("growth", "budget")]:
        parts += _growth(found)
    return "\n".join(parts)


def _engines(rows: Sequence[Row]) -> Iterable[str]:
    yield ""
    yield "Share and epsilon: the worst of the seeds; else means."
    yield from _head(
        "space (points, true front)",
        "engine",
        "seeds",
        "trials",
        "evaluations",
        "of the points",
        "share of hypervolume",
        "epsilon",
        "CPU s",
        "wall s",
    )
    for space in dict.fromkeys(row["space"] for row in rows):
        first = True
        for engine in dict.fromkeys(row["engine"] for row in rows if row["space"] == space):
            mine = [row for row in rows if (row["space"], row["engine"]) == (space, engine)]
            one = mine[0]
            name, _, part = space.partition("@")
            title = f"{name}{', a part' if part else ''} ({one['points']:,}, {one['true_front']:,})"
            epsilons = [row["epsilon"] for row in mine]
            evaluations = _mean(mine, "evaluations")
            yield _row(
                title if first else "",
                f"`{engine}`",
                str(len(mine)),
                f"{_mean(mine, 'trials'):,.0f}",
                f"{evaluations:,.0f}",
                f"{evaluations / one['points']:.2%}",
                percent(min(row["share"] for row in mine)),
                "–" if None in epsilons else f"{max(epsilons):.2g}",
                f"{_mean(mine, 'cpu_s'):.1f}",
                f"{_mean(mine, 'seconds'):.1f}",
            )
            first = False


def _agreement(rows: Sequence[Row]) -> Iterable[str]:
    yield ""
    yield _agreed(rows)
    yield from _head("search", "evaluations", "front", "share of the union", "CPU s", "wall s")
    for row in rows:
        yield _row(
            str(row["unit"] + 1),
            f"{row['evaluations']:,}",
            f"{row['front']:,}",
            percent(row["share"]),
            f"{row['cpu_s']:.1f}",
            f"{row['seconds']:.1f}",
        )


def _agreed(rows: Sequence[Row]) -> str:
    one = rows[0]
    return (
        f"The whole of {one['space']}, {one['points']:,} points: {len(rows)} searches that share "
        f"nothing, against the {one['union']:,} points of their union; "
        f"{sum(row['cpu_s'] for row in rows):.0f} CPU s, "
        f"{sum(row['seconds'] for row in rows):.0f} wall s together. The least share of the union "
        f"that one reached: {percent(min(row['share'] for row in rows))}."
    )


def _growth(rows: Sequence[Row]) -> Iterable[str]:
    yield ""
    yield (
        "How cost grows, on parts of shape-for-nvl72 and, by evaluations, on the whole. Growth is "
        "the factor in CPU seconds over that in points (evaluations where these are given)."
    )
    yield from _head("engine", "points", "evaluations", "CPU s", "wall s", "growth")
    before: Row | None = None
    for row in sorted(rows, key=lambda row: (row["part"], row["engine"], row["asked"])):
        growth = "–"
        if before is not None and (before["part"], before["engine"]) == (
            row["part"],
            row["engine"],
        ):
            of = "evaluations" if row["part"] == "budget" else "points"
            growth = (
                f"{row['cpu_s'] / before['cpu_s']:.1f} for {row[of] / before[of]:.1f} "
                f"times the {of}"
            )
        yield _row(
            f"`{row['engine']}`",
            f"{row['points']:,}",
            f"{row['evaluations']:,}",
            f"{row['cpu_s']:.1f}",
            f"{row['seconds']:.1f}",
            growth,
        )
        before = row


def _mean(rows: Sequence[Row], key: str) -> float:
    return sum(row[key] for row in rows) / len(rows)


def _head(*titles: str) -> Iterable[str]:
    yield ""
    yield _row(*titles)
    yield _row(*("---" for _ in titles))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
