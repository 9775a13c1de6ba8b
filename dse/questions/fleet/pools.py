"""Options whose prefill and decode are on pools of their own, of one chip or of two
(`dse.problem.paired`): small pools, which the program takes as many times as it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.economics.fleet_cost import Option
from dse.problem.instances import Progress, division
from dse.problem.paired import Pair, Pool, best_pairs, decode_pool, prefill_pool, with_degrees
from dse.questions.fleet.subjects import below_floor, drafts_of, subject_of_class
from dse.schema.calibration import KINDS
from dse.schema.metrics import Limit
from dse.schema.plan import DemandClass, Plan

WORKERS = (2, 3, 4)  # times a worker's chips: of both pools at most
EVEN = 0.02  # of the rate a chip: a larger pool that is better by less is left out
KEPT = 5  # pools of a pair of chips that the program may choose from
MAKES = {"prefill": prefill_pool, "decode": decode_pool}

Pays = Callable[[Option], bool]


@dataclass(frozen=True, slots=True)
class _Workers:
    """The workers of a pool of a class, one model and formats on a chip."""

    chip: str
    weights: str | None
    cache: str | None
    drafted: int | None
    pool: Pool[Any]


def pool_options(
    plan: Plan,
    catalog: Catalog,
    sizes: Mapping[str, set[int]],
    progress: Progress,
    *,
    largest: bool = False,
    pays: Pays = lambda _: True,
) -> list[Option]:
    """For every class, model, formats and ordered pair of chips, at most KEPT pools of workers of
    `sizes` by chip; with `largest` the one that serves most a chip, which is what counts in a fleet
    so large that instances need not be whole. A pair whose largest pool does not pay has none."""
    found: list[Option] = []
    for one in plan.demand:
        limits = (
            Limit("ttft_s", "<=", one.ttft_s, "ttft"),
            Limit("tpot_s", "<=", one.tpot_s, "tpot"),
        )
        mixed = "weight_dtype" in {**one.pools["prefill"], **one.pools["decode"]}
        for model in one.models:
            progress(f"{one.name}: pools of {model}")
            first, second = (
                list(_workers(plan, catalog, one, model, pool, sizes, limits)) for pool in MAKES
            )
            for before, after in product(first, second):
                same = (before.cache, before.drafted) == (after.cache, after.drafted)
                if same and (mixed or before.weights == after.weights):
                    found += _pair(one, before, after, limits, largest, pays)
    return found


def _workers(
    plan: Plan,
    catalog: Catalog,
    one: DemandClass,
    model: str,
    pool: str,
    sizes: Mapping[str, set[int]],
    limits: Sequence[Limit],
) -> Iterator[_Workers]:
    """Of every chip and format that a pool of the class may have."""
    own = one.pools[pool]
    chips = [row.chip for row in plan.chips if not row.classes or one.name in row.classes]
    for chip, weights, cache, drafted in product(
        [chip for chip in chips if chip in own.get("chip", chips)],
        own.get("weight_dtype", one.weight_dtypes) or (None,),
        own.get("kv_dtype", one.kv_dtypes) or (None,),
        drafts_of(one),
    ):
        subject = subject_of_class(plan, catalog, one, model, chip, weights, cache, drafted)
        if below_floor(one, model, subject) is None:
            table = with_degrees(subject.divided(sorted(sizes[chip])), own)
            made = MAKES[pool](subject, table, limits)
            if len(made.table):
                yield _Workers(chip, weights, cache, drafted, made)


def _pair(
    one: DemandClass,
    first: _Workers,
    second: _Workers,
    limits: Sequence[Limit],
    largest: bool,
    pays: Pays,
) -> list[Option]:
    sizes = {int(n) for workers in (first, second) for n in workers.pool.table.chips}
    *smaller, most = sorted({n * chips for chips in sizes for n in WORKERS})
    (best,) = best_pairs(first.pool, second.pool, [most], limits)
    if best is not None and not pays(_option(one, first, second, best)):
        return []
    kept: list[Pair] = []
    rest = [] if largest else best_pairs(first.pool, second.pool, smaller, limits)
    for pair in [*rest, best]:
        # The program takes small pools more often: a larger one must serve more a chip.
        if pair is not None and (not kept or _rate(pair) > (1.0 + EVEN) * _rate(kept[-1])):
            kept.append(pair)
    return [_option(one, first, second, pair) for pair in kept[-KEPT:]]


def _rate(pair: Pair) -> float:
    return pair.requests_per_s / pair.chips


def _option(one: DemandClass, first: _Workers, second: _Workers, pair: Pair) -> Option:
    rows = ((first, pair.prefill, pair.a), (second, pair.decode, pair.b))
    chips = [int(w.pool.table.chips[row]) * count for w, row, count in rows]
    uses: dict[str, int] = {}
    for workers, n in zip((first, second), chips, strict=True):
        uses[workers.chip] = uses.get(workers.chip, 0) + n
    split = [f"{n} x ({division(w.pool.table.take(np.array([row])))[0]})" for w, row, n in rows]
    weights = dict.fromkeys(w.weights or "checkpoint format" for w in (first, second))
    words = f"{' and '.join(weights)}, {second.cache or 'its own'} cache"
    kinds = dict.fromkeys(KINDS[int(w.pool.side.known[row])] for w, row, _ in rows)
    return Option(
        klass=one.name,
        model=second.pool.subject.model.name,
        chips=uses,
        requests_per_s=pair.requests_per_s,
        ttft_s=pair.ttft_s,
        tpot_s=pair.tpot_s,
        label=f"prefill on {chips[0]} x {first.chip}, decode on {chips[1]} x {second.chip}",
        detail={
            "percentile": None,
            "formats": words + (f", {second.drafted} drafted" if second.drafted else ""),
            "division": f"prefill {split[0]}, decode {split[1]}",
            "concurrency": int(pair.in_flight),
            "bound": "pools",
            "kind": ", ".join(kinds),
        },
    )
