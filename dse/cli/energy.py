"""Tables of energy that `dse explain` prints."""

from __future__ import annotations

from typing import Any

import click

from dse.cli.printing import print_table, say


def _joules(value: float) -> str:
    """`1.2 J`, `34 mJ`."""
    scale, unit = (1.0, "J") if value >= 1.0 else (1e3, "mJ")
    return f"{value * scale:.3g} {unit}"


def print_energy(found: dict[str, Any] | None) -> None:
    """Joules per output token by level, watts, and the share that moves data."""
    from dse.problem.words import show

    if found is None:
        click.echo("Energy: the chip has no power figure.")
        return
    rows = found["joules_per_output_token"]
    whole = sum(row["joules"] for row in rows)
    prefill, decode = (sum(row[phase] for row in rows) for phase in ("prefill", "decode"))

    def line(name: str, meaning: str, *joules: float) -> tuple[str, ...]:
        return (name, *map(_joules, joules), f"{joules[-1] / whole:.1%}", meaning)

    print_table(
        ("energy per output token", "prefill", "decode", "both", "share", "what it is"),
        [
            line(
                row["level"].replace("_", " "), row["meaning"],
                row["prefill"], row["decode"], row["joules"],
            )
            for row in rows
            if row["joules"]
        ]
        + [line("total", "", prefill, decode, whole)],
        right=(1, 2, 3, 4),
    )  # fmt: skip
    watts = found["watts_per_chip"]
    say(
        f"{found['data_movement_share']:.0%} of it moves data "
        f"({found['data_movement_share_above_idle']:.0%} of what is above idle). A chip draws "
        f"{watts['prefill']:.0f} W in prefill, {watts['decode']:.0f} W in a decode step, "
        f"{watts['mean']:.0f} W in the mean; {watts['idle']:.0f} W idle, at most "
        f"{watts['cap']:.0f} W.",
        "  ",
    )
    if found["clock"]["decode"] is not None:
        say(
            f"The cap leaves {found['clock']['prefill']:.0%} of the clock in prefill and "
            f"{found['clock']['decode']:.0%} in a decode step.",
            "  ",
        )
    if found["beyond_the_power"] > 0.005:
        say(
            f"The model draws {found['beyond_the_power']:.0%} more than that in a step: its own "
            "error, cut off.",
            "  ",
        )
    say(f"{show('tokens_per_joule', 1.0 / whole)} output tokens per joule.")


def print_by_batch(table: list[dict[str, Any]]) -> None:
    """Tokens per joule against the number of requests in flight."""
    from dse.problem.words import SHORT, show

    if not table:
        click.echo("Energy by batch: memory does not admit one request.")
        return
    names = (
        "output_tokens_per_s_per_chip", "tpot_s", "watts_per_chip", "joules_per_output_token",
        "tokens_per_joule", "energy_data_movement_share",
    )  # fmt: skip
    print_table(
        ("in flight", *(SHORT[name] for name in names), "bound by"),
        [
            (
                f"{row['concurrency']:,}",
                *(show(name, row[name]) for name in names),
                row["bottleneck"],
            )
            for row in table
        ],
        right=range(7),
    )
    first, best = table[0], max(table, key=lambda row: row["tokens_per_joule"] or 0.0)
    if first["tokens_per_joule"]:
        gain = best["tokens_per_joule"] / first["tokens_per_joule"]
        say(
            f"A joule makes most tokens at {best['concurrency']:,} in flight: {gain:.0f} times "
            f"those of {first['concurrency']}, for the same weights are read for all of them. "
            f"Beyond {table[-1]['concurrency']:,} in flight, requests wait for memory.",
            "  ",
        )
