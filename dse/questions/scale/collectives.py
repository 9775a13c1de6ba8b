"""What collectives cost on a fabric, beside what was measured: `dse scale --collectives`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse import units
from dse.blocks.moe import FEW_ROWS, leaving_share
from dse.catalog import Catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.physics.collectives import Cost, Group, point_to_point
from dse.physics.fabrics import Fabric
from dse.physics.jitter import with_jitter
from dse.physics.machines import compile_machines
from dse.schema.loader import did_you_mean
from dse.schema.system import System

TITLES = {
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "experts_all_to_all": "expert all-to-all",
    "point_to_point": "point to point",
}
# Bytes that leave a chip in a ring, per byte of the message: what bus bandwidth counts.
_BUS = {"all_reduce": 2.0, "point_to_point": None}
_WORST = ("fitted", "derived", "extrapolated", "assumed")


@dataclass(frozen=True, slots=True)
class Route:
    """Routing of tokens to experts: what an expert all-to-all sends."""

    experts_per_token: int
    hidden_size: int


def collectives(
    catalog: Catalog,
    chip: str,
    system: str | None,
    chips: int,
    sizes: Sequence[float],
    route: Route,
    jitter: tuple[float, str] | None = None,
) -> dict[str, Any]:
    """Every collective of `chips` chips for messages of `sizes` bytes. Raises InputError for a chip
    or system that does not exist, and where a link that is needed has no bandwidth."""
    row = catalog.chip(chip)
    if system is not None:
        if system not in catalog.systems:
            raise InputError(
                f"unknown system {system!r}{did_you_mean(system, catalog.systems)}",
                field="--system",
                accepted="the name of a file of hardware/systems, such as hgx_b200",
            )
        row = replace(row, system=system)
    fabric_of = catalog.systems[row.system]
    unknown = fabric_of.unknown_link(chips)
    if unknown is not None:
        raise InputError(
            f"{fabric_of.id} has no bandwidth_per_direction of {unknown}, which {chips} chips need",
            accepted="fewer chips, or another system",
        )
    on = compile_machines(catalog, [row])
    if jitter is not None:
        on = with_jitter(on, *jitter)
    efficiency = catalog.efficiencies[row.efficiency]
    group = Group(on.fabric, np.zeros(1, dtype=np.intp), np.array([float(chips)]))
    laws = {name: getattr(efficiency, name) for name in ("all_reduce", "all_gather", "all_to_all")}
    messages = [
        {
            "bytes": size,
            "collectives": [
                _described(name, on.fabric, group, fabric_of, laws, chips, size, route)
                for name in TITLES
            ],
        }
        for size in sizes
    ]
    return {
        "chip": chip,
        "system": fabric_of.id,
        "chips": chips,
        "levels": [
            {"name": level.name, "topology": level.topology, "chips": level.size}
            for level in fabric_of.levels
        ],
        "domains": int(np.ceil(chips / on.fabric.domain[0])),
        "messages": messages,
        "measured": measured(chip, fabric_of.id),
    }


def _described(
    name: str,
    fabric: Fabric,
    group: Group,
    system: System,
    laws: dict[str, Any],
    chips: int,
    size: float,
    route: Route,
) -> dict[str, Any]:
    table = {"reduce_scatter": "all_gather", "experts_all_to_all": "all_to_all"}.get(name, name)
    cost = _cost(name, fabric, group, chips, size, route)
    seconds = float((cost.latency_s + cost.transfer_s)[0])
    share = 1.0 if name == "point_to_point" else _BUS.get(name, 1.0) * (chips - 1) / chips
    law = laws["all_reduce" if name == "point_to_point" else table]
    return {
        "collective": name,
        "seconds": seconds,
        "latency_s": float(cost.latency_s[0]),
        "transfer_s": float(cost.transfer_s[0]),
        "bus_bytes_per_s": share * size / seconds if seconds else None,
        "algorithm": _algorithm(table, fabric, group, chips, size),
        "kind": _kind(system, law.kind, max(law.latency_s), chips, name),
        "sent_inside_bytes": float(cost.sent.inside_bytes()[0]),
        "sent_outside_bytes": float(cost.sent.outside_bytes()[0]),
    }


def _cost(name: str, fabric: Fabric, group: Group, chips: int, size: float, route: Route) -> Cost:
    bytes_ = np.array([float(size)])
    if name == "all_reduce":
        return group.all_reduce(bytes_)
    if name in ("all_gather", "reduce_scatter"):
        return group.all_gather(bytes_)
    if name == "point_to_point":
        ways = point_to_point(fabric, np.zeros(1, dtype=np.intp), bytes_, np.ones(1))
        spanned = [bool((domains > 1.0).all()) for domains in group.domains]
        return ways[sum(spanned)]
    if name == "all_to_all":
        return group.all_to_all(bytes_)
    # What a chip sends without sparing copies, in 8-bit numbers, gives its tokens.
    chosen = np.array([float(route.experts_per_token)])
    copies = np.minimum(chosen, float(chips))
    tokens = bytes_ / (copies * route.hidden_size)
    leaving = [
        np.minimum(np.maximum(leaving_share(domains, chosen, copies), FEW_ROWS / tokens), 1.0)
        for domains in group.domains
    ]
    return group.all_to_all(bytes_, leaving)


def _algorithm(table: str, fabric: Fabric, group: Group, chips: int, size: float) -> str:
    if table == "point_to_point":
        return "direct"
    tables = getattr(fabric, table)
    inside = min(chips, fabric.domain[0])
    step = int(np.ceil(np.log2(inside)))
    name = str(tables.algorithm[0, step])
    if group.domains and bool((group.domains[0] > 1.0).all()):
        within = "" if inside == 1 else f", {name} inside"
        between = "direct"
        if table != "all_to_all":
            met = np.ceil(np.log2(group.domains[0][0]))
            algorithm = fabric.networks[0].algorithm[0, int(met)]
            between = str(algorithm) if table == "all_reduce" else "recursive doubling"
        return f"{between} between{within}"
    collective = group.all_reduce if table == "all_reduce" else group.all_gather
    if table != "all_to_all" and collective.short is not None:
        bytes_ = np.array([float(size)])
        other, chosen = collective.short(bytes_), collective(bytes_)
        if other.latency_s[0] == chosen.latency_s[0]:
            return str(tables.short_algorithm[0, step])
    return name


def _kind(system: System, law: str, known: int, chips: int, name: str) -> str:
    """The worst of what a figure rests on: the kernels inside, and the network where it is used.
    The network's constants are fitted where its level has its own, else derived from others."""
    domain = system.levels[0].size or 1
    kinds = [law]
    if name == "point_to_point":
        kinds = ["derived"]
    elif min(chips, domain) > known:
        kinds.append("extrapolated")
    if chips > domain:
        own = any(figure.name.endswith(" reached") for figure in system.figures)
        kinds.append("fitted" if own and name != "experts_all_to_all" else "derived")
        if own and chips > 32:
            kinds.append("extrapolated")
    return max(kinds, key=_WORST.index)


def measured(chip: str, system: str) -> list[dict[str, Any]]:
    """Rows of hardware/measurements/collectives.csv of a chip, on one system or inside a domain of
    any; `seconds` and `launch_s`, what the benchmark adds to every message."""
    path = hardware_dir() / "measurements" / "collectives.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["chip"] == chip]
    found = []
    for row in rows:
        if row["system"] in ("", system):
            chips, size = int(row["chips"]), float(row["bytes"])
            bus = float(row["bus_gb_per_s"]) * 1e9
            share = (_BUS.get(row["collective"]) or 1.0) * (chips - 1) / chips
            launch = units.parse(row["launch"], "s") if row["launch"] else 0.0
            text = {key: row[key] for key in ("collective", "software", "source", "date", "note")}
            found.append(
                text
                | {"chips": chips, "bytes": size, "bus_bytes_per_s": bus}
                | {"seconds": share * size / bus, "launch_s": launch}
            )
    return found


def against_measured(catalog: Catalog, chip: str, system: str) -> list[dict[str, Any]]:
    """The rows of `measured`, each with the model's seconds: `predicted_s`, launch included."""
    rows = measured(chip, system)
    route = Route(1, 1)
    for chips in {row["chips"] for row in rows}:
        mine = [row for row in rows if row["chips"] == chips]
        sizes = [row["bytes"] for row in mine]
        answer = collectives(catalog, chip, system, chips, sizes, route)
        for row, message in zip(mine, answer["messages"], strict=True):
            one = next(c for c in message["collectives"] if c["collective"] == row["collective"])
            row["predicted_s"] = one["seconds"] + row["launch_s"]
    return rows


def measured_ratios(rows: Sequence[dict[str, Any]], sizes: Sequence[float]) -> list[dict[str, Any]]:
    """How much lower the bus bandwidth of an all-reduce was measured over the largest group than
    over the smallest, for each of `sizes` where both were; rows of `against_measured`, or of
    `measured` without what the model says."""
    by_size = {(row["chips"], row["bytes"]): row for row in rows}
    counts = sorted({row["chips"] for row in rows})
    found = []
    for size in sizes:
        few, many = (by_size.get((counts[k], size)) if counts else None for k in (0, -1))
        if few is None or many is None or few is many:
            continue
        found.append(
            {
                "bytes": size,
                "chips": [few["chips"], many["chips"]],
                "measured": few["bus_bytes_per_s"] / many["bus_bytes_per_s"],
                "predicted": _per_share(many) / _per_share(few),
                "note": many["note"],
            }
        )
    return found


def _per_share(row: dict[str, Any]) -> float:
    """Predicted seconds over the bytes of a ring: the inverse of the bus bandwidth."""
    return row["predicted_s"] / ((row["chips"] - 1) / row["chips"])
