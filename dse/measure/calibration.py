"""From a bench to the files and the answer of `dse calibrate`.

The files of a calibration: an efficiency file, its points beside it and, of a device that is not
in the catalog, a chip file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse import units
from dse.answer.answer import Answer, Table
from dse.answer.frames import document, frame, of_rows
from dse.answer.numbers import time
from dse.catalog import load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.measure import laws
from dse.measure.session import Device, Session
from dse.schema.chip import ROOFLINE, Chip
from dse.schema.dtypes import ARITHMETIC, arithmetic
from dse.schema.efficiency import (
    NOISY,
    Collective,
    Efficiency,
    Law,
    load_efficiency,
)

# Whose laws stand for what was not measured on a device that the catalog does not have.
CLASSES = {"cpu": "class_accelerator", "cuda": "class_gpu", "rocm": "class_amd"}
# Measured over catalog: outside, the device is hardly the chip that was named.
PLAUSIBLE = (0.3, 1.05)
TOP_FIXED_US = {"cuda": 300.0, "cpu": 3000.0}  # where a fit of the fixed cost ends
MADE_BY = "Written by dse calibrate; docs/calibrate.md says how."
# Attention over a cache of 8 bits where no such kernel was measured; docs/efficiency.md.
AS_16_BITS = "as bf16, measured here: 16-bit arithmetic on an fp8 cache"
WEIGHT_ONLY = "weight only: 16-bit arithmetic, compute is a fraction of the bf16 peak"
Laws = dict[str, dict[str, dict]]  # operator -> format -> constants
Links = dict[str, dict[int, dict]]  # collective -> number of chips -> constants
Notes = dict[str, tuple[str, str]]  # collective -> kind and note


@dataclass(frozen=True, slots=True)
class Target:
    """The chip that the laws are of. `peaks` (operations a second by format) and `bandwidth` (bytes
    a second) are the catalog's; empty or None for a device that it does not have."""

    id: str
    new: bool
    parent: Efficiency
    peaks: Mapping[str, float]
    bandwidth: float | None


def target(device: Device, chip: str | None, new_chip: str | None) -> Target:
    """The chip that is meant: named, new, or found by the device's name. Raises InputError where
    the catalog has no chip of that name, or several."""
    catalog = load_catalog()  # as shipped, without laws that were measured before
    if new_chip is not None:
        field = "--new-chip"
        if new_chip in catalog.chips:
            accepted = f"an id of its own, or --chip {new_chip}"
            raise InputError(
                f"{new_chip!r} is a chip of the catalog", field=field, accepted=accepted
            )
        if not new_chip.replace("_", "").replace("-", "").isalnum():
            raise InputError(f"read {new_chip!r}", field=field, accepted="letters, digits, _ and -")
    elif chip is None and device.kind == "cpu":
        new_chip = "my_cpu"
    elif chip is None:
        found = chips_named(device.name, catalog.chips)
        if len(found) != 1:
            near = f"--chip {' or '.join(found)}, or " if found else "--chip ID, or "
            raise InputError(
                f"which chip is this? PyTorch calls it {device.name!r}",
                accepted=f"{near}--new-chip NAME for one that the catalog does not have",
            )
        chip = found[0]
    if new_chip is not None:
        kind = "rocm" if "ROCm" in device.driver else device.kind
        parent = load_efficiency(hardware_dir() / "efficiency" / f"{CLASSES[kind]}.yaml")
        return Target(new_chip, True, parent, {}, None)
    spec = catalog.chip(str(chip))
    spec.require(*ROOFLINE)
    return Target(
        spec.id,
        False,
        catalog.efficiencies[spec.efficiency],
        spec.peak_flops_per_s,
        spec.memories[0].bytes_per_s,
    )


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


def calibrate(
    session: Session,
    dtypes: Sequence[str],
    to: Target,
    out: Path,
    date: str,
) -> tuple[dict[str, str], Answer]:
    """Measures and fits: the content of each file by its name, and the answer. `out`: the path of
    the efficiency file. Collectives are those of the target's parent."""
    device = session.bench.device
    points = laws.table(session.measure(dtypes))
    rates, memory = laws.reached(points)
    if "bf16" not in rates or not memory:
        reason = session.skipped[0][1] if session.skipped else "no time for one"
        raise InputError(f"{device.name}: no GEMM in bf16, or no copy, could be run: {reason}")
    peaks = {**rates, **to.peaks}
    bandwidth = to.bandwidth or max(memory.values())
    fits = laws.fits(points, peaks, bandwidth, device.software, TOP_FIXED_US[device.kind])
    noise = float(points.spread.median())
    run = {name: getattr(device, name) for name in ("host", "software", "driver", "timer")}
    run |= {
        "device": device.name,
        "date": date,
        "grid": session.effort.name,
        "seed": str(session.seed),
    }
    run |= {"points": str(len(points)), "noise": f"{noise:.3f}"}
    own = {dtype: peak for dtype, peak in peaks.items() if dtype in to.peaks or to.new}
    every = complete(fits, to.parent, own)
    links = {name: link_constants(table) for name, table in to.parent.links.items()}
    notes = {name: _of(to.parent, table) for name, table in to.parent.links.items()}
    head = {
        "id": to.id,
        "title": f"{device.name}, fitted to kernels measured here",
        "divided_by": {
            **{d: units.format(own[d], "flop/s", 4) for d in ARITHMETIC if d in own},
            "memory_bandwidth": units.format(bandwidth, "bytes/s", 4),
        },
        "source": f"measured here, {date}: dse calibrate on {device.name}, {device.software}, "
        f"{device.driver}",
        "date": date,
        "provenance": run,
    }
    csv = points.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    padding = to.parent.expert_padding_rows
    texts = {
        out.name: efficiency_text(MADE_BY, head, every, padding, links, notes),
        f"{out.stem}.csv": csv,
    }
    chip_name = None
    if to.new:
        chip_name = f"{to.id}.yaml" if out.name != f"{to.id}.yaml" else f"{to.id}_chip.yaml"
        texts[chip_name] = chip_file(to.id, device, date, rates, memory)
    about = [
        *((op, d, row["kind"], row["note"]) for op, of in every.items() for d, row in of.items()),
        *((name, None, *how) for name, how in notes.items()),
    ]
    keys = ("operator", "dtype", "kind", "note")
    missing = [dict(zip(keys, row, strict=True)) for row in about if row[2] != "fitted"]
    refused = Counter((work.operator, work.dtype, reason) for work, reason in session.skipped)
    facts = {
        "id": to.id,
        "new_chip": to.new,
        "provenance": run,
        "efficiency_file": str(out),
        "points_file": str(out.with_suffix(".csv")),
        "chip_file": None if chip_name is None else str(out.parent / chip_name),
        "not_measured": missing,
        "warnings": _warnings(to, rates, memory, noise),
        "points": len(points),
        "skipped": [
            {"operator": operator, "dtype": dtype, "works": count, "reason": reason}
            for (operator, dtype, reason), count in refused.items()
        ],
        "seconds": round(session.clock() - session.started, 1),
    }
    reached = {
        "dtype": list(rates),
        "flops_per_s": list(rates.values()),
        "peak_share": [rate / peaks[dtype] for dtype, rate in rates.items()],
        "divided_by_kind": ["catalog" if dtype in to.peaks else "measured" for dtype in rates],
    }
    kernels = {
        "kernel": list(memory),
        "bytes_per_s": list(memory.values()),
        "peak_share": [rate / bandwidth for rate in memory.values()],
        "divided_by_kind": "measured" if to.new else "catalog",
    }
    tables = (
        frame("gemm", "The fastest GEMM of each format", reached),
        frame("memory", "The memory", kernels),
        of_rows(
            "fits",
            "Fitted laws",
            [fit["law"] | fit for fit in fits],
            "operator dtype timed_shapes law_compute=compute law_memory=memory law_fixed_us=fixed "
            "law_exponent=p fit_error held_out_error sample_spread",
        ),
    )
    return texts, _answer(facts, tables)


def _answer(facts: Mapping[str, Any], tables: Sequence[Table]) -> Answer:
    """What was reached, the laws, and what was not measured."""
    lines = [f"Warning: {line}" for line in facts["warnings"]]
    missing = (row for row in facts["not_measured"] if row["dtype"] in (None, "bf16"))
    if rest := sorted({row["operator"] for row in missing}):
        lines.append(f"Not measured, from other laws (derived or assumed): {', '.join(rest)}.")
    for row in facts["skipped"]:
        lines.append(f"{row['works']} of {row['operator']} {row['dtype']} not run: {row['reason']}")
    written = {"Laws": "efficiency_file", "Points": "points_file", "Chip": "chip_file"}
    lines += [f"{title}: {facts[key]}" for title, key in written.items() if facts[key]]
    chip = facts["chip_file"] or facts["id"]
    lines.append(
        f"Use them: dse estimate --model llama-3.2-1b --chip {chip} --efficiency-file "
        f"{facts['efficiency_file']}"
    )
    run = facts["provenance"]
    return Answer(
        question="calibrate",
        title=f"Kernel laws of {facts['id']}",
        headline=f"{facts['id']}: {run['device']}, {run['software']}, {run['driver']}; "
        f"{facts['points']} points in {time(facts['seconds'])} ({run['grid']})",
        sentences=lines,
        blocks=[one for one in tables if one.rows],
        document=document(facts, tables),
    )


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
                row = _borrowed(law, parent)
            elif operator != "gemm":
                row = derive(own, AS_16_BITS, peaks["bf16"] / peaks.get("fp8", peaks["bf16"]))
            elif arithmetic(dtype) not in peaks:
                row = derive(own, f"as bf16, measured here; {WEIGHT_ONLY}")
            else:
                row = _borrowed(law, parent)
            out[operator][dtype] = row
    return out


def _of(parent: Efficiency, law: Law | Collective) -> tuple[str, str]:
    """Kind and note of a law that `parent` lends."""
    note = f" ({law.note})" if law.note else ""
    kind = "derived" if law.kind == "fitted" else law.kind
    return kind, f"not measured here: {law.kind} law of {parent.id}{note}"


def _borrowed(law: Law, parent: Efficiency) -> dict[str, Any]:
    return constants(law) | dict(zip(("kind", "note"), _of(parent, law), strict=True))


def constants(law: Law) -> dict[str, Any]:
    """Those of a law, with its kind and note; fixed in us."""
    own = {name: getattr(law, name) for name in ("compute", "memory", "p", "kind", "note")}
    return own | {"fixed": float(f"{law.fixed_s * 1e6:.4g}")}


def link_constants(table: Collective) -> dict[int, dict[str, float]]:
    """Those of a collective by number of chips; latency in us."""
    return {
        n: {
            "latency": float(f"{seconds * 1e6:.4g}"),
            "fraction": table.bandwidth_fraction[n],
            "ramp": table.ramp[n],
        }
        for n, seconds in table.latency_s.items()
    }


def chip_file(
    chip: str,
    device: Device,
    date: str,
    rates: Mapping[str, float],
    memory: Mapping[str, float],
) -> str:
    """A chip file of measured figures; `rates` by format and `memory` by kernel, a second."""
    best = max(memory, key=lambda name: memory[name])

    def figure(value: float, dimension: str, note: str) -> dict[str, str]:
        return {
            "value": units.format(value, dimension, 4),
            "kind": "measured",
            "source": f"dse calibrate, {device.software}",
            "date": date,
            "note": note,
        }

    written: dict[str, Any] = {
        "id": chip,
        "name": device.name,
        "efficiency": chip,
        "memory_kind": "host memory" if device.kind == "cpu" else "device memory",
        "memory_capacity": figure(device.memory_bytes, "bytes", "as the system reports it"),
        "memory_bandwidth": figure(memory[best], "bytes/s", f"best of the kernels: {best}"),
    }
    for dtype, rate in rates.items():
        note = "fastest GEMM of the grid, no peak of paper"
        written[f"peak_{dtype}"] = figure(rate, "flop/s", note)
    made_by = "Written by dse calibrate: what this device reached, not what its vendor promises."
    return _yaml(made_by, written)


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
) -> str:
    """`made_by`: the comment of the first line; `head`: id, title, divided_by, source, date and,
    of a measured device, provenance; `link_notes`: (kind, note) of each collective. Constants of a
    law: compute, memory, fixed in us, p, kind, note, and error where it was fitted."""
    operators = {
        operator: {dtype: law | {"fixed": f"{law['fixed']} us"} for dtype, law in table.items()}
        for operator, table in laws.items()
    }
    document = {**head, "operators": operators, "expert_padding_rows": padding_rows}
    document |= {name: _link(rows, *link_notes[name]) for name, rows in links.items()}
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
