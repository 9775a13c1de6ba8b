"""The options of a plan: for every class, model, format and chip the best instance of each size
within the latency limits, by the vectorised model (`dse.problem.instances`).

Of a chip, sizes are kept that divide each other and the server, so that instances whose chips add
up to those of the servers always fit into them; among sizes, those that no smaller size replaces.

Where requests arrive at random (`dse.physics.queueing`), an instance has the highest rate at which
a percentile of first tokens comes in time. Each instance takes its share of the requests at random,
so that its arrivals are random too. Every way to divide an instance is searched at once, on grids
that close in: fewer requests make none slower, and no division serves more than the best does at a
steady load within the same limits.

Where prefill and decode are on pools of their own, of one chip or of two (`dse.problem.instances`),
pools are small: the program takes them as many times as it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.economics.fleet_cost import Option
from dse.errors import InputError, NothingFeasible
from dse.physics.workload import POISSON, Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.problem.instances import (
    Pool,
    Progress,
    Subject,
    batch_at,
    best_instances,
    best_pairs,
    decode_pool,
    division,
    evaluated,
    points,
    prefill_pool,
    subject_of,
    with_degrees,
)
from dse.problem.mix import Share, evaluate_mix, served
from dse.schema.backend import KINDS, find_backend
from dse.schema.metrics import Limit
from dse.schema.model_catalog import resolve_model
from dse.schema.plan import DemandClass, Plan
from dse.schema.traffic import PERCENTILES, Requests
from dse.schema.workloads import CURRENT_BACKEND
from dse.space.candidates import CandidateBatch, Floats
from dse.space.deployments import Deployments, powers_of_two

EVEN = 0.005  # of the rate: a larger option that is better by less is left out
# Random arrivals: the lowest rate that is tried, as a share of the steady one; the share by which
# divisions differ that are told apart by their time per token; rates of a grid, and grids one
# within a step of the other.
LEAST, SAME, POINTS, ROUNDS = 1e-4, 2e-3, 24, 3
# Pools: chips of both at most as times a worker's; the share by which a larger one must serve more
# a chip; how many of a pair of chips the program may choose from.
WORKERS, BETTER, KEPT = (2, 3, 4), 0.02, 5
MAKES = {"prefill": prefill_pool, "decode": decode_pool}

Pays = Callable[[Option], bool]
Formats = tuple[str | None, str | None, int | None]  # weights, cache and tokens drafted a step
Workers = tuple[Formats, Pool[Any]]  # of a class, one model on a chip
# Options by class, model, chip and formats, or why there are none; of one plan alone.
Known = dict[tuple[Any, ...], tuple[list[Option], str]]


def options_of(
    plan: Plan,
    catalog: Catalog,
    progress: Progress = lambda _: None,
    known: Known | None = None,
    *,
    largest: bool = False,
    pays: Pays = lambda _: True,
) -> tuple[list[Option], list[dict[str, str]]]:
    """The options, and rows of what is refused. `known` holds what was evaluated before for classes
    that differ in what they choose from alone, and takes what is new; with `largest`, of pools the
    largest alone; `pays` says of which pools more are wanted."""
    known = {} if known is None else known
    found: list[Option] = []
    refused: list[dict[str, str]] = []
    best: dict[str, dict[int, float]] = {chip.chip: {} for chip in plan.chips}
    of = [(one, model) for one in plan.demand for model in one.models]
    for (one, model), chip in [(pair, chip) for pair in of for chip in _chips(plan, pair[0])]:
        progress(f"{one.name}: {model} on {chip}")
        mine: list[Option] = []
        reason = ""
        for formats in _formats(one, {}):
            key = (one.name, model, chip, *formats)
            if key not in known:
                known[key] = _instances(plan, catalog, one, model, chip, formats)
            made, why = known[key]
            reason = why or reason
            rates = {
                option.chips[chip]: option.requests_per_s / option.chips[chip] for option in made
            }
            for size, rate in rates.items():
                share = rate / max(rates.values())
                best[chip][size] = max(best[chip].get(size, 0.0), share)
            mine += made
        found += mine
        if not mine:
            row = {"class": one.name, "chip": chip, "model": model, "reason": reason}
            refused.append(row)
    sizes = {chip.chip: _nested(best[chip.chip], chip.server) for chip in plan.chips}
    options = [one for one in found if all(n in sizes[chip] for chip, n in one.chips.items())]
    if plan.disaggregated:
        for one in plan.demand:
            options += _pools(plan, catalog, one, sizes, progress, largest, pays)
    return efficient(options), refused


def _chips(plan: Plan, one: DemandClass) -> list[str]:
    """Those that may serve a class."""
    return [row.chip for row in plan.chips if not row.classes or one.name in row.classes]


def _formats(one: DemandClass, own: Mapping[str, Any]) -> list[Formats]:
    """Formats to choose from, those of a pool its `own` where it has some."""
    weights, caches = own.get("weight_dtype", one.weight_dtypes), own.get("kv_dtype", one.kv_dtypes)
    drafts = tuple(count or None for count in one.draft_tokens)
    return list(product(weights or (None,), caches or (None,), drafts or (None,)))


def subject_of_class(
    plan: Plan, catalog: Catalog, one: DemandClass, model: str, chip: str, formats: Formats
) -> Subject:
    """A model of a class in one format on a chip, served by the software of the plan, or the chip's
    own where it leaves that open."""
    backend = plan.backend if plan.backend != CURRENT_BACKEND else catalog.chip(chip).backend
    mean, (weights, cache, drafted) = one.mean, formats
    return subject_of(
        catalog,
        resolve_model(model),
        chip,
        Workload.of(
            mean.prompt_tokens,
            mean.output_tokens,
            "continuous",
            find_backend(catalog.backends, backend),
            prefix_hit_rate=mean.prefix_hit_rate,
            **served(one.details),
        ),
        weight_dtype=weights,
        kv_dtype=cache,
        price_basis="",  # the program prices servers, not instances
        deployment={"draft_tokens": drafted},
        redundant_experts=one.redundant_experts,
    )


def _below_floor(one: DemandClass, model: str, subject: Subject) -> str | None:
    """Why the quality floor refuses the model; None where it does not. Raises InputError where the
    loss of the model cannot be predicted."""
    if not np.isfinite(one.most_loss):
        return None
    loss = predicted_loss(subject)
    if not np.isfinite(loss):
        raise InputError(
            f"{one.name}: {model} has no predicted loss: its training tokens are not known",
            field="predicted_loss_at_most",
            accepted="a model with known training tokens, or no floor",
        )
    if loss <= one.most_loss:
        return None
    return f"its predicted loss, {loss:.3f}, is above the floor of {one.most_loss:.3f}"


def predicted_loss(subject: Subject) -> float:
    metrics = evaluate(subject.one, subject.workload, subject.machines)
    return float(metrics.values["predicted_loss"][0])


def _instances(
    plan: Plan, catalog: Catalog, one: DemandClass, model: str, chip: str, formats: Formats
) -> tuple[list[Option], str]:
    """An option for each size of an instance in one format; where there is none, why."""
    subject = subject_of_class(plan, catalog, one, model, chip, formats)
    if lost := _below_floor(one, model, subject):
        return [], lost
    try:
        found = best_instances(
            subject,
            chips_up_to=plan.largest_instance,
            tpot_limit_s=one.tpot_s,
            ttft_limit_s=one.ttft_s,
        )
    except NothingFeasible as error:
        return [], str(error).split(". A lower")[0]
    table, last = found.within, found.sizes[-1]
    if not len(table):
        return [], str(found.why_not.get(last) or found.why_late.get(last))
    if one.percentile is not None:
        table = _poisson(subject, one, table)
        if not len(table):
            return [], "no rate of random arrivals keeps both limits"
    columns = {name: values.tolist() for name, values in table.columns.items()}
    options = [
        Option(
            klass=one.name,
            model=subject.model.name,
            chips={chip: size},
            requests_per_s=columns["output_tokens_per_s"][k] / one.mean.output_tokens,
            ttft_s=columns["ttft_s"][k],
            tpot_s=columns["tpot_s"][k],
            label=f"{size} x {chip}",
            percentile=one.percentile,
            formats=_format_words(formats[0], formats),
            division=columns["division"][k],
            concurrency=columns["concurrency"][k],
            bound=columns["bound"][k],
            kind=columns["known"][k],
        )
        for k, size in enumerate(table.chips.tolist())
    ]
    return options, ""


def _format_words(weights: str | None, formats: Formats) -> str:
    words = f"{weights or 'checkpoint format'}, {formats[1] or 'its own'} cache"
    return words + (f", {formats[2]} drafted" if formats[2] else "")


def _nested(best: Mapping[int, float], server: int) -> set[int]:
    """Sizes that divide each other and the server, or are whole servers; those first whose rate a
    chip comes nearest to the `best` of any."""
    if not best:  # a chip of one of two pools alone
        return {int(size) for size in powers_of_two(server) if server % size == 0}
    chain = [server]
    for size in sorted(best, key=lambda size: (-round(best[size], 3), size)):
        if all(size % other == 0 or other % size == 0 for other in chain):
            chain.append(size)
    return set(chain) & set(best)


def efficient(options: Sequence[Option]) -> list[Option]:
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


def _poisson(subject: Subject, one: DemandClass, steady: Deployments) -> Deployments:
    """The point with the highest rate of arrival for each size that has one; `steady` are those at
    a steady load, one a size, the smallest first. Its output rate is that of so many requests of
    the class, its `ttft_s` the percentile of the slowest stream; what bounds it is that of requests
    of mean lengths."""
    sizes, mean = steady.chips, one.mean
    every = subject.divided(sizes)
    table = every.take(evaluated(subject, every).runs)
    batch = batch_at(subject, table, 1.0)
    most = steady["output_tokens_per_s"] / mean.output_tokens
    rate, possible = _highest(subject, one, batch, most[np.searchsorted(sizes, table.chips)])
    tpot_s = at_rate(subject, one, batch, rate).values["tpot_s"]
    best = []
    for size in sizes:
        rows = np.flatnonzero((table.chips == size) & possible)
        if len(rows):
            rows = rows[rate[rows] >= (1.0 - SAME) * np.max(rate[rows])]
            best.append(rows[np.argmin(tpot_s[rows])])
    if not best:
        return steady.take(np.zeros(0, dtype=np.intp))
    rows = np.array(best, dtype=np.intp)
    table, rate = table.take(rows), rate[rows]
    values = at_rate(subject, one, batch[rows], rate).values
    alike = replace(subject, workload=_arriving(subject, mean, rate))
    found = points(subject, table, np.ceil(values["running_requests"]), evaluated(alike, table))
    return found.with_columns(
        ttft_s=values[PERCENTILES[one.percentile or 50]],
        tpot_s=values["tpot_s"],
        output_tokens_per_s=rate * mean.output_tokens,
    )


def _highest(
    subject: Subject, one: DemandClass, batch: CandidateBatch, most: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """(n,) requests per second of an instance, at most `most`, and whether there is such a rate."""
    rows = np.repeat(np.arange(len(batch)), POINTS)
    many, steps = batch[rows], np.linspace(0.0, 1.0, POINTS)
    low, width = np.full(len(batch), np.log(LEAST)), -np.log(LEAST)
    possible = np.ones(len(batch), dtype=bool)
    for _ in range(ROUNDS):
        share = np.minimum(low[:, None] + width * steps[None, :], 0.0)
        metrics = at_rate(subject, one, many, most[rows] * np.exp(share.ravel()))
        kept = metrics.feasible & (metrics.values["tpot_s"] <= one.tpot_s)
        kept &= metrics.values[PERCENTILES[one.percentile or 50]] <= one.ttft_s
        held = np.cumprod(kept.reshape(share.shape), axis=1).sum(axis=1)
        possible &= held > 0
        low = share[np.arange(len(batch)), np.maximum(held - 1, 0)]
        width /= POINTS - 1
    return most * np.exp(low), possible


def at_rate(subject: Subject, one: DemandClass, batch: CandidateBatch, rate: Floats) -> Metrics:
    """`rate` (n,) requests per second at each instance, over all streams of the class."""
    mix = tuple(
        Share(f"stream {k + 1}", stream.share, _arriving(subject, stream, rate))
        for k, stream in enumerate(one.streams)
    )
    return evaluate_mix(batch, mix, subject.machines)


def _arriving(subject: Subject, stream: Requests, rate: Floats) -> Workload:
    return replace(
        subject.workload,
        prompt_tokens=np.array([float(stream.prompt_tokens)]),
        output_tokens=np.array([float(stream.output_tokens)]),
        serving=POISSON,
        prefix_hit_rate=stream.prefix_hit_rate,
        requests_per_s=rate * stream.share,
    )


def _pools(
    plan: Plan,
    catalog: Catalog,
    one: DemandClass,
    sizes: Mapping[str, set[int]],
    progress: Progress,
    largest: bool,
    pays: Pays,
) -> list[Option]:
    """For every model, formats and ordered pair of chips, at most KEPT pools of workers of `sizes`
    by chip; with `largest` the one that serves most a chip, which is what counts in a fleet so
    large that instances need not be whole. A pair whose largest pool does not pay has none."""
    found: list[Option] = []
    limits = (
        Limit("ttft_s", "<=", one.ttft_s, "ttft"),
        Limit("tpot_s", "<=", one.tpot_s, "tpot"),
    )
    chips = _chips(plan, one)

    def workers(model: str, pool: str) -> Iterator[Workers]:
        """Of every chip and format that a pool of the class may have."""
        own = one.pools[pool]
        allowed = [chip for chip in chips if chip in own.get("chip", chips)]
        for chip, formats in product(allowed, _formats(one, own)):
            subject = subject_of_class(plan, catalog, one, model, chip, formats)
            if _below_floor(one, model, subject) is None:
                table = with_degrees(subject.divided(sorted(sizes[chip])), own)
                made = MAKES[pool](subject, table, limits)
                if len(made.table):
                    yield formats, made

    mixed = "weight_dtype" in {**one.pools["prefill"], **one.pools["decode"]}
    for model in one.models:
        progress(f"{one.name}: pools of {model}")
        for before, after in product(*(list(workers(model, pool)) for pool in MAKES)):
            same = before[0][1:] == after[0][1:]
            if same and (mixed or before[0] == after[0]):
                found += _pair(one, before, after, limits, largest, pays)
    return found


def _pair(
    one: DemandClass,
    first: Workers,
    second: Workers,
    limits: Sequence[Limit],
    largest: bool,
    pays: Pays,
) -> list[Option]:
    pools = (first[1], second[1])
    sizes = {int(n) for pool in pools for n in pool.table.chips}
    *smaller, most = sorted({n * chips for chips in sizes for n in WORKERS})
    (best,) = best_pairs(*pools, [most], limits)
    if best is not None and not pays(_pooled(one, first, second, best)):
        return []
    kept: list[dict[str, Any]] = []
    rest = [] if largest else best_pairs(*pools, smaller, limits)
    for pair in [*rest, best]:
        # The program takes small pools more often: a larger one must serve more a chip.
        if pair is not None and (not kept or _rate(pair) > (1.0 + BETTER) * _rate(kept[-1])):
            kept.append(pair)
    return [_pooled(one, first, second, pair) for pair in kept[-KEPT:]]


def _rate(pair: Mapping[str, Any]) -> float:
    return pair["requests_per_s"] / pair["chips"]


def _pooled(one: DemandClass, first: Workers, second: Workers, pair: Mapping[str, Any]) -> Option:
    chips, on, divided, known = dict[str, int](), [], [], []
    for name, (_, pool) in zip(MAKES, (first, second), strict=True):
        row, count, chip = pair[name], pair[f"{name}_workers"], pool.subject.chip
        size = int(pool.table.chips[row]) * count
        chips[chip] = chips.get(chip, 0) + size
        on.append(f"{name} on {size} x {chip}")
        divided.append(f"{name} {count} x ({division(pool.table.take(np.array([row])))[0]})")
        known.append(KINDS[int(pool.side.known[row])])
    weights = dict.fromkeys(formats[0] or "checkpoint format" for formats, _ in (first, second))
    return Option(
        klass=one.name,
        model=second[1].subject.model.name,
        chips=chips,
        requests_per_s=pair["requests_per_s"],
        ttft_s=pair["ttft_s"],
        tpot_s=pair["tpot_s"],
        label=", ".join(on),
        formats=_format_words(" and ".join(weights), second[0]),
        division=", ".join(divided),
        concurrency=int(pair["concurrency"]),
        bound="pools",
        kind=", ".join(dict.fromkeys(known)),
    )
