"""From a bench to the files and the answer of `dse calibrate`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dse.answer.answer import Answer
from dse.answer.frames import of_rows
from dse.answer.numbers import time
from dse.catalog import load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.measure import files, laws
from dse.measure.session import Session
from dse.measure.work import Device
from dse.schema.chip import ROOFLINE
from dse.schema.dtypes import ARITHMETIC
from dse.schema.efficiency import NOISY, Efficiency, load_efficiency

# Whose laws stand for what was not measured on a device that the catalog does not have.
CLASSES = {"cpu": "class_accelerator", "cuda": "class_gpu", "rocm": "class_amd"}
# Measured over catalog: outside, the device is hardly the chip that was named.
PLAUSIBLE = (0.3, 1.05)
TOP_FIXED_US = {"cuda": 300.0, "cpu": 3000.0}  # where a fit of the fixed cost ends


@dataclass(frozen=True, slots=True)
class Target:
    """The chip that the laws are of. `peaks` (operations a second by format), `bandwidth` and
    `link` (bytes a second) are the catalog's; empty or None for a device that it does not have."""

    id: str
    new: bool
    parent: Efficiency
    peaks: Mapping[str, float]
    bandwidth: float | None
    link: float | None


def target(device: Device, chip: str | None, new_chip: str | None) -> Target:
    """The chip that is meant: named, new, or found by the device's name. Raises InputError where
    the catalog has no chip of that name, or several."""
    catalog = load_catalog()  # as shipped, without laws that were measured before
    if new_chip is not None:
        if new_chip in catalog.chips:
            raise InputError(
                f"{new_chip!r} is a chip of the catalog",
                field="--new-chip",
                accepted=f"an id of its own, or --chip {new_chip}",
            )
        if not new_chip.replace("_", "").replace("-", "").isalnum():
            raise InputError(
                f"read {new_chip!r}", field="--new-chip", accepted="letters, digits, _ and -"
            )
        return _new(device, new_chip)
    if chip is None and device.kind == "cpu":
        return _new(device, "my_cpu")
    if chip is None:
        found = files.chips_named(device.name, catalog.chips)
        if len(found) != 1:
            near = f"--chip {' or '.join(found)}, or " if found else "--chip ID, or "
            raise InputError(
                f"which chip is this? PyTorch calls it {device.name!r}",
                accepted=f"{near}--new-chip NAME for one that the catalog does not have",
            )
        chip = found[0]
    spec = catalog.chip(chip)
    spec.require(*ROOFLINE)
    extra = {
        name: figure.value
        for name in ("fp16", "fp32")
        if (figure := spec.figure(f"peak_{name}")) is not None
    }
    link = catalog.systems[spec.system].levels[0].bytes_per_s_per_direction
    return Target(
        chip,
        False,
        catalog.efficiencies[spec.efficiency],
        {**spec.peak_flops_per_s, **extra},
        spec.memories[0].bytes_per_s,
        None if math.isnan(link) else link,
    )


def _new(device: Device, name: str) -> Target:
    kind = "rocm" if "ROCm" in device.driver else device.kind
    laws = load_efficiency(hardware_dir() / "efficiency" / f"{CLASSES[kind]}.yaml")
    return Target(name, True, laws, {}, None, None)


@dataclass(frozen=True, slots=True)
class Calibration:
    """`texts`: the content of each file by its name."""

    texts: Mapping[str, str]
    answer: Answer


def calibrate(
    session: Session,
    dtypes: Sequence[str],
    to: Target,
    out: Path,
    date: str,
    collectives: pd.DataFrame | None = None,
) -> Calibration:
    """Measures and fits. `out`: the path of the efficiency file; `collectives`: rows of
    `dse.measure.collectives.measure`."""
    device = session.bench.device
    points = laws.table(session.measure(dtypes))
    rates, memory = laws.reached(points)
    if "bf16" not in rates or not memory:
        reason = session.skipped[0][1] if session.skipped else "no time for one"
        raise InputError(f"{device.name}: no GEMM in bf16, or no copy, could be run: {reason}")
    peaks = {**rates, **to.peaks}
    bandwidth = to.bandwidth or max(memory.values())
    fits = laws.fits(points, peaks, bandwidth, device.software, TOP_FIXED_US[device.kind])
    measured, link, note = _links(to, collectives, device)
    noise = float(points.spread.median())
    run = {
        "device": device.name,
        "devices": str(device.count),
        "host": device.host,
        "software": device.software,
        "driver": device.driver,
        "date": date,
        "grid": session.effort.name,
        "seed": str(session.seed),
        "points": str(len(points)),
        "timer": device.timer,
        "noise": f"{noise:.3f}",
    }
    own = {dtype: peak for dtype, peak in peaks.items() if dtype in to.peaks or to.new}
    complete = files.complete(fits, to.parent, own)
    tables = files.collectives(measured, note, to.parent)
    padding = to.parent.expert_padding_rows
    text = files.efficiency_file(to.id, run, complete, padding, tables, own, bandwidth)
    csv = points
    if collectives is not None:
        rows = collectives.rename(columns={"operation": "operator"})
        csv = pd.concat([points, rows.assign(dtype="bf16", role="grid")])
    texts = {
        out.name: text,
        f"{out.stem}.csv": csv.to_csv(index=False, float_format="%.6g", lineterminator="\n"),
    }
    chip_name = None
    if to.new:
        chip_name = f"{to.id}.yaml" if out.name != f"{to.id}.yaml" else f"{to.id}_chip.yaml"
        together = None
        if link is not None and collectives is not None:
            together = (int(collectives.devices.max()), link)
        texts[chip_name] = files.chip_file(to.id, device, date, rates, memory, together)
    kind = "measured" if to.new else "catalog"
    refused = Counter((work.operator, work.dtype, reason) for work, reason in session.skipped)
    document = {
        "id": to.id,
        "new_chip": to.new,
        "provenance": run,
        "efficiency_file": str(out),
        "points_file": str(out.with_suffix(".csv")),
        "chip_file": None if chip_name is None else str(out.parent / chip_name),
        "gemm": [
            {"dtype": d, "flops_per_s": rate, "divided_by": peaks[d],
             "divided_by_kind": "catalog" if d in to.peaks else "measured"}
            for d, rate in rates.items()
        ],
        "memory": [
            {"kernel": name, "bytes_per_s": rate, "divided_by": bandwidth, "divided_by_kind": kind}
            for name, rate in memory.items()
        ],
        "fits": [fit | {"in_file": fit["dtype"] in ARITHMETIC} for fit in fits],
        "collectives": [
            {"operation": name, "devices": n, **row}
            for name, rows in measured.items() for n, row in rows.items()
        ],
        "penalties": laws.penalties(points),
        "not_measured": [
            {"operator": operator, "dtype": dtype, "kind": row["kind"], "note": row["note"]}
            for operator, table in complete.items() for dtype, row in table.items()
            if row["kind"] != "fitted"
        ] + [
            {"operator": name, "dtype": None, "kind": kind, "note": note}
            for name, (kind, note) in tables[1].items() if kind != "fitted"
        ],
        "warnings": _warnings(to, rates, memory, noise),
        "points": len(points),
        "skipped": [
            {"operator": operator, "dtype": dtype, "works": count, "reason": reason}
            for (operator, dtype, reason), count in refused.items()
        ],
        "median_spread": round(noise, 3),
        "seconds": round(session.clock() - session.started, 1),
    }  # fmt: skip
    return Calibration(texts, answer(document))


def _links(
    to: Target, rows: pd.DataFrame | None, device: Device
) -> tuple[dict[str, dict[int, dict]], float | None, str]:
    """(measured collectives, the link's bytes a second, their note)."""
    if rows is None or rows.empty:
        return {}, None, ""
    link = to.link or laws.best_rate(rows)
    kind = "the catalog's" if to.link else "measured, the best of all"
    how = "NCCL or RCCL" if device.kind == "cuda" else "gloo between processes of one host"
    least, most = rows.bytes.min() // 2**10, rows.bytes.max() // 2**20
    note = f"of {link / 1e9:.4g} GB/s per direction ({kind}); {how}, {least} KiB..{most} MiB"
    return laws.links(rows, link, device.kind), link, f"{note}; measured here, {device.software}"


def _warnings(
    to: Target, rates: Mapping[str, float], memory: Mapping[str, float], noise: float
) -> list[str]:
    warnings = []
    if noise > NOISY:
        warnings.append(
            f"the samples of a point lie {noise:.0%} apart (middle half): something else ran "
            "beside; measure again when the machine is idle"
        )
    if to.new:
        return warnings
    low, high = PLAUSIBLE
    shares = {f"peak_{d}": rate / to.peaks[d] for d, rate in rates.items() if d in to.peaks}
    shares["memory_bandwidth"] = max(memory.values()) / (to.bandwidth or 1.0)
    return warnings + [
        f"{name}: {share:.2f} of the catalog's figure of {to.id} was reached: is it this chip?"
        for name, share in shares.items()
        if not low <= share <= high
    ]


# Tables of the answer by rows of the document: caption, columns.
TABLES: Mapping[str, tuple[str, str]] = {
    "gemm": ("The fastest GEMM of each format", "dtype flops_per_s peak_share divided_by_kind"),
    "memory": ("The memory", "kernel bytes_per_s peak_share divided_by_kind"),
    "fits": (
        "Fitted laws (the file holds those of formats that dse has laws for)",
        "operator dtype timed_shapes law_compute=compute law_memory=memory law_fixed_us=fixed "
        "law_exponent=p fit_error held_out_error sample_spread",
    ),
    "collectives": (
        "Collectives",
        "operation devices latency_us=latency link_fraction=fraction ramp fit_error=error",
    ),
    "penalties": (
        "Misaligned sizes",
        "operator misaligned_axis misaligned_size aligned_below aligned_above alignment time_ratio "
        "lowest_time_ratio highest_time_ratio sample_spread cliff",
    ),
}


def answer(document: Mapping[str, Any]) -> Answer:
    """What was reached, the laws, and what was not measured."""
    flat: dict[str, list[dict[str, Any]]] = {name: list(document[name]) for name in TABLES}
    for name, rate in (("gemm", "flops_per_s"), ("memory", "bytes_per_s")):
        flat[name] = [row | {"peak_share": row[rate] / row["divided_by"]} for row in flat[name]]
    flat["fits"] = [row["law"] | row for row in flat["fits"]]
    sizes = ("operator", "misaligned_axis", "misaligned_size")
    flat["penalties"].sort(key=lambda row: [row[key] for key in sizes])
    tables = [
        of_rows(name, caption, flat[name], keys)
        for name, (caption, keys) in TABLES.items()
        if flat[name]
    ]
    lines = [f"Warning: {line}" for line in document["warnings"]]
    missing = (row for row in document["not_measured"] if row["dtype"] in (None, "bf16"))
    if rest := sorted({row["operator"] for row in missing}):
        lines.append(f"Not measured, from other laws (derived or assumed): {', '.join(rest)}.")
    for row in document["skipped"]:
        lines.append(f"{row['works']} of {row['operator']} {row['dtype']} not run: {row['reason']}")
    written = {"Laws": "efficiency_file", "Points": "points_file", "Chip": "chip_file"}
    lines += [f"{title}: {document[key]}" for title, key in written.items() if document[key]]
    run = document["provenance"]
    return Answer(
        question="calibrate",
        title=f"Kernel laws of {document['id']}",
        headline=f"{document['id']}: {run['device']}, {run['software']}, {run['driver']}; "
        f"{document['points']} points in {time(document['seconds'])} ({run['grid']})",
        sentences=lines,
        blocks=tables,
        document=document,
    )
