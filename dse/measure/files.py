"""The files of a calibration: an efficiency file, its points beside it and, of a device that is not
in the catalog, a chip file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dse import units
from dse.measure.work import Device
from dse.schema.chip import Chip
from dse.schema.dtypes import ARITHMETIC, arithmetic
from dse.schema.efficiency import Collective, Efficiency, Law

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


def collectives(
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
        "title": json.dumps(f"{run['device']}, fitted to kernels measured here"),
        "divided_by": divided,
        "source": f"measured here, {run['date']}: dse calibrate on {run['device']}, "
        f"{run['software']}, {run['driver']}",
        "date": run["date"],
        "provenance": run,
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

    def figure(name: str, value: float, dimension: str, note: str) -> str:
        fields = {
            "value": units.format(value, dimension, 4),
            "kind": "measured",
            "source": f"dse calibrate, {device.software}",
            "date": date,
            "note": note,
        }
        return f"{name}: {json.dumps(fields)}"

    lines = [
        "# Written by dse calibrate: what this device reached, not what its vendor promises.",
        f"id: {chip}",
        f"name: {json.dumps(device.name)}",
        f"efficiency: {chip}  # the laws measured with it: --efficiency-file",
        f"memory_kind: {'host memory' if device.kind == 'cpu' else 'device memory'}",
        figure("memory_capacity", device.memory_bytes, "bytes", "as the system reports it"),
        figure("memory_bandwidth", memory[best], "bytes/s", f"best of the kernels: {best}"),
    ]
    lines += [
        figure(
            f"peak_{dtype}", rates[dtype], "flop/s", "fastest GEMM of the grid, no peak of paper"
        )
        for dtype in ("bf16", "fp16", "fp32", "fp8")
        if dtype in rates
    ]
    if link is not None:
        count, rate = link[0], units.format(link[1], "bytes/s", 4)
        lines.append(
            f"system: {{chips: {count}, bandwidth_per_direction: {rate}}}"
            "  # best bandwidth of a measured collective"
        )
    return "\n".join(lines) + "\n"


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
) -> str:
    """`made_by`: the comment of the first line; `head`: id, title, divided_by, source, date and,
    of a measured device, provenance; `link_notes`: (kind, note) of each collective. Constants of a
    law: compute, memory, fixed in us, p, kind, note, and error where it was fitted."""
    lines = [f"# {made_by}"]
    for name in ("id", "title", "divided_by", "source", "date", "provenance"):
        value = head.get(name)
        if isinstance(value, Mapping) and value:
            quoted = json.dumps if name == "provenance" else str
            lines += [f"{name}:", *(f"  {key}: {quoted(one)}" for key, one in value.items())]
        elif value:
            lines.append(f"{name}: {value if name in ('id', 'title') else json.dumps(value)}")
    lines.append("operators:")
    for operator, table in laws.items():
        lines.append(f"  {operator}:")
        lines += [f"    {dtype}: {{{_law(x)}}}" for dtype, x in table.items()]
    lines.append(f"expert_padding_rows: {padding_rows:g}")
    lines += [f"{op}: {{{_link(rows, *link_notes[op])}}}" for op, rows in links.items()]
    return "\n".join(lines) + "\n"


def through_host_text(links: Links, note: str) -> str:
    """The lines of collectives whose bytes pass through the host's memory."""
    rows = [f"  {op}: {{{_link(rows, 'fitted', note)}}}" for op, rows in links.items()]
    return "\n".join(["through_host:", *rows]) + "\n"


def _law(x: Mapping[str, Any]) -> str:
    error = f", error: {x['error']}" if "error" in x else ""
    return (
        f"compute: {x['compute']}, memory: {x['memory']}, fixed: {x['fixed']} us, p: {x['p']}, "
        f"kind: {x['kind']}{error}, note: {json.dumps(x['note'])}"
    )


def _link(rows: Mapping[int, Mapping[str, Any]], kind: str, note: str) -> str:
    latency = ", ".join(f"{row['latency']} us" for row in rows.values())
    fraction, ramp = (
        ", ".join(str(row[key]) for row in rows.values()) for key in ("fraction", "ramp")
    )
    errors = [row["error"] for row in rows.values() if "error" in row]
    error = f", error: {max(errors)}" if errors else ""
    return (
        f"chips: [{', '.join(map(str, rows))}], latency: [{latency}], "
        f"bandwidth_fraction: [{fraction}], ramp: [{ramp}], kind: {kind}{error}, "
        f"note: {json.dumps(note)}"
    )
