"""Experts inside and across scale-up domains."""

from __future__ import annotations

import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows, ends
from dse.accuracy.claims.scale_up import subject
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
            wide, near, best = found.widest, found.inside, found.best
            if wide is not None and wide.slowdown is not None:
                slowdown.append(wide.slowdown)
                across.append(wide.all_to_all_share)
            if near is not None:
                inside.append(near.all_to_all_share)
            rows.append(
                (
                    *(model, chip),
                    *((near.expert_parallel, near.all_to_all_share) if near else (None, None)),
                    (wide.expert_parallel, wide.domains) if wide else None,
                    *((wide.all_to_all_share, wide.slowdown) if wide else (None, None)),
                    (best.expert_parallel, best.decode_step_s) if best else None,
                )
            )
    measured, measured_table = _measured()
    figures = {
        **ends("slowdown", slowdown),
        "share_inside_most": max(inside),
        **ends("share_across", across),
        **measured,
    }
    return Measured(figures, (rows, _specs(), measured_table))


def _measured() -> tuple[dict[str, float], Rows]:
    """All-reduce of B200 over one node and over four, by message."""
    table = pd.read_csv(hardware_dir() / MEASUREMENTS / "collectives.csv")
    table = table[(table["chip"] == "b200_sxm") & (table["collective"] == "all_reduce")]
    table = table[table["launch"].notna()]  # one series of one program
    near, far = (table[table["chips"] == n].groupby("bytes")["bus_gb_per_s"].max() for n in (8, 32))
    both = pd.concat([near, far], axis=1, keys=["near", "far"]).dropna()
    both["ratio"] = both["near"] / both["far"]
    # The time of an all-reduce over n chips is 2 (n - 1) / n bytes over the bus bandwidth.
    both["slower"] = both["ratio"] * (31.0 / 32.0) / (7.0 / 8.0)
    shown = both.loc[[size for size in MESSAGES if size in both.index]]
    figures = {
        f"measured_all_reduce_slowdown_{size}": float(slower)
        for size, slower in shown["slower"].items()
    }
    rows = [(MESSAGES[size], *row) for size, *row in shown.itertuples(name=None)]
    return figures, rows


def _specs() -> Rows:
    catalog, rows = load_catalog(), []
    for chip in SPECS:
        near, far = (catalog.systems[catalog.chips[chip].system].levels[k] for k in (0, -1))
        rates = near.bytes_per_s_per_direction, far.bytes_per_s_per_direction
        rows.append((chip, near.size or None, *rates, rates[0] / rates[1]))
    return rows
