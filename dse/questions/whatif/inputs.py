"""The inputs of a study that a question may change, each under a name, and a study with some of
them changed.

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
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse import units
from dse.answer.numbers import number
from dse.catalog import Catalog, with_own_chips
from dse.economics.tco import owning
from dse.errors import Doubt, InputError
from dse.physics.machines import compile_machines
from dse.physics.workload import POISSON
from dse.problem.mix import Mix, Share
from dse.problem.objective import Demanded, demanded, in_servers, on_terms, pose, with_power
from dse.problem.training import trained_of
from dse.record import record
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import CHIP_RULES, RULES, Rule
from dse.schema.derive import derive
from dse.schema.loader import did_you_mean, load_yaml
from dse.schema.metrics import METRICS, Limit, parse_constraint, parse_limit
from dse.schema.plausible import OF_METRIC, USD_PER_HOUR, unusual, usual_of
from dse.schema.study import Space, Study, load_study
from dse.schema.traffic import Demand, rate_words, read_demand, read_rate
from dse.study.definition import reopened
from dse.study.folder import STUDY

ALL = "all"
MOST_STEPS = 101  # of a sweep
# Figures of a chip: the names that `derive` and `dse.schema.figure` take, and the dimension.
FIGURES = {
    "memory_bandwidth": ("memory_bandwidth", "memory_bandwidth", "bytes/s"),
    "memory_capacity": ("capacity", "memory_capacity", "bytes"),
    "peak": ("flops", "peak_bf16", "flop/s"),
    "link_bandwidth": ("scale_up_bandwidth", "bandwidth_per_direction", "bytes/s"),
    "link_latency": ("link_latency", "latency", "s"),
    "scale_out_bandwidth": ("scale_out_bandwidth", "bandwidth_per_direction", "bytes/s"),
    "tdp": ("tdp", "tdp", "W"),
}
PRICE = "price"
DEMAND, PEAK = "demand", "peak_over_average"
ARRIVALS = "requests/s"
# Figures of a workload: dimension, least and most.
LOADS = {
    "prompt_tokens": ("tokens", 1.0, 1e8),
    "output_tokens": ("tokens", 1.0, 1e8),
    "prefix_hit_rate": ("fraction", 0.0, 0.999),
    "network_overlap": ("fraction", 0.0, 1.0),
    "requests_per_second": ("count", 1e-9, 1e9),
}
COSTS = "costs."
WAYS = "a factor (1.2x), a percentage (+10%) or a value with its unit"
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


def subject_of(
    space: Space,
    catalog: Catalog,
    limits: Sequence[str] = (),
    objective: str | None = None,
    demand: str | None = None,
    peak_over_average: str | None = None,
    whole_servers: bool = False,
) -> Subject:
    """A finished study folder, a shipped space, the path of a space file or what such a file says,
    with further limits, under a demand of which each figure that is given takes the place of the
    space's. What a study was made with stands beneath the catalog.

    Raises InputError for what is neither, for a study whose space file has changed since, or one
    that was evaluated by a function of the user, and for whole servers of no demand of tokens.
    """
    folder = Path() if isinstance(space, Mapping) else Path(str(space))
    notes, found = [], {}
    if not isinstance(space, Mapping) and (folder / STUDY).is_file():
        before = reopened(folder, catalog)
        document, study = before.document, before.study
        if "--evaluator" in document.get("command", ""):
            message = f"{folder} was evaluated by a function of your own"
            raise InputError(message, field="STUDY", accepted="a study of the built-in model")
        if catalog.source.has_prices:
            notes.append(f"prices and costs as this command gives them, not those of {folder}")
        elif document.get("data_digest") != catalog.source.made_with(document).digest():
            notes.append(
                f"the hardware data have changed since {folder}: before and after are both today's"
            )
        catalog = before.catalog
        found = {"seed": document["seed"], "engine": document["engine"]}
    elif not isinstance(space, Mapping) and folder.is_dir():
        accepted = "a folder that `dse run` wrote"
        raise InputError(f"{folder} is no finished study", field="STUDY", accepted=accepted)
    else:
        study = load_study(space, catalog)
        if isinstance(space, Mapping) and study.description:
            notes.append(study.description)
    more: list[Limit] = []
    for text in limits:
        try:
            more.append(parse_constraint(text))
        except InputError as error:
            raise InputError(error.message, field="--limit", accepted=error.accepted) from None
        if said := more[-1].unusual:
            warnings.warn(f"--limit: {said}", Doubt, stacklevel=2)
    study = replace(study, constraints=(*study.constraints, *more)) if more else study
    catalog = catalog.with_files(study.chip_files)
    problem = demanded(pose(study, catalog), catalog, study.demand)
    names = [one.metric for one in problem.objectives]
    first = next((name for name in names if name.startswith("usd_")), names[0])
    if objective and objective not in names:
        message, accepted = f"{objective} is no objective of {study.name}", ", ".join(names)
        raise InputError(message, field="--objective", accepted=accepted)
    if demand is not None or peak_over_average is not None:
        given = _demand(problem.demand or Demand(None, 1.0), demand, peak_over_average)
        problem = replace(problem, demand=given)
    if whole_servers:
        if problem.demand is None or problem.demand.average_tokens_per_s is None:
            raise InputError(
                "whole servers of no demand",
                field="--set whole_servers",
                accepted="--demand TOKENS/TIME, too",
            )
        problem = in_servers(problem, catalog)
    title = study.title or study.name
    return Subject(problem, catalog, title, objective or first, notes=tuple(notes), **found)


def _demand(now: Demand, average: Any, peak_over_average: Any) -> Demand:
    try:
        ratio = now.peak_over_average if peak_over_average is None else peak_over_average
        made = read_demand(average, ratio)
    except InputError as error:
        flags = {"average": "--demand", "peak_over_average": "--peak-over-average"}
        field = flags.get(str(error.field), error.field)
        raise InputError(error.message, field=field, accepted=error.accepted) from None
    return replace(made, average_tokens_per_s=now.average_tokens_per_s) if average is None else made


@record
class Bounds:
    """What an input that is no cost may be, as `dse.schema.costs.Rule` of one that is: its unit
    (of `dse.units` or `dse.schema.metrics`), and from which value to which."""

    unit: str
    least: float = 0.0
    most: float = math.inf
    above: bool = True  # more than `least`, not equal to it
    parse: Callable[[str, str], float] = units.parse
    usual: tuple[float, float] = (0.0, math.inf)

    @property
    def accepted(self) -> str:
        return f"{self.least:g} to {self.most:g}" if self.most < math.inf else "more than 0"

    def allows(self, value: float) -> bool:
        return value <= self.most and (value > self.least if self.above else value >= self.least)

    def unusual(self, value: float) -> str:
        """What is said of a value outside the usual ones; nothing of others."""
        return unusual(value, self.usual, self.show)

    def read(self, text: str) -> float:
        return (parse_limit if self.unit == "fraction" else self.parse)(text, self.unit)

    def show(self, value: float) -> str:
        """A value as a person reads it."""
        if self.parse is _rate:
            return rate_words(value)
        if self.unit == "usd/h":
            return f"{value:.4g} USD/h"
        if self.unit == "fraction":
            return f"{value:.4g}"
        if self.unit == "tokens":
            return f"{value:,.5g}" if value < 1e5 else f"{value:,.0f}"
        if self.unit in units.DIMENSIONS:
            return units.format(value, self.unit, 4)
        return f"{value:.4g} {self.unit}"


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

    @property
    def dimension(self) -> str:
        return self.rule.unit

    def show(self, value: float) -> str:
        return self.rule.show(value)


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
    problem, catalog = subject.problem, subject.catalog
    usd = [number(price) for price in problem.machines.usd_per_chip_hour]
    found = []
    for chip, price in ((ALL, None), *zip(problem.machines.ids, usd, strict=True)):
        for name, (_, called, unit) in FIGURES.items():
            now = None if chip == ALL else _figure(catalog, chip, name)
            kind = "" if chip == ALL else catalog.chip(chip).memories[0].kind
            bounds = Bounds(unit, above=name != "link_latency", usual=usual_of(called, kind))
            found.append(Input(f"chip.{chip}.{name}", bounds, now))
        found.append(Input(f"chip.{chip}.{PRICE}", Bounds("usd/h", usual=USD_PER_HOUR), price))
    rates = problem.mix[0].workload.serving == POISSON
    several = len(problem.mix) > 1
    for share in [None, *(problem.mix if several else ())]:
        prefix = "workload." if share is None else f"workload.{share.name}."
        own = None if several and share is None else share or problem.mix[0]
        for name, bounds in LOADS.items():
            if name != "requests_per_second" or rates:
                now = None if own is None else _load(own, name)
                found.append(Input(f"{prefix}{name}", Bounds(*bounds, above=False), now))
    demand = problem.demand
    if demand is None and rates:
        total = math.fsum(float(share.workload.requests_per_s[0]) for share in problem.mix)
        found.append(Input(DEMAND, Bounds(ARRIVALS, parse=_arrivals), total))
    else:
        now = demand and demand.average_tokens_per_s
        found.append(Input(DEMAND, Bounds("tokens/s", parse=_rate), now))
    ratio = Bounds("fraction", 1.0, 1e6, above=False)
    found.append(Input(PEAK, ratio, demand and demand.peak_over_average))
    own = [
        _limit(f"{one.workload}." * bool(one.workload), one.metric, one.limit)
        for one in problem.limits
    ]
    free = [_limit("", metric) for metric in METRICS]
    found += [*own, *(one for one in free if one.name not in {limit.name for limit in own})]
    if (costs := problem.study.costs) is not None:
        found += [Input(f"{COSTS}{name}", rule, costs.value(name)) for name, rule in RULES.items()]
        for chip in problem.machines.ids:
            one = owning(catalog, chip, costs)
            known = {one.price.name: one.price.value, "power": one.meter_w}
            found += [Input(f"{COSTS}{chip}.{n}", r, known.get(n)) for n, r in CHIP_RULES.items()]
    return {one.name: one for one in found}


def _limit(workload: str, metric: str, now: float | None = None) -> Input:
    usual = OF_METRIC.get(metric, (0.0, math.inf))
    bounds = Bounds(METRICS[metric].dimension, parse=parse_limit, usual=usual)
    return Input(f"limit.{workload}{metric}", bounds, now)


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
    load = share.workload
    if name == "requests_per_second":
        return float(load.requests_per_s[0])
    value = getattr(load, name)
    return 0.0 if value is None else float(np.atleast_1d(value)[0])


def find_input(name: str, known: Mapping[str, Input], field: str = "--set") -> Input:
    """Raises InputError with near names and the kinds of names that there are."""
    name = name.strip()
    if name in known:
        return known[name]
    if name.startswith(COSTS) and not any(one.startswith(COSTS) for one in known):
        raise InputError(
            f"{name}: costs of owning count on the price basis {OWNED} only",
            field=field,
            accepted=f"{OWNED} as the price basis, or chip.ID.{PRICE} on this one",
        )
    raise InputError(
        f"unknown input {name!r}{did_you_mean(name, known)}", field=field, accepted=_names(known)
    )


def _names(known: Mapping[str, Input]) -> str:
    chips = sorted({name.split(".")[1] for name in known if name.startswith("chip.")} - {ALL})
    figures = "|".join([PRICE, *FIGURES])
    rest = [name for name in known if not name.startswith(("chip.", "limit.", COSTS))]
    owned = any(name.startswith(COSTS) for name in known)
    costs = f"; {COSTS}{'|'.join(RULES)}, {COSTS}ID.{'|'.join(CHIP_RULES)}" if owned else ""
    return f"chip.ID.{figures} of {ALL}, {', '.join(chips)}; {', '.join(rest)}; limit.METRIC{costs}"


def change_to(one: Input, text: str, field: str = "--set") -> Change:
    """The change of an input that a text asks for; a value that is far from what is usual is warned
    of. Raises InputError."""
    change = _change(one, text, field)
    after = change.after
    if after is not None and after != one.now and (said := one.rule.unusual(after)):
        shown = "" if change.value is not None else f", which is {one.show(after)}"
        warnings.warn(f"{field}: read {text!r}{shown}{said}", Doubt, stacklevel=3)
    return change


def _change(one: Input, text: str, field: str) -> Change:
    percent, times = _PERCENT.fullmatch(text), _FACTOR.fullmatch(text)
    # A share is a number of percent itself; only a sign makes it a change.
    if percent or times:
        digits = percent[1] if percent else (times[1] or times[2]) if times else ""
        try:
            factor = 1.0 + float(digits) / 100.0 if percent else float(digits)
        except ValueError:
            raise InputError(f"read {text!r}", field=field, accepted=WAYS) from None
        if factor < 0.0:
            message = f"{one.name} would be negative"
            raise InputError(message, field=field, accepted="more than -100%, or a factor above 0")
        return checked(Change(one, factor, None, text), field)
    return checked(Change(one, 1.0, _value(one, text, field), text), field)


def _value(one: Input, text: str, field: str) -> float:
    if text.lstrip().startswith("-"):
        raise InputError(f"read {text!r}: negative", field=field, accepted=WAYS)
    try:
        value = one.rule.read(text)
    except InputError as error:
        accepted = f"1.2x, +10%, or {error.accepted}"
        raise InputError(error.message, field=field, accepted=accepted) from None
    if one.name.endswith(("prompt_tokens", "output_tokens")) and value != int(value):
        accepted = "a whole number of tokens"
        raise InputError(f"{one.name}: read {text!r}", field=field, accepted=accepted)
    return value


def checked(change: Change, field: str) -> Change:
    """Raises InputError for a factor of what has no value, and for a value out of its bounds."""
    one, after = change.input, change.after
    if change.factor > 1e6 or 0.0 < change.factor < 1e-6 or (after is None and not change.factor):
        message = f"a factor of {change.factor:g}"
        raise InputError(message, field=field, accepted="1e-6 to 1e6")
    if after is None:
        if not one.name.startswith((f"chip.{ALL}.", "workload.")):
            message = f"{one.name} has no value that could be multiplied"
            raise InputError(message, field=field, accepted="a value with its unit")
        return change
    if change.value is None and one.now == 0.0 and change.factor != 1.0:
        message = f"{one.name} is 0, which no factor changes"
        raise InputError(message, field=field, accepted="a value with its unit")
    if not one.rule.allows(after):
        message = f"{one.name} would be {one.show(after)}"
        raise InputError(message, field=field, accepted=one.rule.accepted)
    return change


def changes_of(given: Mapping[str, str], known: Mapping[str, Input]) -> tuple[Change, ...]:
    """What becomes of inputs by their names, as `--set` says it. Raises InputError."""
    return tuple(
        change_to(find_input(name, known), text.strip(), f"--set {name}={text}")
        for name, text in given.items()
    )


def scenarios_of(path: str, known: Mapping[str, Input]) -> dict[str, tuple[Change, ...]]:
    """The scenarios of a file: `scenarios: {NAME: {INPUT: CHANGE}}`. Raises InputError with file,
    line and field."""
    document = load_yaml(path)
    for key in document.data:
        if key != "scenarios":
            raise document.error((key,), f"unknown field {key!r}", "scenarios")
    written = document.data.get("scenarios")
    if not isinstance(written, Mapping) or not written:
        accepted = "scenarios: {NAME: {INPUT: CHANGE}}"
        raise document.error(("scenarios",), "no scenario", accepted)
    found: dict[str, tuple[Change, ...]] = {}
    for name, changes in written.items():
        if not isinstance(changes, Mapping) or not changes:
            accepted = "INPUT: CHANGE lines, such as chip.all.price: 0.8x"
            raise document.error(("scenarios", name), f"read {changes!r}", accepted)
        for one, text in changes.items():
            try:
                made = change_to(find_input(str(one), known, str(one)), str(text), str(one))
            except InputError as error:
                at = ("scenarios", name, one)
                raise document.error(at, error.message, str(error.accepted)) from None
            found[str(name)] = (*found.get(str(name), ()), made)
    return found


def sweep_of(written: str, known: Mapping[str, Input]) -> tuple[Change, ...]:
    """`chip.all.price=0.5x..2x:7`: so many changes, evenly spaced. Raises InputError."""
    field = f"--sweep {written}"
    form = "INPUT=FROM..TO:STEPS, such as chip.h100_sxm.price=1USD/h..4USD/h:7"
    name, equals, rest = written.partition("=")
    ends, colon, count = rest.rpartition(":")
    first, dots, last = ends.partition("..")
    if not (equals and colon and dots):
        raise InputError(f"read {written!r}", field="--sweep", accepted=form)
    one = find_input(name, known, "--sweep")
    if not count.strip().isdigit() or not 2 <= int(count) <= MOST_STEPS:
        message = "a sweep of one point" if count.strip() == "1" else f"read {count!r} steps"
        raise InputError(message, field=field, accepted=f"2 to {MOST_STEPS} steps")
    a, b = change_to(one, first.strip(), field), change_to(one, last.strip(), field)
    if (a.value is None) != (b.value is None):
        raise InputError("one end is a factor", field=field, accepted="two factors or two values")
    if a.factor == b.factor and a.value == b.value:
        raise InputError("a sweep of one point", field=field, accepted="two ends that differ")
    return tuple(between(a, b, x) for x in np.linspace(0.0, 1.0, int(count)).tolist())


def between(a: Change, b: Change, x: float) -> Change:
    """The change a share `x` of the way from `a` to `b`."""
    if a.value is None or b.value is None:
        factor = a.factor + x * (b.factor - a.factor)
        return replace(a, factor=factor, written=f"{factor:.4g}x")
    value = a.value + x * (b.value - a.value)
    return replace(a, value=value, written=a.input.show(value))


def apply(subject: Subject, changes: Sequence[Change]) -> Demanded:
    """The study with its inputs changed: the same space, other machines, workloads and limits.

    A later change of an input takes the place of an earlier one of the same input; `chip.all` comes
    before a chip by its name. Raises InputError for a figure that a chip does not have.
    """
    last = {change.input.name: change for change in changes}
    ordered = sorted(last.values(), key=lambda one: not one.input.name.startswith(f"chip.{ALL}."))
    problem = subject.problem
    study = _owned(problem.study, ordered)
    if study is not problem.study:
        trained = trained_of(study, on_terms(subject.catalog, study))
        problem = replace(problem, study=study, trained=trained)
    problem = _machines(subject, problem, ordered)
    mix, limits, demand = problem.mix, problem.limits, problem.demand
    for change in ordered:
        name = change.input.name
        if name.startswith("workload.") or change.input.dimension == ARRIVALS:
            mix = _changed_mix(mix, change)
        elif name in (DEMAND, PEAK):
            figure = "average_tokens_per_s" if name == DEMAND else name
            demand = replace(demand or Demand(None, 1.0), **{figure: change.after})
        elif name.startswith("limit."):
            limits = _changed_limits(limits, change)
    return replace(problem, mix=mix, limits=limits, demand=demand)


def _owned(study: Study, changes: Sequence[Change]) -> Study:
    """The study with its costs of owning changed."""
    values: dict[str, float] = {}
    chips: dict[str, dict[str, float]] = {}
    for change in changes:
        if change.input.name.startswith(COSTS) and change.after is not None:
            chip, _, name = change.input.name.removeprefix(COSTS).rpartition(".")
            (chips.setdefault(chip, {}) if chip else values)[name] = change.after
    if study.costs is None or not (values or chips):
        return study
    return replace(study, costs=study.costs.changed(values, chips, "a what-if"))


def _machines(subject: Subject, problem: Demanded, changes: Sequence[Change]) -> Demanded:
    """The problem with figures and prices of its chips changed."""
    ids = problem.machines.ids
    settings: dict[str, dict[str, str]] = {}
    prices: list[tuple[str, Change]] = []
    for change in changes:
        kind, _, rest = change.input.name.partition(".")
        if kind != "chip":
            continue
        chip, _, figure = rest.rpartition(".")
        if figure == PRICE:
            prices.append((chip, change))
            continue
        for one in ids if chip == ALL else (chip,):
            if chip == ALL and _figure(subject.catalog, one, figure) is None:
                continue
            name, _, unit = FIGURES[figure]
            to = f"{change.factor!r}x"
            to = to if change.value is None else units.format(change.value, unit, 12)
            settings.setdefault(one, {})[figure] = f"{name}={to}"
    machines = problem.machines
    if settings or problem.study is not subject.problem.study:
        catalog = on_terms(with_figures(subject.catalog, settings), problem.study)
        study = problem.study
        software = [one.id for one in machines.backends]
        machines = compile_machines(catalog, ids, study.price_basis, study.rack, backends=software)
        problem = with_power(problem, catalog)
    if prices:
        usd = machines.usd_per_chip_hour.copy()
        for chip, change in prices:
            rows = slice(None) if chip == ALL else ids.index(chip)
            usd[rows] = usd[rows] * change.factor if change.value is None else change.value
        machines = replace(machines, usd_per_chip_hour=usd)
    return problem if machines is problem.machines else replace(problem, machines=machines)


def with_figures(catalog: Catalog, settings: Mapping[str, Mapping[str, str]]) -> Catalog:
    """The catalog with hypothetical chips in the place of those of `settings`, under their ids."""
    for chip, own in settings.items():
        found = derive(catalog, chip, list(own.values()))
        grown = with_own_chips(catalog, [found])
        changed = replace(grown.chips[found.chip.id], id=chip)
        catalog = replace(
            grown,
            chips={**catalog.chips, chip: changed},
            prices=catalog.prices,
            purchases=catalog.purchases,
        )
    return catalog


def _changed_mix(mix: Mix, change: Change) -> Mix:
    """The workloads with one figure changed, of all or of the one that is named."""
    _, _, rest = change.input.name.partition(".")
    name, _, figure = rest.rpartition(".")
    figure = figure or "requests_per_second"
    field = "requests_per_s" if figure == "requests_per_second" else figure
    made = []
    for share in mix:
        if name not in ("", share.name):
            made.append(share)
            continue
        value = change.value
        if value is None or not rest:  # a demand is divided as it was before
            factor = change.factor if value is None else value / (change.input.now or 1.0)
            value = _load(share, figure) * factor
        array = field in ("requests_per_s", "prompt_tokens", "output_tokens")
        load = replace(share.workload, **{field: np.array([value]) if array else value})
        made.append(replace(share, workload=load))
    if len(made) == 1 or mix[0].workload.serving != POISSON:
        return tuple(made)
    # Shares of the requests are those of the rates where requests arrive at random.
    rates = [float(share.workload.requests_per_s[0]) for share in made]
    total = math.fsum(rates)
    return tuple(replace(one, weight=r / total) for one, r in zip(made, rates, strict=True))


def _changed_limits(limits: tuple[Limit, ...], change: Change) -> tuple[Limit, ...]:
    """The limits with one changed or added."""
    rest = change.input.name.removeprefix("limit.")
    workload, _, metric = rest.rpartition(".")
    after = change.after
    assert after is not None
    value, prefix = _limit("", metric).show(after), f"{workload}: " if workload else ""

    def same(limit: Limit) -> bool:
        return (limit.metric, limit.workload) == (metric, workload)

    if any(same(limit) for limit in limits):
        return tuple(
            replace(one, limit=after, text=f"{prefix}{metric} {one.operator} {value}")
            if same(one)
            else one
            for one in limits
        )
    operator = "<=" if METRICS[metric].direction == "minimize" else ">="
    return (*limits, Limit(metric, operator, after, f"{metric} {operator} {value}"))
