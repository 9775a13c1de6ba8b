"""`dse.fleet`: what to buy or rent for a plan of demand, or for a trace of requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from dse.answer.answer import Answer, Figure, Opening, Table, table_of
from dse.answer.frames import bar_chart, document, lines, of_rows, stacked_bars
from dse.answer.numbers import significant
from dse.catalog import Catalog, load_catalog
from dse.economics.fleet_cost import (
    cash_flow,
    present_usd,
    returned,
    site_kwh,
    tokens,
)
from dse.economics.prices import price_parts
from dse.economics.tco import owned, with_basis
from dse.errors import InputError, InputErrors
from dse.options import Opt
from dse.questions.fleet.decision import (
    asked,
    assumptions,
    cash_figure,
    limit_words,
    memo,
    sentences,
    served,
    to_check,
    unit,
)
from dse.questions.fleet.solution import (
    Solution,
    arrival_rows,
    chip_rows,
    instance_rows,
    option_row,
    order_rows,
    quarter_rows,
    single,
    solution,
    use_rows,
)
from dse.questions.fleet.workbook import sheets
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import LARGEST_DOMAIN, lacks_for_owning, lacks_power, server_of
from dse.schema.plan import CHOICES, DAY_S, SERVICE_LEVEL, TERMS, Plan
from dse.schema.plan_reader import GIVEN, find_plan, load_plan
from dse.schema.reader import Field, Number, Text, Whole
from dse.schema.reader import Table as Fields
from dse.schema.traffic import read_demand
from dse.schema.workloads import (
    CHOICE_FIELDS,
    OPTIONS,
    PREFILL_FIELDS,
    SERVED,
    Choices,
    full,
    prefill_of,
)

ALL = "all"  # every chip that has a price and the other figures
NAME = "requests"  # of the one class of a plan that is made from arguments
# What `--set` takes, of a plan that is made from arguments.
OF_TRACE = (
    Field("window", Text(), "60s"),
    Field("windows", Number(0, 1), 1.0),
    Field("lengths", Whole(1, 32), None),
)
OF_PLAN = (*OF_TRACE, Field("largest_instance", Whole(1, 1024), 16))
SETTINGS = Fields(*OF_PLAN, *CHOICE_FIELDS, *PREFILL_FIELDS)
# Lines of that plan whose option has another name.
FLAGS = {"ttft": "--ttft-limit", "tpot": "--tpot-limit", "tokens_per_day": "--demand"}
FLAGS |= {name: f"--set {name}" for name in SETTINGS.names}
FLAGS |= {line: f"--set {flag[2:].replace('-', '_')}" for line, flag in OPTIONS.items()}
MOST_SENTENCES = 5  # after the first
# The caption of each frame, and its columns on the terminal and the page (else all). Those of SHOWN
# stand there, in its order; the data has all.
FRAMES = {
    "chips": (
        "Chips by quarter",
        "quarter chip ordered_chips rented_chips owned_chips serving_chips kilowatts usd",
    ),
    "orders": ("Orders", "chips chip way order_quarter commits_usd"),
    "by_quarter": (
        "Spend by quarter",
        "quarter rent_usd capital_usd upkeep_usd electricity_usd usd cash_usd watts racks",
    ),
    "use": ("Use of the instances at the peak and in the mean", ""),
    "instances": (
        "Instances by quarter",
        "quarter last_quarter class model instances on division formats requests_per_s ttft_s"
        " tpot_s",
    ),
    "fleets": (
        "The cheapest fleet on each chip alone",
        "chip fleet chips usd_per_hour ttft_percentile_s tpot_s load tokens_per_usd reason",
    ),
    "prices": (
        "Prices at which the mix changes",
        "offer price_usd per used usd_enters_or_leaves_at fleet_costs_more_without reason",
    ),
    "limits": ("10% more of each limit, supply and demand", "limit value more usd usd_per_unit"),
    "stock": ("What is owned already", ""),
    "demand": ("What is asked for", ""),
    "streams": ("Groups of requests", ""),
    "arrivals": ("Arrivals by window", ""),
    "refused": ("What serves no class", ""),
}
SHOWN = ("fleets", "chips", "by_quarter", "instances", "prices", "limits", "refused")
WORDS = {
    "instance": "one copy of the model on as many chips as it is divided over",
    "option": "one way to serve a class: a model, its formats, a chip, and how an instance is "
    "divided, at its highest load within the latency limits",
    "split": "counted as if instances need not be whole",
    "peak": "the highest demand of a quarter, for which the fleet is sized",
    "discounted": "later dollars counted for less, by the yearly rate of the plan",
    "window": "a stretch of the trace of equal length, in which arrivals are counted",
    "class": "requests of one kind, with limits of their own",
}


def fleet(
    plan: Annotated[str | Path | Mapping[str, Any] | None, Opt(positional=True)] = None,
    *,
    model: Annotated[
        str | Path | None, Opt("Without a plan: model by catalog id, or the path of a config.json.")
    ] = None,
    chip: Annotated[
        tuple[str, ...], Opt("Chips to choose from: ids or files, or all.", metavar="CHIPS")
    ] = (),
    trace: Annotated[
        str | Path | None,
        Opt("CSV of requests: time (s), prompt, output [cached].", metavar="FILE"),
    ] = None,
    requests_per_second: Annotated[
        float | None, Opt("Mean requests, in place of a trace.", least=1e-6, most=1e9)
    ] = None,
    demand: Annotated[
        str | None, Opt("Mean tokens, prompt and output, such as 1B/day.", metavar="RATE")
    ] = None,
    peak_over_average: Annotated[
        float, Opt("Peak over the mean, without a trace.", least=1.0, most=1000.0)
    ] = 1.0,
    prompt_tokens: Annotated[int | None, Opt(least=1, most=100_000_000)] = None,
    output_tokens: Annotated[int | None, Opt(least=1, most=100_000_000)] = None,
    ttft_limit: Annotated[str, Opt("Longest time to first token.", metavar="TIME")] = "2s",
    tpot_limit: Annotated[str, Opt("Longest time per output token.", metavar="TIME")] = "50ms",
    percentile: Annotated[
        Literal["50", "90", "99", "steady"] | int | None,
        Opt(
            "Percent of first tokens in time where requests come at random; steady: the median of "
            "an even load."
        ),
    ] = "90",
    disaggregated: Annotated[bool, Opt("Also prefill and decode on separate pools.")] = False,
    price_basis: Annotated[
        str, Opt("Basis of hardware/prices.csv, or owned_tco: chips are bought.")
    ] = "rental_3yr",
    service_level: Annotated[
        str | float | None,
        Opt("Order now what serves that share of futures: 80%.", metavar="PERCENT"),
    ] = None,
    seed: Annotated[int, Opt("Seed of the futures that are drawn.", least=0, most=2**31)] = 0,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Answer:
    """The cheapest mix of chips for a plan: what to buy or rent, how much of it, and when.

    PLAN is a shipped plan or the path of a file: demand by class, the chips on offer, what is owned
    already, and limits (docs/fleet.md). Without one, the other options make a plan of one quarter.

        dse.fleet("dense-70b-billion-tokens").to_html("fleet.html")
        dse.fleet(model="llama-3-70b", chip=["h100_sxm", "mi300x"], trace="requests.csv")

    `plan` may also be what a file says. Without one, the other arguments ask for one model on
    `chip` (names, or "all"): a `trace` of requests, or `requests_per_second` or `demand` (tokens,
    "1B/day") of `prompt_tokens` and `output_tokens` each. `percentile` of first tokens come within
    `ttft_limit`; "steady" or None is the median of a steady load. `fields` are SETTINGS.

    With a `service_level` ("80%", or that line of the plan), what is ordered first suffices in that
    share of futures, drawn from `seed`.

    Where nothing keeps the plan, the document of the answer has `feasible` false. Raises InputError
    for what cannot be read.
    """
    given = dict(locals())
    catalog = catalog or load_catalog()
    left_out: Sequence[dict[str, str]] = ()
    if plan is None:
        read, left_out, catalog = _plan_of(given, catalog)
    else:
        read = load_plan(find_plan(str(plan)) if isinstance(plan, str | Path) else plan, catalog)
    if service_level is not None:
        read = replace(read, service_level=_level(service_level))
    found = solution(read, catalog, seed, progress)
    return answer(replace(found, refused=(*found.refused, *left_out)), catalog.names)


def _plan_of(
    given: Mapping[str, Any], catalog: Catalog
) -> tuple[Plan, list[dict[str, str]], Catalog]:
    """The plan of one class and quarter that the arguments of `fleet` ask for, rows of the chips
    that are left out, and the catalog with all chips and prices. Raises InputError, which names the
    option."""
    basis, model, trace = given["price_basis"], given["model"], given["trace"]
    fields = dict(given["fields"])
    settings = {one.name: fields.pop(one.name, one.default) for one in OF_PLAN}
    flags = full({**fields, "disaggregated": given["disaggregated"] or None}, Choices)
    catalog, wanted = _named(given["chip"], catalog)
    catalog = with_basis(catalog, basis)
    chips, reasons = _priced(wanted, catalog, basis)
    percentile = given["percentile"]
    one: dict[str, Any] = {
        "name": NAME,
        "model": None if model is None else str(model),
        "ttft": given["ttft_limit"],
        "tpot": given["tpot_limit"],
        "percentile": None if percentile in (None, "steady") else int(percentile),
        **{name: _listed(flags[name]) for name in CHOICES},
        **{field.name: flags[field.name] for field in SERVED},
        "prefill": {axis: [value] for axis, value in prefill_of(flags).items()} or None,
        **_load(given),
    }
    if trace is None:
        one["peak_over_average"] = given["peak_over_average"]
        what = given["demand"] or f"{given['requests_per_second']:g} a second"
    else:
        one |= {field.name: settings[field.name] for field in OF_TRACE}
        what = Path(trace).name
    written = {
        "name": "requests",
        "title": f"{model} for {what}",
        "quarters": 1,
        "used_after_end": "100%",
        "price_basis": basis,
        "backend": flags["backend"] or "current",
        "disaggregated": given["disaggregated"],
        "largest_instance": settings["largest_instance"],
        "demand": [{key: value for key, value in one.items() if value is not None}],
        "chips": [_offered(name, catalog, basis) for name in chips],
    }
    try:
        read = load_plan(written, catalog)
    except InputError as error:
        raise _of_option(error) from None
    singly = [row["chip"] for row in written["chips"] if row.get("server") == 1]
    if singly:
        words = f"{', '.join(singly)}: taken chip by chip, not by the domain"
        read = replace(read, assumed=(*read.assumed, words))
    left_out = [
        {"class": NAME, "chip": name, "model": str(model), "reason": reason}
        for name, reason in reasons.items()
    ]
    return read, left_out, catalog


def _level(given: str | float) -> float:
    """A share, or a percentage with its sign."""
    text = given if isinstance(given, str) else f"{100.0 * given:.10g}%"
    number = text.strip().removesuffix("%")
    try:
        level = float(number) / 100.0 if text.strip().endswith("%") else float("nan")
    except ValueError:
        level = float("nan")
    if SERVICE_LEVEL.least <= level <= SERVICE_LEVEL.most:
        return level
    accepted = f"{SERVICE_LEVEL.least:.0%} to {SERVICE_LEVEL.most:.0%}, such as 80%"
    raise InputError(f"read {given!r}", field="--service-level", accepted=accepted)


def _load(given: Mapping[str, Any]) -> dict[str, Any]:
    """The lines of the demand that say how many requests come, and how long they are."""
    trace, demand = given["trace"], given["demand"]
    ways = {
        "--trace": trace,
        "--requests-per-second": given["requests_per_second"],
        "--demand": demand,
    }
    named = [name for name, value in ways.items() if value is not None]
    if len(named) != 1:
        said = " and ".join(named) or "no demand"
        raise InputError(said, accepted=f"a plan, or one of {', '.join(ways)}")
    lengths = {name: given[name] for name in ("prompt_tokens", "output_tokens")}
    if trace is not None:
        return {"trace": str(Path(trace).absolute()), **lengths}
    if demand is None:
        return {"requests_per_second": given["requests_per_second"], **lengths}
    try:
        rate = read_demand(demand, 1.0).average_tokens_per_s
    except InputError as error:
        raise InputError(error.message, field="--demand", accepted=error.accepted) from None
    assert rate is not None
    return {"tokens_per_day": f"{rate * DAY_S:.17g}", **lengths}


def _listed(given: Any) -> list[Any] | None:
    """Several values, or one, or text with commas between them."""
    if isinstance(given, str):
        return [word.strip() for word in given.split(",") if word.strip()] or None
    return [given] if isinstance(given, int) else list(given or ()) or None


def _named(given: str | Sequence[str], catalog: Catalog) -> tuple[Catalog, list[str]]:
    """The ids of the chips that are named by id or file, with commas between them or not, and the
    catalog that has them all."""
    texts = [given] if isinstance(given, str) else given
    apart = [[text] if Path(text).is_file() else text.split(",") for text in texts]
    wanted = [word.strip() for words in apart for word in words if word.strip()]
    if not wanted:
        accepted = "ids that `dse catalog chips` prints, or all"
        raise InputError("--chip is missing", accepted=accepted)
    return (catalog, wanted) if wanted == [ALL] else catalog.with_chips(wanted, "--chip")


def _priced(
    wanted: Sequence[str], catalog: Catalog, basis: str
) -> tuple[list[str], Mapping[str, str]]:
    """Chips to choose from; of "all", those that cannot be, with the figure that is missing."""
    priced = catalog.prices.select(basis)
    if wanted != [ALL]:
        for chip in wanted:
            if chip in catalog.chips and chip not in priced:
                raise InputError(
                    f"{chip} has no price on the basis {basis}",
                    field="--chip",
                    accepted="--prices FILE with one, or another --price-basis",
                )
        return list(dict.fromkeys(wanted)), {}
    kept, reasons = [], {}
    lacks = lacks_for_owning if basis == OWNED else lacks_power
    for chip in priced:
        try:
            catalog.require(chip)
            reason = lacks(catalog, chip, catalog.costs)
        except InputError as error:
            reason = error.message
        if reason is None:
            kept.append(chip)
        else:
            reasons[chip] = reason
    return kept, reasons


def _offered(chip: str, catalog: Catalog, basis: str) -> dict[str, Any]:
    """A chip of the plan: bought on the basis owned_tco, else rented; one that stands in a domain
    that is not had whole is taken one by one."""
    row: dict[str, Any] = {"chip": chip}
    if basis == OWNED:
        row["buy"] = {}
    elif basis not in TERMS:
        row["rent"] = {"basis": basis, "term_quarters": 1}
    if chip in catalog.chips and server_of(catalog, chip) > LARGEST_DOMAIN:
        row["server"] = 1
    return row


def _of_option(error: InputError) -> InputError:
    """What is wrong in the plan that was made, as the option that said it."""
    if isinstance(error, InputErrors):
        return InputErrors([_of_option(one) for one in error.errors])
    if error.file != GIVEN:
        return error
    line = re.sub(r"^(demand|chips)\[\d+\]\.?|\[\d+\]$", "", error.field or "")
    line = "chip" if (error.field or "").startswith("chips") else line
    option = FLAGS.get(line, f"--{line.replace('_', '-')}" if line else None)
    return InputError(error.message, field=option, accepted=error.accepted)


def answer(found: Solution, names: Mapping[str, str]) -> Answer:
    """A solution as frames, pictures and sentences."""
    plan, counted = found.plan, found.counted
    facts, frames = _facts(found), _frames(found)
    headline, *said = sentences(found, facts)
    said, rests = said[:MOST_SENTENCES], assumptions(found)
    drawn = pictures(found, frames)
    facts |= {"answer": [headline, *said], "assumed": rests}
    made = document({**facts, **{name: [] for name in FRAMES}}, list(frames.values()))
    shown = [name for name in SHOWN if name in frames]
    if single(plan) and counted is not None:
        shown = [name for name in shown if name not in ("chips", "by_quarter")]
    opening = None
    options = table_of("options", facts["options"])
    parts = [price_parts(facts["owned_prices"])] if facts["owned_prices"] else []
    if counted is not None:
        sure = "How sure: " + " ".join([*served(found), *to_check(found)])
        opening = Opening(asked(plan), headline, drawn[0], frames.get("orders"), sure)
    return Answer(
        question="fleet",
        title=f"Fleet: {plan.title}",
        asked=asked(plan),
        headline=headline,
        sentences=said,
        blocks=(*drawn, *(frames[name] for name in shown)),
        rests=rests,
        document=made,
        data=(*_unseen(frames, shown), *parts, options),
        words=WORDS,
        opening=opening,
        memo=None if counted is None else lambda: memo(found, made, frames),
        sheets=sheets(found),
        names=names,
    )


def _unseen(frames: Mapping[str, Table], shown: Sequence[str]) -> list[Table]:
    """The tables of the files alone, after the chips by quarter: they are the rows of fleet.csv."""
    return [one for name, one in frames.items() if name == "chips" or name not in shown]


def _facts(found: Solution) -> dict[str, Any]:
    """What the document says beside its frames."""
    plan, counted, carbon = found.plan, found.counted, found.plan.costs.carbon
    facts = {
        "plan": plan.name,
        "title": plan.title,
        "feasible": counted is not None,
        "status": found.solved.status,
        "price_basis": plan.price_basis,
        "quarters": plan.quarters,
        "futures": None,
        "chips_by_means": found.by_means,
        "changes_with_split_instances": counted is not None and found.split,
        "must_give": list(found.gives),
        "lead_time_too_long": list(found.waits),
        "not_searched": list(found.untried),
        "price_evidence": list(found.priced),
        "options": [{**option_row(one), "chips": dict(one.chips)} for one in found.options],
        "owned_prices": [
            owned(chip.chip, chip.owning, plan.costs).as_json()
            for chip in plan.chips
            if chip.owning is not None
        ],
    }
    if (one := found.hedged) is not None:
        facts["futures"] = {"service_level": plan.service_level, **asdict(one)}
        facts["futures"]["servers_now"] = facts["futures"].pop("order")
    elif found.served is not None:
        facts["futures"] = {"service_level": None, "share": found.served}
    if counted is None:
        none = ("usd", "usd_undiscounted", "usd_per_million_tokens", "finance")
        return {**facts, **dict.fromkeys(none)}
    kwh, flows = site_kwh(plan, counted), cash_flow(plan, counted, found.mix)
    against: dict[str, Any] | None = None
    if found.instead is not None:
        mix, other = found.instead
        renting = cash_flow(plan, other, mix)
        earns = returned(plan, flows, renting)
        against = {
            "usd_signed": other.signed_usd,
            "present_usd": present_usd(renting),
            "present_usd_saved": earns.saves,
            "irr_per_year": earns.irr,
            "payback_quarter": earns.payback,
        }
    return {
        **facts,
        "usd": counted.usd,
        "usd_undiscounted": counted.within_usd,
        "usd_per_million_tokens": counted.within_usd / tokens(plan) * 1e6,
        "usd_signed": counted.signed_usd,
        "usd_committed_beyond": counted.committed_usd,
        "usd_written_off": counted.written_off_usd,
        "usd_bought": counted.bought_usd,
        "usd_lower_bound": found.solved.bound,
        "gap": found.solved.gap,
        "kwh_on_site": kwh,
        "co2_kg": None if carbon is None else kwh * carbon.value / 1e3,
        "finance": {
            "discount_rate_per_year": plan.discount_rate,
            "present_usd": present_usd(flows),
            "capex_usd": counted.bought_usd,
            "opex_usd": sum(one.opex for one in flows),
            "worth_at_end_usd": sum(one.worth for one in flows),
            "rents_of_use_usd": sum(one.useful for one in flows),
            "against_renting": against,
            "renting_alone": found.no_renting,
        },
    }


def _frames(found: Solution) -> dict[str, Table]:
    """Every frame of an answer by its name; without a mix, the demand and what is refused alone."""
    plan, counted = found.plan, found.counted
    made: dict[str, Sequence[Mapping[str, Any]]] = {}
    if counted is not None:
        made |= {
            "chips": chip_rows(found, counted),
            "orders": order_rows(found),
            "by_quarter": quarter_rows(found, counted),
            "use": use_rows(plan, counted),
            "instances": instance_rows(found),
            "fleets": [{key: row.get(key) for key in row if key != "cost"} for row in found.alone],
            "prices": found.prices,
            "limits": [
                {**row, "limit": f"{limit_words(row['limit'])}{unit(row['limit'])}"}
                for row in found.limits
            ],
            "stock": found.stock,
        }
    made |= {
        "demand": [
            {
                "class": one.name,
                "models": ", ".join(one.models),
                "mean_requests_per_s": one.requests_per_s,
                "peak_requests_per_s": one.peak_per_s(plan.quarters - 1),
                "prompt_tokens": one.mean.prompt_tokens,
                "output_tokens": one.mean.output_tokens,
                "percentile": one.percentile,
                "ttft_s": one.ttft_s,
                "tpot_s": one.tpot_s,
            }
            for one in plan.demand
        ],
        "streams": [
            {"class": one.name, **asdict(part)} for one in plan.demand for part in one.streams
        ],
        "arrivals": arrival_rows(plan),
        "refused": found.refused,
    }
    split = ", instances split" if counted is not None and found.split else ""
    frames = {}
    for name, rows in made.items():
        if not rows:
            continue
        caption, shown = FRAMES[name]
        keys = dict.fromkeys(key for row in rows for key in row)
        one = of_rows(name, caption + split * (name in ("prices", "limits")), rows, tuple(keys))
        known = {column.key for column in one.columns}
        frames[name] = replace(one, shown=tuple(key for key in shown.split() if key in known))
    return frames


def pictures(found: Solution, frames: Mapping[str, Table]) -> list[Figure]:
    """At most three: cash by quarter, or arrivals and chips beside each other in a plan of one;
    then chips that are on."""
    plan, counted = found.plan, found.counted
    if counted is None:
        return []
    made = [cash_figure(frames)] if plan.quarters > 1 else []
    one = plan.demand[0]
    name = one.name
    if one.windows is not None:
        busy, most = one.peak_per_s(0), counted.quarters[0].capacity[name]
        levels = {f"sized for {significant(busy)}/s": busy}
        levels[f"serves up to {significant(most)}/s"] = most
        rows = [row for row in frames["arrivals"].rows if row["class"] == name]
        ends = [rows[0]["start_s"], rows[-1]["start_s"]]
        rows += [
            {"class": words, "start_s": start, "requests_per_s": rate}
            for words, rate in levels.items()
            for start in ends
        ]
        made.append(
            lines(
                f"arrivals-{name}",
                f"Arrivals of {name} against what the fleet serves",
                of_rows("", "", rows, "class start_s requests_per_s"),
                "start_s",
                "requests_per_s",
                "class",
                "Requests per second over time, with two levels: what the fleet is sized for, and "
                "the most that it serves within the limits.",
                across="seconds since the first request",
            )
        )
    kept = [row for row in found.alone if row["chips"]]
    if len(kept) > 1:
        across = "million tokens per dollar, at the mean rate"
        made.append(
            bar_chart(
                "tokens",
                "Tokens per dollar by chip",
                [f"{row['chip']} ({row['chips']:,})" for row in kept],
                {"tokens per dollar": [(row["tokens_per_usd"] or 0.0) / 1e6 for row in kept]},
                across,
                "Million tokens per dollar of the cheapest fleet on each chip alone.",
            )
        )
    held: dict[str, list[float]] = {}
    for q, quarter in enumerate(counted.quarters):
        for way, servers in (("rented", quarter.rented), ("owned", quarter.owned_on)):
            for chip, number in servers.items():
                series = held.setdefault(f"{chip}, {way}", [0.0] * plan.quarters)
                series[q] = number * plan.chip(chip).server
    shows = "Chips that are on by quarter, stacked by chip."
    chips = stacked_bars("chips", "Chips that are on", held, "chips that are on", shows)
    return [*made[:2], chips]
