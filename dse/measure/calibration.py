"""From a bench to the files and the answer of `dse calibrate`.

The files of a calibration: an efficiency file, its points beside it and, of a device that is not
in the catalog, a chip file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dse import units
from dse.answer.answer import Answer
from dse.answer.frames import of_rows
from dse.answer.numbers import time
from dse.catalog import load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.measure import laws
from dse.measure.session import Device, Session
from dse.schema.chip import ROOFLINE, Chip
from dse.schema.dtypes import ARITHMETIC, arithmetic
from dse.schema.efficiency import NOISY, Collective, Efficiency, Law, load_efficiency

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
        found = chips_named(device.name, catalog.chips)
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
    `dse.measure.torch_bench.measure`."""
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
    every = complete(fits, to.parent, own)
    tables = complete_links(measured, note, to.parent)
    padding = to.parent.expert_padding_rows
    text = efficiency_file(to.id, run, every, padding, tables, own, bandwidth)
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
        texts[chip_name] = chip_file(to.id, device, date, rates, memory, together)
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
            for operator, table in every.items() for dtype, row in table.items()
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


MADE_BY = "Written by dse calibrate; docs/calibrate.md says how."
COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")
# Attention over a cache of 8 bits where no such kernel was measured; docs/efficiency.md.
AS_16_BITS = "as bf16, measured here: 16-bit arithmetic on an fp8 cache"


def complete(
    fits: Sequence[Mapping[str, Any]], parent: Efficiency, peaks: Mapping[str, float]
) -> Laws:
    """The measured laws, and for what was not measured: weights of a format without arithmetic of
    its own as the 16-bit law, an 8-bit cache as the 16-bit one, everything else as `parent` has it,
    derived where that was fitted."""
    measured = {(one["operator"], one["dtype"]): dict(one["law"]) for one in fits}
    out: Laws = {}
    for operator, table in parent.operators.items():
        own = measured.get((operator, "bf16"))
        out[operator] = {}
        for dtype, law in table.items():
            if (operator, dtype) in measured:
                row = measured[operator, dtype]
            elif own is None or operator == "experts":
                row = borrowed(law, parent)
            elif operator == "gemm" and arithmetic(dtype) not in peaks:
                row = derive(own, f"as bf16, measured here; {WEIGHT_ONLY}")
            elif operator != "gemm":
                row = derive(own, AS_16_BITS, peaks["bf16"] / peaks.get("fp8", peaks["bf16"]))
            else:
                row = borrowed(law, parent)
            out[operator][dtype] = row
    return out


def borrowed(law: Law, parent: Efficiency) -> dict[str, Any]:
    kind = "derived" if law.kind == "fitted" else law.kind
    note = f"not measured here: {law.kind} law of {parent.id}"
    note += f" ({law.note})" if law.note else ""
    fixed = float(f"{law.fixed_s * 1e6:.4g}")
    return {
        "compute": law.compute,
        "memory": law.memory,
        "fixed": fixed,
        "p": law.p,
        "kind": kind,
        "note": note,
    }


def complete_links(
    measured: Links, note: str, parent: Efficiency
) -> tuple[Links, dict[str, tuple[str, str]]]:
    """(constants of each collective, its kind and note): measured, else those of `parent`."""
    links: Links = {}
    notes: dict[str, tuple[str, str]] = {}
    for name in COLLECTIVES:
        if name in measured:
            links[name], notes[name] = measured[name], ("fitted", note)
            continue
        table: Collective = getattr(parent, name)
        kind = "derived" if table.kind == "fitted" else table.kind
        links[name] = {
            n: {
                "latency": float(f"{seconds * 1e6:.4g}"),
                "fraction": table.bandwidth_fraction[n],
                "ramp": table.ramp[n],
            }
            for n, seconds in table.latency_s.items()
        }
        note_ = f" ({table.note})" if table.note else ""
        notes[name] = kind, f"not measured here: {table.kind} law of {parent.id}{note_}"
    return links, notes


def efficiency_file(
    chip: str,
    run: Mapping[str, str],
    laws: Laws,
    padding_rows: float,
    links: tuple[Links, Mapping[str, tuple[str, str]]],
    peaks: Mapping[str, float],
    bandwidth: float,
) -> str:
    """`peaks` and `bandwidth`: what the fractions are of, operations and bytes a second."""
    divided = {d: units.format(peaks[d], "flop/s", 4) for d in ARITHMETIC if d in peaks}
    divided["memory_bandwidth"] = units.format(bandwidth, "bytes/s", 4)
    head = {
        "id": chip,
        "title": f"{run['device']}, fitted to kernels measured here",
        "divided_by": divided,
        "source": f"measured here, {run['date']}: dse calibrate on {run['device']}, "
        f"{run['software']}, {run['driver']}",
        "date": run["date"],
        "provenance": dict(run),
    }
    return efficiency_text(MADE_BY, head, laws, padding_rows, *links)


def chip_file(
    chip: str,
    device: Device,
    date: str,
    rates: Mapping[str, float],
    memory: Mapping[str, float],
    link: tuple[int, float] | None,
) -> str:
    """A chip file of measured figures; `rates` by format and `memory` by kernel, a second; `link`:
    devices measured together and the best bytes a second each sent."""
    best = max(memory, key=lambda name: memory[name])

    def figure(value: float, dimension: str, note: str) -> dict[str, str]:
        return {
            "value": units.format(value, dimension, 4),
            "kind": "measured",
            "source": f"dse calibrate, {device.software}",
            "date": date,
            "note": note,
        }

    document: dict[str, Any] = {
        "id": chip,
        "name": device.name,
        "efficiency": chip,
        "memory_kind": "host memory" if device.kind == "cpu" else "device memory",
        "memory_capacity": figure(device.memory_bytes, "bytes", "as the system reports it"),
        "memory_bandwidth": figure(memory[best], "bytes/s", f"best of the kernels: {best}"),
    }
    for dtype in ("bf16", "fp16", "fp32", "fp8"):
        if dtype in rates:
            note = "fastest GEMM of the grid, no peak of paper"
            document[f"peak_{dtype}"] = figure(rates[dtype], "flop/s", note)
    if link is not None:  # the best bandwidth of a measured collective
        rate = units.format(link[1], "bytes/s", 4)
        document["system"] = {"chips": link[0], "bandwidth_per_direction": rate}
    made_by = "Written by dse calibrate: what this device reached, not what its vendor promises."
    return _yaml(made_by, document)


def chips_named(device: str, chips: Mapping[str, Chip]) -> list[str]:
    """Chips of the catalog whose model (the first word with a digit in it, such as h100) is a word
    of the device's name; of several, those that have most words in common with it."""
    words = set(_words(device))
    shared = {
        one.id: len(words & set(named))
        for one in chips.values()
        for named in (_words(one.name),)
        if next((word for word in named if re.search("[0-9]", word)), None) in words
    }
    return [id_ for id_, count in shared.items() if count == max(shared.values())]


def _words(name: str) -> list[str]:
    return re.findall("[a-z0-9]+", name.lower())


WEIGHT_ONLY = "weight only: 16-bit arithmetic, compute is a fraction of the bf16 peak"
Laws = dict[str, dict[str, dict]]  # operator -> format -> constants
Links = dict[str, dict[int, dict]]  # collective -> number of chips -> constants


def derive(law: dict, note: str, compute: float = 1.0, kind: str = "derived") -> dict:
    """The same law under another name, its compute fraction times `compute`."""
    scaled = float(f"{min(1.0, law['compute'] * compute):.3g}")
    kept = {k: law[k] for k in ("memory", "fixed", "p")}
    return {"compute": scaled, **kept, "kind": kind, "note": note}


def efficiency_text(
    made_by: str,
    head: Mapping[str, Any],
    laws: Laws,
    padding_rows: float,
    links: Links,
    link_notes: Mapping[str, tuple[str, str]],
    through_host: tuple[Links, str] | None = None,
) -> str:
    """`made_by`: the comment of the first line; `head`: id, title, divided_by, source, date and,
    of a measured device, provenance; `link_notes`: (kind, note) of each collective. Constants of a
    law: compute, memory, fixed in us, p, kind, note, and error where it was fitted. `through_host`:
    collectives whose bytes pass through the host's memory, and their note."""
    operators = {
        operator: {dtype: law | {"fixed": f"{law['fixed']} us"} for dtype, law in table.items()}
        for operator, table in laws.items()
    }
    document = {**head, "operators": operators, "expert_padding_rows": padding_rows}
    document |= {name: _link(rows, *link_notes[name]) for name, rows in links.items()}
    if through_host is not None:
        slow, note = through_host
        document["through_host"] = {n: _link(rows, "fitted", note) for n, rows in slow.items()}
    return _yaml(made_by, document)


def _link(rows: Mapping[int, Mapping[str, Any]], kind: str, note: str) -> dict[str, Any]:
    """The constants of a collective, a column for each."""
    errors = [row["error"] for row in rows.values() if "error" in row]
    return {
        "chips": [int(n) for n in rows],
        "latency": [f"{row['latency']} us" for row in rows.values()],
        "bandwidth_fraction": [row["fraction"] for row in rows.values()],
        "ramp": [row["ramp"] for row in rows.values()],
        "kind": kind,
        **({"error": max(errors)} if errors else {}),
        "note": note,
    }


def _yaml(made_by: str, document: Mapping[str, Any]) -> str:
    """A file with a comment above it; the innermost mappings stand in a line each."""
    import yaml  # noqa: PLC0415 - it takes 20 ms

    style = {"sort_keys": False, "allow_unicode": True, "width": 10_000}
    return f"# {made_by}\n{yaml.safe_dump(dict(document), default_flow_style=None, **style)}"
