"""`dse.collectives`: what collectives cost on the fabric of a chip, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, Any

import numpy as np

from dse import units
from dse.answer.answer import Answer
from dse.answer.frames import columns_of, document, frame
from dse.answer.numbers import time
from dse.blocks.moe import FEW_ROWS, leaving_share
from dse.catalog import MEASUREMENTS, Catalog, load_catalog
from dse.data import hardware_dir, rows_beside
from dse.errors import InputError
from dse.options import Opt
from dse.physics.collectives import Cost, Group, point_to_point
from dse.physics.fabrics import Fabric
from dse.physics.machines import compile_machines, with_jitter
from dse.schema.loader import unknown
from dse.schema.reader import Field, Table, Text, Whole
from dse.schema.system import System

# What `--set` takes: a system other than the chip's own, and what an expert all-to-all sends.
SETTINGS = Table(
    Field("system", Text(), None),
    Field("top_k", Whole(1, 1024), 8),
    Field("hidden_size", Whole(1, 1_000_000), 7168),
    Field("jitter", Text(), None),
)
SIZES = ("32 KiB", "1 MiB", "128 MiB")
FEWEST, MOST = 2, 8192
TITLES = {
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "experts_all_to_all": "expert all-to-all",
    "point_to_point": "point to point",
}
# Collectives whose laws are those of another.
TABLE_OF = {"reduce_scatter": "all_gather", "experts_all_to_all": "all_to_all"}
# Bytes that leave a chip in a ring, per byte of the message: what bus bandwidth counts.
_BUS = {"all_reduce": 2.0, "point_to_point": None}
_WORST = ("fitted", "derived", "extrapolated", "assumed")


def collectives(
    chip: Annotated[str, Opt(positional=True)],
    *,
    chips: Annotated[int, Opt("Chips of the group.", least=FEWEST, most=MOST)] = 64,
    sizes: Annotated[
        tuple[str, ...], Opt("Size of a message, several times for several.", flag="bytes")
    ] = SIZES,
    catalog: Catalog | None = None,
    **fields: Any,
) -> Answer:
    """What collectives of a group of chips cost on the fabric, beside what was measured.

    Bus bandwidth is what a chip sends in a ring over the time; --detail prints every measured
    all-reduce of the chip beside the model. `fields` are SETTINGS. Raises InputError for a chip or
    system that does not exist, sizes that cannot be, and a link that is needed and has no
    bandwidth.
    """
    asked = {**SETTINGS.of({}), **fields}
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    sent = []
    for text in sizes:
        sent.append(units.parse(text, "bytes", field="--bytes"))
        if not 1 <= sent[-1] <= 1e15:
            raise InputError(f"read {text!r}", field="--bytes", accepted="1 B to 1 PB")
    wait = asked["jitter"]
    delay_s = 0.0 if wait is None else units.parse(wait, "s", field="--set jitter")
    route = (asked["top_k"], asked["hidden_size"])
    fabric = _fabric(catalog, chip, asked["system"], chips)
    times = _times(catalog, chip, fabric, chips, sent, route, delay_s)
    measured = against_measured(catalog, chip, fabric.id)
    launch = sorted({time(row["launch_s"]) for row in measured if row["launch_s"]})
    added = f"The model adds {', '.join(launch)}: the benchmark launches each message from Python."
    shown = ("message_bytes", "collective", "seconds", "bus_bytes_per_s", "known")
    frames = [
        frame("times", f"Collectives of {chips} chips", columns_of(times), shown=shown),
        frame(
            "measured",
            "Every measured all-reduce beside the model",
            columns_of(measured),
            *([added] if launch else []),
            shown=("chips", "message_bytes", "seconds", "predicted_s", "predicted_s.ratio", "note")
            if measured
            else (),
            on_console=False,
        ),
    ]
    levels = "; ".join(
        f"{level.name}: {level.topology.replace('_', ' ')}" for level in fabric.levels
    )
    domains = -(-chips // (fabric.levels[0].size or 1))
    many = "one scale-up domain" if domains == 1 else f"{domains} scale-up domains"
    return Answer(
        question="collectives",
        title="Collectives",
        headline=f"{chip} on {fabric.id}: {chips} chips in {many} ({levels})",
        sentences=[
            "A message is what each chip has (all-reduce), ends up with (gather) or sends "
            "(all-to-all).",
            f"Expert all-to-all: {asked['hidden_size']:,} 8-bit numbers per token to "
            f"{asked['top_k']} experts; from 128 tokens per chip, one copy per domain.",
        ],
        blocks=[one for one in frames if one.rows],
        document=document(
            {"chip": chip, "chips": chips, "system": fabric.id, "domains": domains}, frames
        ),
        data=frames[:1],
    )


def _fabric(catalog: Catalog, chip: str, system: str | None, chips: int) -> System:
    """The system of a chip, or another. Raises InputError where it does not exist, or has no
    bandwidth of a link that so many chips need."""
    name = system or catalog.chip(chip).system
    if name not in catalog.systems:
        accepted = "the name of a file of hardware/systems, such as hgx_b200"
        raise unknown("unknown system", name, catalog.systems, accepted, field="--set system")
    fabric = catalog.systems[name]
    if (link := fabric.unknown_link(chips)) is not None:
        raise InputError(
            f"{fabric.id} has no bandwidth_per_direction of {link}, which {chips} chips need",
            accepted="fewer chips, or another system",
        )
    return fabric


def _times(
    catalog: Catalog,
    chip: str,
    system: System,
    chips: int,
    sizes: Sequence[float],
    route: tuple[int, int],
    delay_s: float = 0.0,
) -> list[dict[str, Any]]:
    """A row for each message of `sizes` bytes and each collective, members `delay_s` late in the
    mean; `route` of an expert all-to-all: experts per token, hidden size."""
    row = replace(catalog.chip(chip), system=system.id)
    machines = compile_machines(catalog, [row])
    fabric = (with_jitter(machines, delay_s) if delay_s else machines).fabric
    group = Group(fabric, np.zeros(1, dtype=np.intp), np.array([float(chips)]))
    laws = catalog.efficiencies[row.efficiency]
    rows = []
    for size, name in product(sizes, TITLES):
        table = TABLE_OF.get(name, name)
        cost = _cost(name, fabric, group, chips, size, route)
        seconds = float((cost.latency_s + cost.transfer_s)[0])
        share = 1.0 if name == "point_to_point" else _BUS.get(name, 1.0) * (chips - 1) / chips
        law = laws.all_reduce if name == "point_to_point" else getattr(laws, table)
        rows.append(
            {
                "message_bytes": size,
                "collective": TITLES[name],
                "seconds": seconds,
                "latency_s": float(cost.latency_s[0]),
                "transfer_s": float(cost.transfer_s[0]),
                "bus_bytes_per_s": share * size / seconds if seconds else None,
                "known": _kind(system, law.kind, max(law.latency_s), chips, name),
                "sent_inside_bytes": float(cost.sent.inside_bytes()[0]),
                "sent_outside_bytes": float(cost.sent.outside_bytes()[0]),
            }
        )
    return rows


def _cost(
    name: str, fabric: Fabric, group: Group, chips: int, size: float, route: tuple[int, int]
) -> Cost:
    bytes_ = np.array([float(size)])
    if name == "point_to_point":
        ways = point_to_point(fabric, np.zeros(1, dtype=np.intp), bytes_, np.ones(1))
        spanned = [bool((domains > 1.0).all()) for domains in group.domains]
        return ways[sum(spanned)]
    if name != "experts_all_to_all":
        return getattr(group, TABLE_OF.get(name, name))(bytes_)
    # What a chip sends without sparing copies, in 8-bit numbers, gives its tokens.
    chosen = np.array([float(route[0])])
    copies = np.minimum(chosen, float(chips))
    tokens = bytes_ / (copies * route[1])
    leaving = [
        np.minimum(np.maximum(leaving_share(domains, chosen, copies), FEW_ROWS / tokens), 1.0)
        for domains in group.domains
    ]
    return group.all_to_all(bytes_, leaving)


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


def _measured_rows(chip: str, system: str) -> list[dict[str, Any]]:
    """Rows of hardware/measurements/collectives.csv of a chip, on one system or inside a domain of
    any; `seconds` and `launch_s`, what the benchmark adds to every message."""
    path = hardware_dir() / MEASUREMENTS / "collectives.csv"
    found = []
    for row in rows_beside(str(path), path.name):
        if row["chip"] == chip and row["system"] in ("", system):
            chips, size = int(row["chips"]), float(row["bytes"])
            bus = float(row["bus_gb_per_s"]) * 1e9
            share = (_BUS.get(row["collective"]) or 1.0) * (chips - 1) / chips
            launch = units.parse(row["launch"], "s") if row["launch"] else 0.0
            text = {key: row[key] for key in ("collective", "software", "source", "date", "note")}
            found.append(
                text
                | {"chips": chips, "message_bytes": size, "bus_bytes_per_s": bus}
                | {"seconds": share * size / bus, "launch_s": launch}
            )
    return found


def against_measured(catalog: Catalog, chip: str, system: str) -> list[dict[str, Any]]:
    """The measured rows, each with the model's seconds: `predicted_s`, launch included, and its
    ratio to those measured."""
    rows = _measured_rows(chip, system)
    for chips in {row["chips"] for row in rows}:
        mine = [row for row in rows if row["chips"] == chips]
        sizes = [row["message_bytes"] for row in mine]
        times = _times(catalog, chip, catalog.systems[system], chips, sizes, (1, 1))
        for row in mine:
            same = (row["message_bytes"], TITLES[row["collective"]])
            predicted = next(t for t in times if (t["message_bytes"], t["collective"]) == same)
            row["predicted_s"] = predicted["seconds"] + row["launch_s"]
            row["predicted_s.ratio"] = row["predicted_s"] / row["seconds"]
    return rows
