"""Sections of a space file beside its axes and workloads: the chips that it compares and why others
are left out, how every shape is trained and how long it serves, views, resolutions and the wish."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.files import full_path
from dse.record import record
from dse.schema.axes import CHIP_DEGREES, POOL_AXES, Axis
from dse.schema.catalog import Catalog, is_chip_file
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Costs, lacks_for_owning
from dse.schema.loader import Document, Lazy, did_you_mean
from dse.schema.metrics import METRICS, Limit, parse_constraint
from dse.schema.own_chip import read_own_chip
from dse.schema.reader import (
    Flag,
    Listed,
    Mistakes,
    Place,
    Quantity,
    Raw,
    Refused,
    Schema,
    Share,
    field,
)
from dse.schema.system import Rack
from dse.schema.system import refusal as rack_refusal
from dse.schema.training import TrainingTerms

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
    of: dict[tuple[str, str], dict[str, Any]] = {}  # values by chip of each axis of a part
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
        parts = _parts(written)
        for pool, part in parts.items():
            taken = ("name", "chip", *parts) if not pool else ()
            for axis in (axis for axis in part if axis not in taken):
                if axis in (deployment.get(pool, {}) if pool else deployment):
                    message = f"{axis} stands below the systems, too"
                    mistakes.add((*at, k, *filter(None, (pool, axis))), message, "one of the two")
                of.setdefault((pool, str(axis)), {})[chip] = part[axis]
    pools: dict[str, Any] = {pool: {} for pool in POOL_AXES}
    made: dict[str, Any] = {"chip": list(names)}
    for (pool, axis), values in of.items():
        if lacking := [name for chip, name in names.items() if chip not in values]:
            named = f"{pool} {axis}".strip()
            message = f"{named} is missing in {', '.join(lacking)}"
            mistakes.add(at, message, f"{named} in every system or below them")
        (pools[pool] if pool else made)[axis] = {"values_by": "chip", "of": values}
    made |= {name: axis for name, axis in deployment.items() if name != SYSTEMS}
    for pool, axes in pools.items():
        below = deployment.get(pool, {})
        if not isinstance(below, Mapping):
            continue
        if "chip" in (axes | below):
            message = "beside systems: a pool is on the chips of its system"
            mistakes.add(("deployment", pool, "chip"), message, f"{pool} without chip")
        if axes or pool in deployment:
            made[pool] = axes | below
    return replace(document, data={**document.data, "deployment": made}), tuple(names.values())


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
        most = math.prod(_largest(part.get(axis, 1), chip) for axis in CHIP_DEGREES)
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


# The sections `training:` and `lifetime:` of a space file.

# Metrics whose names begin so need the section.
SECTIONS = {"training_": "training", "lifetime_": "lifetime"}
# These need none.
ALWAYS = ("training_tokens", "training_flops")


def check_training(
    terms: TrainingTerms | None,
    life: LifetimeTerms | None,
    basis: object,
    catalog: Catalog,
    costs: Costs | None,
    mistakes: Mistakes,
) -> TrainingTerms | None:
    """The terms, with the price basis of the study where the section names none. What is wrong goes
    to `mistakes`."""
    if life is not None and terms is None:
        accepted = "training: {chip: h100_sxm, chips: 1024}, too"
        mistakes.add(("lifetime",), "a life without training", accepted)
    if terms is None:
        return None
    priced = replace(terms, price_basis=terms.price_basis or str(basis))
    Place(mistakes, ("training",)).call(lambda: _check_chip(priced, catalog, costs))
    return priced


def _check_chip(terms: TrainingTerms, catalog: Catalog, costs: Costs | None) -> None:
    """Raises InputError where the chip does not exist, lacks a figure or has no price."""
    catalog.chip(terms.chip)
    refused = catalog.refusal(terms.chip, terms.chips / terms.sites)
    if refused is not None:
        raise InputError(refused, field="chip", accepted="a chip with that figure")
    if terms.price_basis == OWNED:
        lacking = lacks_for_owning(catalog, terms.chip, costs)
    else:
        priced = terms.chip in catalog.prices.select(str(terms.price_basis))
        lacking = None if priced else f"{terms.chip} has no price on basis {terms.price_basis}"
    if lacking is not None:
        raise InputError(lacking, field="chip", accepted="a chip with a price, or price_basis")


# The forecast of a model's life in a space file (`lifetime:`).


_TOKENS = Quantity("tokens", "1 to 1e24 tokens, such as 10T", 1.0, 1e24)


class LifetimeTerms(Schema):
    """`tokens` served in all, prompt and output; `input_share` of them are prompt tokens (None: as
    in the workload). Or, `tokens` None, `tokens_per_year` in the first of `years`, 1 + `growth`
    times as many in each further one."""

    tokens: float | None = field(_TOKENS, default=None)
    tokens_per_year: float | None = field(_TOKENS, default=None)
    years: float = field(Share(1e-3, 100.0), default=1.0, left_out=None)
    growth: float = field(Share(-1.0, 100.0), default=0.0, left_out=None)
    input_share: float | None = field(Share(0.0, 1.0), default=None)

    def check(self) -> LifetimeTerms:
        """Refuses a forecast that is given twice or in part."""
        given = [name for name, value in vars(self).items() if value is not None]
        if ("tokens" in given) == ("tokens_per_year" in given):
            message = "both given" if "tokens" in given else "neither given"
            accepted = "one of tokens: 10T and tokens_per_year: 5T with years: 3"
            raise Refused(message, accepted, "tokens")
        for name in ("years", "growth"):
            if name in given and "tokens" in given:
                accepted = "tokens_per_year in place of tokens"
                raise Refused("tokens are of the whole life", accepted, name)
        if not {"years", "tokens"} & {*given}:
            raise Refused("missing", "years of service, such as 3", "years")
        return replace(self, years=self.years or 1.0, growth=self.growth or 0.0)


# Views of a space file: questions that a front alone does not answer.
#
# views:
#   - by: sparse                          # the cheapest of each value at equal predicted loss
#     every_law: true                     # and what the other quality laws say of it
#   - by: chip                            # the same, and over a map of two axes for each value
#     map: [hidden_size, num_experts]

QUALITY = "predicted_loss"
COSTS = (
    "usd_per_million_total_tokens",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "usd_per_million_output_tokens_all_in",
)
_VIEW_EXAMPLE = "- by: sparse"


class View(Schema):
    """Compares the values of the axis `by`; `map` is empty or the two axes, rows then columns, over
    which the least price is drawn for each value. With `every_law` under all quality laws."""

    says = f"`{_VIEW_EXAMPLE}`, and map where it is wanted"

    by: str = field(Raw())
    map: tuple[str, ...] = field(
        Listed(Raw(), 2, 2, says="two axes: map: [hidden_size, num_experts]"), default=()
    )
    every_law: bool = field(Flag(), default=False)


def read_views(
    written: Any, axes: Sequence[Axis], objectives: Mapping[str, str], mistakes: Mistakes
) -> tuple[View, ...]:
    """The views of a file; what is wrong goes to `mistakes`."""
    if not isinstance(written, list | tuple):
        mistakes.add(("views",), f"read {written!r}", f"a list: {_VIEW_EXAMPLE}")
        return ()
    if written and not (
        objectives.get(QUALITY) == "minimize"
        and any(objectives.get(cost) == "minimize" for cost in COSTS)
    ):
        message = "a view is the least price at a predicted loss"
        mistakes.add(("views",), message, f"objectives {QUALITY} and one of {', '.join(COSTS)}")
    known = {axis.name for axis in axes if axis.ratio_of is None and len(axis.values) > 1}
    found = ((View.read(one, Place(mistakes, ("views", k))), k) for k, one in enumerate(written))
    good = [(view, Place(mistakes, ("views", k))) for view, k in found if view is not None]
    for view, at in good:
        at.call(lambda view=view: _check(view, sorted(known)))
    return tuple(view for view, _ in good)


def _check(view: View, known: Sequence[str]) -> None:
    """Raises Refused where a view is over no axis of the space, or over one twice."""
    for path, axis in (
        (("by",), view.by),
        *((("map", k), axis) for k, axis in enumerate(view.map)),
    ):
        if not isinstance(axis, str) or axis not in known:
            message = (
                f"read {axis!r}, no axis of two values or more here{did_you_mean(axis, known)}"
            )
            raise Refused(message, ", ".join(known), *path)
    names = (view.by, *view.map)
    if len(set(names)) < len(names):
        raise Refused(f"an axis twice: {', '.join(names)}", "different axes")


# What counts as a gain, and what is wanted most: the resolution of each objective, and the wish
# that a design to start from is chosen by.
#
# resolution: 0                                           # the exact front
#
# wish: cheapest at predicted_loss <= 1.95
# wish: best loss at usd_per_million_total_tokens <= 0.5 $/Mtoken


@record
class Resolution:
    """The difference of an objective that counts for nothing: in its SI unit, or a share of it
    where `relative`. `text` is what a person reads."""

    step: float
    relative: bool
    text: str


EXACT = Resolution(0.0, False, "0")
# Assumed: below what a law of loss, a price or a measured time can tell apart.
NATS = Resolution(0.001, False, "0.001 nats")
POINTS = Resolution(0.005, False, "0.005")
SHARE = Resolution(0.005, True, "0.5%")


def usual(name: str) -> Resolution:
    """The resolution of a metric where a space says nothing."""
    metric = METRICS[name]
    if metric.log:
        return SHARE
    return {"nats": NATS, "fraction": POINTS}.get(metric.dimension, SHARE)


def read_resolution(written: Any, objectives: Sequence[str], at: Place) -> dict[str, Resolution]:
    """The resolution of each of the objectives; what is wrong is noted."""
    if written is None:
        return {name: usual(name) for name in objectives}
    if isinstance(written, bool) or str(written).strip() not in ("0", "0.0", "0%"):
        at.refuse(written, "0 for the exact front, or no line of it")
    return dict.fromkeys(objectives, EXACT)


@record
class Wish:
    """What a design to start from is chosen by: the least of `best` (an objective) within `limits`
    on objectives, or, where `best` is empty, the least sum of the objectives, each scaled to the
    range of the front, by `weights` (which sum to 1, in the order of the objectives). `text` is
    what a person reads."""

    text: str
    weights: tuple[float, ...]
    best: str = ""
    limits: tuple[Limit, ...] = ()


ALIKE = Wish("all objectives alike", ())
_WISH = re.compile(r"(cheapest|fastest|best|lowest|highest)(?:\s+(\w+))?(?:\s+at\s+(.+))?")
_SHORT = {"loss": "predicted_loss", "quality": "predicted_loss"}
_WISH_EXAMPLE = "`cheapest at predicted_loss <= 1.95`, `best loss at tpot_s <= 20 ms`"


def read_wish(written: Any, objectives: Sequence[str], at: Place) -> Wish:
    """The wish of a space; equal weights where nothing is written. What is wrong is noted."""
    equal = Wish(ALIKE.text, (1.0 / max(len(objectives), 1),) * len(objectives))
    found = None if written is None else at.call(lambda: _limited(written, objectives))
    for message in filter(None, (limit.unusual for limit in found.limits)) if found else ():
        at.doubt(message)
    return found or equal


def _limited(written: Any, objectives: Sequence[str]) -> Wish:
    """Raises InputError for what is no wish over the objectives."""
    text = " ".join(str(written).split())
    match = _WISH.fullmatch(text)
    if match is None or (match[1] in ("best", "lowest", "highest")) != bool(match[2]):
        raise InputError(f"read {text!r}", accepted=_WISH_EXAMPLE)
    if match[2]:
        best = _SHORT.get(match[2], match[2])
        _check_objective(best, objectives)
    else:
        dollars = match[1] == "cheapest"
        kinds = [(name, METRICS[name].dimension) for name in objectives]
        fits = [name for name, kind in kinds if (name[:4] == "usd_" if dollars else kind == "s")]
        if not fits:
            raise InputError(
                f"read {text!r}, and no objective is in {'dollars' if dollars else 'seconds'}",
                accepted=", ".join(objectives),
            )
        best = fits[0]
    limits = [parse_constraint(one) for one in re.split(r"\s+and\s+|,\s*", match[3] or "") if one]
    for limit in limits:
        _check_objective(limit.metric, objectives)
    return Wish(text, tuple(float(name == best) for name in objectives), best, tuple(limits))


def _check_objective(name: str, objectives: Sequence[str]) -> None:
    if name not in objectives:
        hint = did_you_mean(name, objectives)
        raise InputError(
            f"{name} is no objective of this space{hint}", accepted=", ".join(objectives)
        )
