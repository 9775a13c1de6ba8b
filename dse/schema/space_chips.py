"""The chips of a space file: systems side by side, chips by the path of their file, and why a chip
cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.files import full_path
from dse.schema.axes import POOL_AXES
from dse.schema.catalog import Catalog, is_chip_file
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Costs
from dse.schema.loader import Document, Lazy
from dse.schema.own_chip import read_own_chip
from dse.schema.owning import lacks_for_owning
from dse.schema.rack import Rack
from dse.schema.rack import refusal as rack_refusal
from dse.schema.reader import Mistakes, Place

_DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel")
SYSTEMS = "systems"


def _named(document: Document) -> dict[str, str]:
    """The full paths of the chip files that a space names, as seen from its file, by what is
    written."""
    deployment = document.data.get("deployment")
    parts = _parts(deployment).values() if isinstance(deployment, Mapping) else ()
    items = [item for part in parts for item in named_chips(part) if isinstance(item, str)]
    folder = Path(document.file).parent
    return {item: full_path(folder / item) for item in items if is_chip_file(item)}


def named_files(document: Document) -> tuple[str, ...]:
    """The chip files that exist of those that a space names."""
    return tuple(file for file in dict.fromkeys(_named(document).values()) if Path(file).is_file())


def with_systems(document: Document, mistakes: Mistakes) -> tuple[Document, tuple[str, ...]]:
    """The file with its list of systems as the axis `chip` and axes with values by chip, and the
    names of the systems; what no system says is an axis of all.

        systems:
          - {name: 8 B200, chip: b200_sxm, chips: 8, backend: trtllm, weight_dtype: [fp8, nvfp4]}
          - {name: one NVL72, chip: gb200_nvl72, chips: 72, backend: trtllm, weight_dtype: nvfp4}
    """
    deployment = document.data.get("deployment")
    if not isinstance(deployment, Mapping) or SYSTEMS not in deployment:
        return document, ()
    at, listed = ("deployment", SYSTEMS), deployment[SYSTEMS]
    if not isinstance(listed, list) or not listed or "chip" in deployment:
        message = "no list of systems" if "chip" not in deployment else "beside the axis chip"
        mistakes.add(at, message, "systems: [{name: 8 B200, chip: b200_sxm, chips: 8}, ...]")
        return document, ()
    of: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}  # of the system of each chip
    for k, written in enumerate(listed):
        chip = written.get("chip") if isinstance(written, Mapping) else None
        if not isinstance(chip, str):
            mistakes.add((*at, k), "no chip", "{name: 8 B200, chip: b200_sxm, chips: 8}")
            continue
        if chip in names:
            accepted = "one with both values: chips: [8, 16]"
            mistakes.add((*at, k, "chip"), f"{chip} stands in two systems", accepted)
        name = str(written.get("name", chip))
        if name in names.values():
            mistakes.add((*at, k, "name"), f"{name!r} is the name of two systems", "two names")
        names[chip] = name
        for pool, part in _parts({n: v for n, v in written.items() if n != "chip"}).items():
            below = deployment.get(pool, {}) if pool else deployment
            for axis, value in part.items():
                if axis == "name" or axis in _parts(written):
                    continue
                if axis in below:
                    message = f"{axis} stands below the systems, too"
                    mistakes.add((*at, k, *([pool] * bool(pool)), axis), message, "one of the two")
                of.setdefault(pool, {}).setdefault(str(axis), {})[chip] = value
    for pool, axes in of.items():
        for axis, values in axes.items():
            if lacking := [name for chip, name in names.items() if chip not in values]:
                named = f"{pool} {axis}".strip()
                message = f"{named} is missing in {', '.join(lacking)}"
                mistakes.add(at, message, f"{named} in every system or below them")
    rest = {name: axis for name, axis in deployment.items() if name != SYSTEMS}
    made = {"chip": list(names), **_by_system(of.get("", {})), **rest}
    for pool in POOL_AXES:
        if pool in of or pool in rest:
            made[pool] = below = rest.get(pool, {})
            if isinstance(below, Mapping) and "chip" in {**of.get(pool, {}), **below}:
                message = "beside systems: a pool is on the chips of its system"
                mistakes.add(("deployment", pool, "chip"), message, f"{pool} without chip")
            if isinstance(below, Mapping):
                made[pool] = {**_by_system(of.get(pool, {})), **below}
    return replace(document, data={**document.data, "deployment": made}), tuple(names.values())


def _by_system(of: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: {"values_by": "chip", "of": values} for name, values in of.items()}


def _parts(deployment: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The deployment itself, under "", and the pools that it names, by name."""
    pools = {pool: deployment.get(pool) for pool in POOL_AXES}
    return {"": deployment} | {k: part for k, part in pools.items() if isinstance(part, Mapping)}


def named_chips(deployment: Mapping[str, Any]) -> list[Any]:
    """The chips of a deployment as they are written."""
    written = deployment.get("chip")
    if isinstance(systems := deployment.get(SYSTEMS), list):
        written = [one.get("chip") for one in systems if isinstance(one, Mapping)]
    raw = written.get("values") if isinstance(written, Mapping) else written
    return list(raw) if isinstance(raw, list) else [raw]


def own_chips(
    document: Document, catalog: Catalog, mistakes: Mistakes
) -> tuple[Document, tuple[str, ...]]:
    """The file with the ids of chips that it names by the path of their file, and these paths."""
    files, ids = _named(document), dict[str, str]()
    for item, file in files.items():
        own = mistakes.attempt(
            lambda file=file: read_own_chip(file, efficiency=catalog.source.efficiency)
        )
        ids[item] = own.chip.id if own else item

    def renamed(written: Any) -> Any:
        if isinstance(written, Mapping):
            return {renamed(key): renamed(value) for key, value in written.items()}
        if isinstance(written, list):
            return [renamed(item) for item in written]
        return ids.get(written, written) if isinstance(written, str) else written

    if not files:
        return document, ()
    deployment = renamed(document.data["deployment"])
    data = {**document.data, "deployment": deployment}
    return replace(document, data=data), tuple(dict.fromkeys(files.values()))


def _largest_instance(document: Document, chip: str) -> float:
    """Chips of the largest instance that the degrees of the space can make of a chip."""
    deployment = document.data.get("deployment")
    if not isinstance(deployment, Mapping):
        return 1.0
    sizes = []
    for part in _parts(deployment).values():
        most = math.prod(_largest(part.get(axis, 1), chip) for axis in _DEGREES)
        sizes.append(min(most, _largest(part.get("chips", math.inf), chip)))
    return max(sizes)


def _largest(written: Any, chip: str) -> float:
    """The largest value of an axis on a chip, infinite where that needs another axis."""
    if isinstance(written, Mapping) and isinstance(of := written.get("of"), Mapping):
        written = of.get(chip, of.get("default"))
    if isinstance(written, Mapping):
        written = math.inf if "ratio_of" in written else written.get("values", written.get("to"))
    sizes = written if isinstance(written, list) else [written]
    known = [float(one) for one in sizes if isinstance(one, int | float)]
    return max(known, default=math.inf)


def why_not(
    document: Document,
    catalog: Catalog,
    costs: Costs | None,
    rack: Rack | None,
    mistakes: Mistakes,
) -> Mapping[str, str | None]:
    """Of every chip why it cannot be compared, None where it can: looked up where it is asked."""
    basis, priced = document.data.get("price_basis"), None
    if isinstance(basis, str) and basis != OWNED:
        at = Place(mistakes, ("price_basis",))
        priced = at.call(lambda: catalog.prices.select(basis))

    def reason(chip: str) -> str | None:
        lack = lacks_for_owning(catalog, chip, costs) if basis == OWNED else None
        if priced is not None and chip not in priced:
            lack = f"{chip} has no price on basis {basis}"
        lack = lack or catalog.refusal(chip, _largest_instance(document, chip))
        if lack or rack is None:
            return lack
        return rack_refusal(chip, catalog.systems[catalog.chips[chip].system])

    return Lazy(catalog.chips, reason)
