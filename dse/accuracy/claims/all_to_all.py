"""Experts inside and across scale-up domains."""

from __future__ import annotations

import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.scale_up import subject
from dse.answer.numbers import digits, in_ms, percent, times
from dse.catalog import MEASUREMENTS, load_catalog
from dse.data import hardware_dir
from dse.questions.scale.experts import expert_answer, expert_domain

MODELS = ("deepseek-v3", "qwen3-235b-a22b", "kimi-k2")
CHIPS = ("h100_sxm", "h200_sxm", "b200_sxm", "gb200_nvl72", "gb300_nvl72")
SPECS = ("h100_sxm", "h200_sxm", "b200_sxm", "gb200_nvl72", "gb300_nvl72", "mi455x", "tpu_v7x")
EACH, UP_TO = 32, 288
MESSAGES = {
    32_768: "32 KiB (cold)",
    1_048_576: "1 MiB",
    134_217_728: "128 MiB",
    17_179_869_184: "16 GiB",
}


def find(given: Given) -> Measured:
    rows, slowdown, inside, across = [], [], [], []
    for model in MODELS:
        for chip in CHIPS:
            found = expert_answer(
                expert_domain(subject(model, chip), chips_up_to=UP_TO, requests_per_chip=EACH)
            )
            wide, near = found.widest, found.inside
            if wide is not None and wide.slowdown is not None:
                slowdown.append(wide.slowdown)
                across.append(wide.all_to_all_share)
            if near is not None:
                inside.append(near.all_to_all_share)
            rows.append(
                (
                    model,
                    chip,
                    "–" if near is None else f"{near.expert_parallel}",
                    "–" if near is None else percent(near.all_to_all_share),
                    "–" if wide is None else f"{wide.expert_parallel} in {wide.domains}",
                    "–" if wide is None else percent(wide.all_to_all_share),
                    "–" if wide is None else times(wide.slowdown),
                    "–"
                    if found.best is None
                    else f"{found.best.expert_parallel}, {in_ms(found.best.decode_step_s)}",
                )
            )
    measured, measured_table = _measured()
    figures: dict[str, float | None] = {
        "slowdown_least": min(slowdown),
        "slowdown_most": max(slowdown),
        "share_inside_most": max(inside),
        "share_across_least": min(across),
        "share_across_most": max(across),
    } | measured
    return Measured(figures, (rows, _specs(), measured_table))


def _measured() -> tuple[dict[str, float | None], Rows]:
    """All-reduce of B200 over one node and over four, by message."""
    table = pd.read_csv(hardware_dir() / MEASUREMENTS / "collectives.csv")
    table = table[(table["chip"] == "b200_sxm") & (table["collective"] == "all_reduce")]
    table = table[table["launch"].notna()]  # one series of one program
    near, far = (table[table["chips"] == n].groupby("bytes")["bus_gb_per_s"].max() for n in (8, 32))
    both = pd.concat([near, far], axis=1, keys=["near", "far"]).dropna()
    ratio = both["near"] / both["far"]
    # The time of an all-reduce over n chips is 2 (n - 1) / n bytes over the bus bandwidth.
    slower = ratio * (31.0 / 32.0) / (7.0 / 8.0)
    shown = [size for size in MESSAGES if size in slower.index]
    rows = tuple(
        (
            name,
            digits(float(both["near"][size])),
            digits(float(both["far"][size])),
            times(float(ratio[size])),
            times(float(slower[size])),
        )
        for size, name in MESSAGES.items()
        if size in shown
    )
    figures: dict[str, float | None] = {
        f"measured_all_reduce_slowdown_{size}": float(slower[size]) for size in shown
    }
    return figures, rows


def _specs() -> Rows:
    catalog, rows = load_catalog(), []
    for chip in SPECS:
        near, far = (catalog.systems[catalog.chips[chip].system].levels[k] for k in (0, -1))
        ratio = near.bytes_per_s_per_direction / far.bytes_per_s_per_direction
        rows.append(
            (
                chip,
                str(near.size or "–"),
                digits(near.bytes_per_s_per_direction / 1e9),
                digits(far.bytes_per_s_per_direction / 1e9),
                times(ratio),
            )
        )
    return rows
