"""The inputs of a study that a question may change, each under a name, the study with some of them
changed, and its front and winner then.

    chip.ID.FIGURE        a figure or the price of one chip; chip.all.FIGURE of every one
    workload.FIGURE       lengths, cache hits, rate of arrivals; workload.NAME.FIGURE of one of many
    demand                tokens a second to serve, input and output; where requests arrive at
                          random and no such demand is given, the requests per second that arrive
                          at one deployment
    peak_over_average     of the demand
    limit.METRIC          a limit of the study, or a new one
    costs.NAME            a cost of owning, on the price basis owned_tco; costs.ID.price,
                          server_price or power of one chip

A changed figure of a chip is a hypothetical chip (`dse.schema.derive`) in the place of the chip:
what was measured on it is kept as a fraction of the figure.

A space of up to 3 million points is enumerated: before and after are both the true front. A larger
one is searched, with the seed of the study, before and after; each search's front with its
neighbours one parameter away is then looked at under both, so that neither side is the better for
luck.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse import units
from dse.answer.numbers import number, significant
from dse.catalog import Catalog, with_own_chips
from dse.data import rows_beside
from dse.economics.tco import owning
from dse.errors import Doubt, InputError, NothingFeasible
from dse.pareto import Archive
from dse.physics.machines import compile_machines
from dse.physics.workload import POISSON
from dse.problem.describe import describe_metrics
from dse.problem.evaluate import Metrics
from dse.problem.mix import Mix, Share
from dse.problem.objective import KNOWN, TOTAL, Demanded, at_demand, on_terms, with_power
from dse.problem.protocol import Evaluation
from dse.problem.shapes import model_at
from dse.problem.training import trained_of
from dse.problem.words import short_deployment, short_shape
from dse.record import record
from dse.rules.registry import STRUCTURAL
from dse.schema.backend import KINDS
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import CHIP_RULES, RULES, Rule
from dse.schema.derive import derive
from dse.schema.loader import did_you_mean, load_yaml
from dse.schema.metrics import METRICS, Limit, parse_limit
from dse.schema.model import config_of
from dse.schema.plausible import OF_METRIC, USD_PER_HOUR, unusual, usual_of
from dse.schema.reader import ByName, Field, Place, Table, read
from dse.schema.traffic import Demand, rate_words, read_rate
from dse.search.evaluator import ENUMERATE
from dse.search.parallel import threaded

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Progress = Callable[[str], None]
ALL, PRICE, COSTS, ANY_CHIP = "all", "price", "costs.", "chip.all."
DEMAND, PEAK, ARRIVALS = "demand", "peak_over_average", "requests/s"
TTFT, TPOT = "ttft_s", "tpot_s"
RATE, CHIP_RATE = "output_tokens_per_s", "output_tokens_per_s_per_chip"
CHUNK, THREADS = 16_384, 2
# Figures of a chip, with the names that `derive` and `dse.schema.figure` take, and of a workload.
_INPUTS = rows_beside(__file__, "inputs.csv")
FIGURES = {row["name"]: row for row in _INPUTS if row["of"] == "chip"}
LOADS = {row["name"]: row for row in _INPUTS if row["of"] == "workload"}
WAYS = "a factor (1.2x), a percentage (+10%) or a value with its unit"
NAMES = (
    f"chip.ID.FIGURE or chip.{ALL}.FIGURE ({', '.join([PRICE, *FIGURES])}), workload.FIGURE, "
    f"{DEMAND}, {PEAK}, limit.METRIC or, on basis {OWNED}, {COSTS}NAME; dse whatif STUDY --detail "
    "lists them"
)
_FACTOR = re.compile(r"([-+0-9.eE]+)\s*[x×]|[x×]\s*([-+0-9.eE]+)")
_PERCENT = re.compile(r"([+-][0-9.eE]+)\s*%")


@record
class Subject:
    """A posed study with the catalog that it was posed against, before prices of owned chips.
    `objective` is the metric that the winner is best in; `seed` and `engine` find the front,
    `notes` are what a reader must know."""

    problem: Demanded
    catalog: Catalog
    title: str = ""
    objective: str = ""
    seed: int = 0
    engine: str = "auto"
    notes: tuple[str, ...] = ()


def random_arrivals(problem: Demanded) -> bool:
    return problem.mix[0].workload.serving == POISSON


# Inputs by name, and what a text makes of them.


@record
class Bounds:
    """What an input that is no cost may be, as `dse.schema.costs.Rule` of one that is: its unit
    (of `dse.units` or `dse.schema.metrics`), and from which value to which."""

    unit: str
    least: float = 0.0
    most: float = math.inf
    above: bool = True  # more than `least`, not equal to it
    usual: tuple[float, float] = (0.0, math.inf)
    parse: Callable[[str, str], float] = parse_limit

    @property
    def accepted(self) -> str:
        return f"{self.least:g} to {self.most:g}" if self.most < math.inf else "more than 0"

    def allows(self, value: float) -> bool:
        return value <= self.most and (value > self.least if self.above else value >= self.least)

    def unusual(self, value: float) -> str:
        """What is said of a value outside the usual ones; nothing of others."""
        return unusual(value, self.usual, self.show)

    def read(self, text: str) -> float:
        return self.parse(text, self.unit)

    def show(self, value: float) -> str:
        """A value as a person reads it."""
        if self.parse is _rate:
            return rate_words(value)
        if self.unit == "tokens":
            return f"{value:,.5g}" if value < 1e5 else f"{value:,.0f}"
        if self.unit in units.DIMENSIONS and self.unit != "usd/h":
            return units.format(value, self.unit, 4)
        unit = self.unit.replace("usd", "USD")
        return f"{value:.4g}" if unit == "fraction" else f"{value:.4g} {unit}"


def _rate(text: str, unit: str) -> float:
    """A demand in tokens."""
    return read_rate(text)


def _arrivals(text: str, unit: str) -> float:
    return units.parse(text.removesuffix(unit), "count")


@record
class Input:
    """One input: its value now, SI; None where it has none yet, or not one."""

    name: str
    rule: Bounds | Rule
    now: float | None = None


@record
class Change:
    """An input multiplied by `factor`, or set to `value` (SI) where that is given."""

    input: Input
    factor: float = 1.0
    value: float | None = None
    written: str = ""

    @property
    def after(self) -> float | None:
        """The value that the input then has; None where it has not one."""
        if self.value is not None:
            return self.value
        return None if self.input.now is None else self.input.now * self.factor


def inputs_of(subject: Subject) -> dict[str, Input]:
    """Every input of a study by its name."""
    problem, catalog, found = subject.problem, subject.catalog, []
    usd = [number(price) for price in problem.machines.usd_per_chip_hour]
    for chip, price in ((ALL, None), *zip(problem.machines.ids, usd, strict=True)):
        for name, row in FIGURES.items():
            now = None if chip == ALL else _figure(catalog, chip, name)
            kind = "" if chip == ALL else catalog.chip(chip).memories[0].kind
            usual = usual_of(row["figure"], kind)
            bounds = Bounds(row["unit"], above=name != "link_latency", usual=usual)
            found.append(Input(f"chip.{chip}.{name}", bounds, now))
        found.append(Input(f"chip.{chip}.{PRICE}", Bounds("usd/h", usual=USD_PER_HOUR), price))
    rates, several = random_arrivals(problem), len(problem.mix) > 1
    for share in [None, *(problem.mix if several else ())]:
        prefix = "workload." if share is None else f"workload.{share.name}."
        own = None if several and share is None else share or problem.mix[0]
        for name, row in LOADS.items():
            if name != "requests_per_second" or rates:
                now = None if own is None else _load(own, name)
                bounds = Bounds(row["unit"], float(row["least"]), float(row["most"]), above=False)
                found.append(Input(f"{prefix}{name}", bounds, now))
    demand = problem.demand
    asked = Input(DEMAND, Bounds("tokens/s", parse=_rate), demand and demand.average_tokens_per_s)
    if demand is None and rates:
        total = math.fsum(_load(share, "requests_per_second") for share in problem.mix)
        asked = Input(DEMAND, Bounds(ARRIVALS, parse=_arrivals), total)
    ratio = Bounds("fraction", 1.0, 1e6, above=False)
    found += [asked, Input(PEAK, ratio, demand and demand.peak_over_average)]
    now = {".".join(filter(None, (one.workload, one.metric))): one.limit for one in problem.limits}
    for name in dict.fromkeys([*now, *METRICS]):
        metric = name.rpartition(".")[2]
        bounds = Bounds(METRICS[metric].dimension, usual=OF_METRIC.get(metric, (0.0, math.inf)))
        found.append(Input(f"limit.{name}", bounds, now.get(name)))
    if (costs := problem.study.costs) is not None:
        found += [Input(f"{COSTS}{name}", rule, costs.value(name)) for name, rule in RULES.items()]
        for chip in problem.machines.ids:
            one = owning(catalog, chip, costs)
            known = {one.price.name: one.price.value, "power": one.meter_w}
            found += [Input(f"{COSTS}{chip}.{n}", r, known.get(n)) for n, r in CHIP_RULES.items()]
    return {one.name: one for one in found}


def _figure(catalog: Catalog, chip: str, name: str) -> float | None:
    spec = catalog.chip(chip)
    levels = catalog.systems[spec.system].levels
    value = {
        "memory_bandwidth": spec.memories[0].bytes_per_s,
        "memory_capacity": spec.capacity_bytes,
        "peak": spec.peak_flops_per_s["bf16"],
        "link_bandwidth": levels[0].bytes_per_s_per_direction,
        "link_latency": levels[0].latency_s,
        "scale_out_bandwidth": levels[-1].bytes_per_s_per_direction,
        "tdp": math.nan if spec.tdp_w is None else spec.tdp_w,
    }[name]
    return number(value)


def _load(share: Share, name: str) -> float:
    value = getattr(share.workload, name.replace("second", "s"))
    return 0.0 if value is None else float(np.atleast_1d(value)[0])


def change_to(name: str, text: str, known: Mapping[str, Input], field: str = "--set") -> Change:
    """The change of an input by its name that a text asks for; a value that is far from what is
    usual is warned of. Raises InputError with near names and the values that are accepted."""
    name, text = name.strip(), text.strip()
    if name not in known and name.startswith(COSTS) and f"{COSTS}life" not in known:
        raise InputError(
            f"{name}: costs of owning count on the price basis {OWNED} only",
            field=field,
            accepted=f"{OWNED} as the price basis, or chip.ID.{PRICE} on this one",
        )
    if name not in known:
        near = did_you_mean(name, known)
        raise InputError(f"unknown input {name!r}{near}", field=field, accepted=NAMES)
    change = _read(known[name], text, field)
    after = change.after
    if after is None or after == change.input.now:
        return change
    if said := change.input.rule.unusual(after):
        shown = "" if change.value is not None else f", which is {change.input.rule.show(after)}"
        warnings.warn(f"{field}: read {text!r}{shown}{said}", Doubt, stacklevel=3)
    return change


def _read(one: Input, text: str, field: str) -> Change:
    percent, times = _PERCENT.fullmatch(text), _FACTOR.fullmatch(text)
    if percent or times:
        # A share is a number of percent itself; only a sign makes it a change.
        digits = percent[1] if percent else (times[1] or times[2]) if times else ""
        try:
            factor = 1.0 + float(digits) / 100.0 if percent else float(digits)
        except ValueError:
            raise InputError(f"read {text!r}", field=field, accepted=WAYS) from None
        if factor < 0.0:
            message = f"{one.name} would be negative"
            raise InputError(message, field=field, accepted="more than -100%, or a factor above 0")
        return checked(Change(one, factor, None, text), field)
    if text.startswith("-"):
        raise InputError(f"read {text!r}: negative", field=field, accepted=WAYS)
    try:
        value = one.rule.read(text)
    except InputError as error:
        accepted = f"1.2x, +10%, or {error.accepted}"
        raise InputError(error.message, field=field, accepted=accepted) from None
    if one.name.endswith(("prompt_tokens", "output_tokens")) and value != int(value):
        accepted = "a whole number of tokens"
        raise InputError(f"{one.name}: read {text!r}", field=field, accepted=accepted)
    return checked(Change(one, 1.0, value, text), field)


def checked(change: Change, field: str) -> Change:
    """Raises InputError for a factor of what has no value, and for a value out of its bounds."""
    one, after, message, accepted = change.input, change.after, "", "a value with its unit"
    if change.factor > 1e6 or 0.0 < change.factor < 1e-6 or (after is None and not change.factor):
        message, accepted = f"a factor of {change.factor:g}", "1e-6 to 1e6"
    elif after is None and not one.name.startswith((f"chip.{ALL}.", "workload.")):
        message = f"{one.name} has no value that could be multiplied"
    elif change.value is None and one.now == 0.0 and change.factor != 1.0:
        message = f"{one.name} is 0, which no factor changes"
    elif after is not None and not one.rule.allows(after):
        message, accepted = f"{one.name} would be {one.rule.show(after)}", one.rule.accepted
    if message:
        raise InputError(message, field=field, accepted=accepted)
    return change


def changes_of(given: Mapping[str, str], known: Mapping[str, Input]) -> tuple[Change, ...]:
    """What becomes of inputs by their names, as `--set` says it. Raises InputError."""
    return tuple(
        change_to(name, text, known, f"--set {name}={text}") for name, text in given.items()
    )


@record
class Scenario:
    """Reads `{INPUT: CHANGE}`."""

    known: Mapping[str, Input]

    def read(self, written: Any, at: Place) -> tuple[Change | None, ...] | None:
        if not isinstance(written, Mapping) or not written:
            return at.refuse(written, "INPUT: CHANGE lines, such as chip.all.price: 0.8x")
        lines = [(str(name), str(text)) for name, text in written.items()]
        return tuple(at.call(partial(change_to, *line, self.known, line[0])) for line in lines)


def scenarios_of(path: str, known: Mapping[str, Input]) -> dict[str, tuple[Change, ...]]:
    """The scenarios of a file: `scenarios: {NAME: {INPUT: CHANGE}}`. Raises InputError with file,
    line and field."""
    form, document = "scenarios: {NAME: {INPUT: CHANGE}}", load_yaml(path)
    file = Table(Field("scenarios", ByName(Scenario(known), says=form)))
    if not (found := read(file, document)["scenarios"]):
        raise document.error(("scenarios",), "no scenario", form)
    return found


def between(a: Change, b: Change, x: float) -> Change:
    """The change a share `x` of the way from `a` to `b`."""
    if a.value is None or b.value is None:
        factor = a.factor + x * (b.factor - a.factor)
        return replace(a, factor=factor, written=f"{factor:.4g}x")
    value = a.value + x * (b.value - a.value)
    return replace(a, value=value, written=a.input.rule.show(value))


# The study with inputs changed.


def apply(subject: Subject, changes: Sequence[Change]) -> Demanded:
    """The study with its inputs changed: the same space, other machines, workloads and limits; a
    chip with other figures is a hypothetical one under the same id.

    A later change of an input takes the place of an earlier one of the same input; `chip.all` comes
    before a chip by its name. Raises InputError for a figure that a chip does not have.
    """
    problem, catalog, study = subject.problem, subject.catalog, subject.problem.study
    mix, limits, demand, ids = problem.mix, problem.limits, problem.demand, problem.machines.ids
    costs: dict[str, float] = {}
    owned: dict[str, dict[str, float]] = {}
    settings: dict[str, dict[str, str]] = {}
    prices: list[tuple[str, Change]] = []
    last = {change.input.name: change for change in changes}
    for change in sorted(last.values(), key=lambda one: not one.input.name.startswith(ANY_CHIP)):
        kind, _, rest = change.input.name.partition(".")
        of, _, figure = rest.rpartition(".")
        if kind == "chip" and figure == PRICE:
            prices.append((of, change))
        elif kind == "chip":
            row, to = FIGURES[figure], f"{change.factor!r}x"
            if change.value is not None:
                to = units.format(change.value, row["unit"], 12)
            for one in ids if of == ALL else (of,):
                if of != ALL or _figure(catalog, one, figure) is not None:
                    settings.setdefault(one, {})[figure] = f"{row['derive']}={to}"
        elif kind == "costs" and change.after is not None:
            (owned.setdefault(of, {}) if of else costs)[figure] = change.after
        elif kind == "limit":
            limits = _changed_limits(limits, figure, of, change)
        elif kind == "workload" or change.input.rule.unit == ARRIVALS:
            mix = _changed_mix(mix, figure, of, change)
        elif kind in (DEMAND, PEAK):
            field = "average_tokens_per_s" if kind == DEMAND else kind
            demand = replace(demand or Demand(None, 1.0), **{field: change.after})
    if study.costs is not None and (costs or owned):
        study = replace(study, costs=study.costs.changed(costs, owned, "a what-if"))
        problem = replace(problem, study=study, trained=trained_of(study, on_terms(catalog, study)))
    if settings or costs or owned:
        for chip, own in settings.items():
            found = derive(catalog, chip, list(own.values()))
            grown = with_own_chips(catalog, [found])
            changed = {**catalog.chips, chip: replace(grown.chips[found.chip.id], id=chip)}
            known = {"prices": catalog.prices, "purchases": catalog.purchases}
            catalog = replace(grown, chips=changed, **known)
        catalog, software = on_terms(catalog, study), [one.id for one in problem.machines.backends]
        machines = compile_machines(catalog, ids, study.price_basis, study.rack, backends=software)
        problem = with_power(replace(problem, machines=machines), catalog)
    usd = problem.machines.usd_per_chip_hour.copy()
    for chip, change in prices:
        rows = slice(None) if chip == ALL else ids.index(chip)
        usd[rows] = usd[rows] * change.factor if change.value is None else change.value
    machines = replace(problem.machines, usd_per_chip_hour=usd)
    return replace(problem, machines=machines, mix=mix, limits=limits, demand=demand)


def _changed_mix(mix: Mix, figure: str, name: str, change: Change) -> Mix:
    """The workloads with one figure changed, of all or of the one that is named; a demand of no
    figure is divided as it was before."""
    value, factor = change.value, change.factor
    if not figure and value is not None:
        value, factor = None, value / (change.input.now or 1.0)
    figure = figure or "requests_per_second"
    field, made = figure.replace("second", "s"), []
    for share in mix:
        if name in ("", share.name):
            to: Any = _load(share, figure) * factor if value is None else value
            if field in ("requests_per_s", "prompt_tokens", "output_tokens"):
                to = np.array([to])
            share = replace(share, workload=replace(share.workload, **{field: to}))
        made.append(share)
    if len(made) == 1 or mix[0].workload.serving != POISSON:
        return tuple(made)
    # Shares of the requests are those of the rates where requests arrive at random.
    rates = [float(share.workload.requests_per_s[0]) for share in made]
    total = math.fsum(rates)
    return tuple(replace(one, weight=r / total) for one, r in zip(made, rates, strict=True))


def _changed_limits(
    limits: tuple[Limit, ...], metric: str, workload: str, change: Change
) -> tuple[Limit, ...]:
    """The limits with one changed or added."""
    after = change.after or 0.0
    prefix, shown = f"{workload}: " if workload else "", change.input.rule.show(after)
    if not any((one.metric, one.workload) == (metric, workload) for one in limits):
        operator = "<=" if METRICS[metric].direction == "minimize" else ">="
        limits = (*limits, Limit(metric, operator, after, "", workload))
    return tuple(
        replace(one, limit=after, text=f"{prefix}{metric} {one.operator} {shown}")
        if (one.metric, one.workload) == (metric, workload)
        else one
        for one in limits
    )


# Its front and winner.


@record
class Solved:
    """The front of one set of inputs, ordered by id: `ids` (k,), `F` (k, m). `winner_id` is the
    point that is best in the objective, None where nothing is feasible; `miss` then says what is in
    the way. `value` is the winner's objective, `apart` how many of the `feasible` points have pools
    of their own for prefill and decode."""

    problem: Demanded
    ids: Ids
    F: Floats
    winner_id: int | None
    feasible: int
    apart: int = 0
    value: float | None = None
    miss: str = ""

    @property
    def point(self) -> dict[str, Any]:
        """The winner as a row; empty where nothing is feasible."""
        return {} if self.winner_id is None else points(self.problem, [self.winner_id])[0]


@dataclass(frozen=True)
class Stand:
    """A subject with the points that are looked at, `ids` sorted, and how they were found: its
    front as things stand, `now`, and with inputs changed. `enumerated`: `ids` are all points that
    any change can make feasible."""

    subject: Subject
    ids: Ids
    enumerated: bool
    how: str
    progress: Progress

    @property
    def problem(self) -> Demanded:
        return self.subject.problem

    @property
    def objective(self) -> str:
        return self.subject.objective

    @cached_property
    def now(self) -> Solved:
        return self.solve(self.problem)

    def solve(self, problem: Demanded) -> Solved:
        return solve(problem, self.ids, self.objective)

    def under(self, *changes: Change) -> Solved:
        """The front anew. Raises InputError for a figure that a chip does not have."""
        return self.solve(apply(self.subject, changes))

    @cached_property
    def winner(self) -> dict[str, Any]:
        """The winner as things stand, as a row. Raises NothingFeasible."""
        if self.now.winner_id is None:
            raise NothingFeasible(
                f"no point is feasible as things stand: the nearest one breaks {self.now.miss}"
            )
        return self.now.point

    def within(self, reach: float, slack: float) -> Stand:
        """The same with the points within a factor `reach` of the winner and a share `slack` of
        the limits, which a small change can make the winner."""
        column = [one.metric for one in self.problem.objectives].index(self.objective)
        best = float(self.now.F[self.now.ids == self.now.winner_id, column][0])
        bound = best * reach if best > 0.0 else best / reach
        kept = []
        for ids, _, found in chunks(self.problem, self.ids):
            close = (found.F[:, column] <= bound) & (slack >= found.G).all(axis=1)
            kept.append(ids[close])
        return replace(self, ids=np.concatenate(kept))


def stand_of(
    subject: Subject,
    changes: Sequence[Sequence[Change]] = (),
    progress: Progress = lambda text: None,
) -> Stand:
    """The subject with all points that are looked at: every point whose shape and degrees agree, or
    those that a search finds, as things stand and under each of `changes`, and their neighbours."""
    problem, kept, evaluations = subject.problem, [np.zeros(0, np.int64)], 0
    space, size = problem.space, problem.space.size
    if size <= ENUMERATE:
        rows = [problem.constraints.index(rule) for rule in STRUCTURAL]
        for ids, _, found in chunks(problem, np.arange(size, dtype=np.int64)):
            kept.append(ids[(found.G[:, rows] <= 0.0).all(axis=1)])
            progress(f"{int(ids[-1]) + 1:,} of {size:,} points")
        whole = "The one point" if size == 1 else f"All {size:,} points"
        how = f"{whole} of the space {'was' if size == 1 else 'were'} evaluated, before and after."
        return Stand(subject, np.concatenate(kept), True, how, progress)
    from dse.search.run import search  # noqa: PLC0415 - Optuna takes 300 ms

    engine = "auto" if subject.engine == "exhaustive" else subject.engine
    for posed in (problem, *(apply(subject, some) for some in changes)):
        found = search(posed, engine, seed=subject.seed)
        front, engine, evaluations = found.front.ids, found.engine, evaluations + found.evaluations
        kept.append(front)
        if len(front):
            kept.append(space.rank(space.neighbours(space.unrank(front))))
    how = (
        f"The space is too large to enumerate: {engine} searched it from the same seed, before and "
        f"after, {evaluations:,} evaluations; questions look at what it found and one parameter "
        "around."
    )
    return Stand(subject, np.unique(np.concatenate(kept)), False, how, progress)


def chunks(problem: Demanded, ids: Ids) -> Iterator[tuple[Ids, Metrics, Evaluation]]:
    """(ids, metrics, F and G) of the points, in order, CHUNK at a time."""

    def one(part: Ids) -> tuple[Ids, Metrics, Evaluation]:
        metrics = problem.metrics(problem.space.unrank(part))
        return part, metrics, problem.judge(metrics)

    parts = [ids[k : k + CHUNK] for k in range(0, len(ids), CHUNK)]
    return threaded(one, parts, THREADS) if len(parts) > 1 else map(one, parts)


def solve(problem: Demanded, ids: Ids, objective: str) -> Solved:
    """The front among the points and its winner in `objective`."""
    archive = Archive(len(problem.objectives))
    feasible, apart, least, miss = 0, 0, np.inf, ""
    for part, _, found in chunks(problem, ids):
        keep = (found.G <= 0.0).all(axis=1)
        feasible += int(keep.sum())
        if problem.pools is not None:
            apart += int(problem.pools.separate(problem.space.unrank(part[keep])).sum())
        archive.add(found.F[keep], part[keep])
        if not feasible and len(part):
            total = np.maximum(found.G, 0.0).sum(axis=1)
            row = int(np.argmin(total))
            if total[row] < least:
                least, miss = float(total[row]), _missed(problem, found.G[row])
    F = archive.F
    if not len(F):
        return Solved(problem, archive.ids, F, None, feasible, apart, miss=miss)
    column = [one.metric for one in problem.objectives].index(objective)
    others = [F[:, k] for k in range(F.shape[1]) if k != column]
    winner = int(np.lexsort((archive.ids, *others[::-1], F[:, column]))[0])
    value = float(problem.objectives[column].sign * F[winner, column])
    return Solved(problem, archive.ids, F, int(archive.ids[winner]), feasible, apart, value)


def _missed(problem: Demanded, G: Floats) -> str:
    """What the nearest miss breaks."""
    words = []
    for name, amount in zip(problem.constraints, G, strict=True):
        if amount > 0.0:
            by = f" (by {significant(100.0 * amount, 2)}%)" if np.isfinite(amount) else ""
            words.append("a price that nobody knows" if name == KNOWN else f"{name}{by}")
    return ", ".join(words)


def metrics_at(problem: Demanded, ids: Sequence[int] | Ids) -> Metrics:
    return problem.metrics(problem.space.unrank(np.asarray(ids, dtype=np.int64)))


def points(problem: Demanded, ids: Sequence[int] | Ids) -> list[dict[str, Any]]:
    """Points as rows by key of the vocabulary: the deployment in words, with the shape where that
    is searched, the metrics that a buyer looks at with the ends of their 80% intervals, how the
    kernel laws are known, and under a demand what is bought of it. In full stand `deployment`,
    `intervals` and `at_average_load`."""
    if not len(ids):
        return []
    index = problem.space.unrank(np.asarray(ids, dtype=np.int64))
    batch, metrics = problem.batch(index), problem.metrics(index)
    busy, kinds = metrics, None
    if problem.demand is not None:
        busy, kinds = problem.busy.metrics(index), problem.kinds(batch, index)
    names = [one.metric for one in (*problem.objectives, *problem.limits)]
    names += [TOTAL, TTFT, TPOT, RATE, CHIP_RATE, "chip_usd_per_hour", "predicted_loss"]
    rows = []
    for i, (point, deployment) in enumerate(zip(ids, problem.deployments(index), strict=True)):
        words = short_deployment(deployment, not random_arrivals(problem))
        if problem.model is None:
            words += f" of {short_shape(config_of(model_at(batch, i, '', None)))}"
        load, intervals = None, describe_metrics(busy, i)["intervals"]
        if kinds is not None:
            load, intervals = at_demand(problem, kinds, busy, i, intervals)
        row = {"id": int(point), "chip": deployment["chip"], "deployed": words}
        for name in dict.fromkeys(names):
            row[name] = number(metrics.values[name][i])
            if name in intervals:
                row[f"{name}.low"], row[f"{name}.high"] = intervals[name]
        if load is not None and load["deployments"] is not None:
            row |= {"deployments": load["deployments"], "all_chips": load["chips"]}
            row["usd_per_hour"] = load["usd_per_hour"]
            row[f"{TOTAL}.busy"] = load["busy_usd_per_million_total_tokens"]
        row |= {"known": KINDS[metrics.provenance[i]], "deployment": deployment}
        rows.append(row | {"intervals": intervals, "at_average_load": load})
    return rows
