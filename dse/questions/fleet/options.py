"""The options of a plan: for every class, model, format and chip the best instance of each size
within the latency limits, by the vectorised model (`dse.problem.instances`).

Of a chip, sizes are kept that divide each other and the server, so that instances whose chips add
up to those of the servers always fit into them; among sizes, those that no smaller size replaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dse.catalog import Catalog
from dse.economics.fleet_cost import Option
from dse.errors import NothingFeasible
from dse.problem.instances import RATE, Progress, Subject, best_instances
from dse.questions.fleet.arrivals import NONE, poisson_points
from dse.questions.fleet.pools import Pays, pool_options
from dse.questions.fleet.subjects import below_floor, drafts_of, subject_of_class
from dse.schema.plan import DemandClass, Plan
from dse.space.deployments import Deployments, powers_of_two

EVEN = 0.005  # of the rate: a larger option that is better by less is left out


@dataclass(frozen=True, slots=True)
class Served:
    """One class, model, format and chip: `points` the best instance by its size."""

    klass: DemandClass
    subject: Subject
    formats: str
    points: Deployments


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a class cannot be served by a chip, or not with a model."""

    klass: str
    chip: str
    model: str
    reason: str


# Instances by class, model, chip, formats and drafts, or why there are none; of one plan alone.
Known = dict[tuple[Any, ...], tuple[Served | None, str]]


def options_of(
    plan: Plan,
    catalog: Catalog,
    progress: Progress = lambda _: None,
    known: Known | None = None,
    *,
    largest: bool = False,
    pays: Pays = lambda _: True,
) -> tuple[list[Option], list[Refusal]]:
    """The options, and what is refused. `known` holds what was evaluated before for classes that
    differ in what they choose from alone, and takes what is new; with `largest`, of pools the
    largest alone; `pays` says of which pools more are wanted."""
    known = {} if known is None else known
    served: list[Served] = []
    refused: list[Refusal] = []
    for one, model, chip in _triples(plan):
        progress(f"{one.name}: {model} on {chip}")
        found, reason = _served(plan, catalog, one, model, chip, known)
        served += found
        if not found:
            refused.append(Refusal(one.name, chip, model, reason))
    sizes = {
        chip.chip: _nested([row for row in served if row.subject.chip == chip.chip], chip.server)
        for chip in plan.chips
    }
    options = [
        _option(row, k)
        for row in served
        for k, chips in enumerate(row.points.chips.tolist())
        if chips in sizes[row.subject.chip]
    ]
    if plan.disaggregated:
        options += pool_options(plan, catalog, sizes, progress, largest=largest, pays=pays)
    return _efficient(options), refused


def _triples(plan: Plan) -> Iterator[tuple[DemandClass, str, str]]:
    for one in plan.demand:
        for model in one.models:
            for chip in plan.chips:
                if not chip.classes or one.name in chip.classes:
                    yield one, model, chip.chip


def _served(
    plan: Plan, catalog: Catalog, one: DemandClass, model: str, chip: str, known: Known
) -> tuple[list[Served], str]:
    """Every format of a model on a chip that serves the class, and why there is none."""
    found: list[Served] = []
    reason = ""
    for formats in product(one.weight_dtypes or (None,), one.kv_dtypes or (None,), drafts_of(one)):
        key = (one.name, model, chip, *formats)
        if key not in known:
            known[key] = _instances(plan, catalog, one, model, chip, *formats)
        served, why = known[key]
        reason = why or reason
        found += [] if served is None else [served]
    return found, reason


def _instances(
    plan: Plan,
    catalog: Catalog,
    one: DemandClass,
    model: str,
    chip: str,
    weight: str | None,
    kv: str | None,
    drafted: int | None,
) -> tuple[Served | None, str]:
    """The same of one format: None where there is none, and why."""
    subject = subject_of_class(plan, catalog, one, model, chip, weight, kv, drafted)
    lost = below_floor(one, model, subject)
    if lost:
        return None, lost
    try:
        found = best_instances(
            subject,
            chips_up_to=plan.largest_instance,
            tpot_limit_s=one.tpot_s,
            ttft_limit_s=one.ttft_s,
        )
    except NothingFeasible as error:
        return None, str(error).split(". A lower")[0]
    points, last = found.within, found.sizes[-1]
    if not len(points):
        return None, str(found.why_not.get(last) or found.why_late.get(last))
    if one.percentile is not None:
        points = poisson_points(subject, one, points)
        if not len(points):
            return None, NONE
    words = f"{weight or 'checkpoint format'}, {kv or 'its own'} cache"
    words += f", {drafted} drafted" if drafted else ""
    return Served(one, subject, words, points), ""


def _nested(served: Sequence[Served], server: int) -> set[int]:
    """Sizes that divide each other and the server, or are whole servers; the best first."""
    best: dict[int, float] = {}
    for row in served:
        rates = row.points[RATE].tolist()
        for chips, rate in zip(row.points.chips.tolist(), rates, strict=True):
            best[chips] = max(best.get(chips, 0.0), rate / max(rates))
    if not best:  # a chip of one of two pools alone
        return {int(size) for size in powers_of_two(server) if server % size == 0}
    chain = [server]
    for size in sorted(best, key=lambda size: (-round(best[size], 3), size)):
        if all(size % other == 0 or other % size == 0 for other in chain):
            chain.append(size)
    return set(chain) & set(best)


def _option(row: Served, k: int) -> Option:
    one = row.klass
    point = {name: values.tolist()[k] for name, values in row.points.columns.items()}
    size = int(row.points.chips[k])
    return Option(
        klass=one.name,
        model=row.subject.model.name,
        chips={row.subject.chip: size},
        requests_per_s=point["output_tokens_per_s"] / one.traffic.mean.output_tokens,
        ttft_s=point["ttft_s"],
        tpot_s=point["tpot_s"],
        label=f"{size} x {row.subject.chip}",
        detail={
            "percentile": one.percentile,
            "formats": row.formats,
            "division": point["division"],
            "concurrency": point["concurrency"],
            "bound": point["bound"],
            "kind": point["known"],
        },
    )


def _efficient(options: Sequence[Option]) -> list[Option]:
    """Those that no number of other instances replaces, on no more of the same chips."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (sum(o.chips.values()), -o.requests_per_s)):
        if not any(_replaces(other, option) for other in kept):
            kept.append(option)
    return kept


def _replaces(other: Option, option: Option) -> bool:
    """Whether as many of `other` as the chips of `option` hold serve as much."""
    if other.klass != option.klass or any(chip not in option.chips for chip in other.chips):
        return False
    fit = min(option.chips[chip] // chips for chip, chips in other.chips.items())
    return fit * other.requests_per_s >= option.requests_per_s * (1.0 - EVEN)
