"""`dse.fleet`: what to buy or rent for a plan of demand, or for a trace of requests."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from dse.answer.answer import Answer, Opening, table_of
from dse.answer.frames import document
from dse.answer.numbers import share
from dse.catalog import Catalog, load_catalog
from dse.data import rows_beside
from dse.economics.fleet import LEAST, NOTHING, Solved, divisible, settled, solve
from dse.economics.fleet_cost import (
    Counted,
    Mix,
    Option,
    by_quarter,
    count,
    returned,
    site_kwh,
    tokens,
    unserved,
)
from dse.economics.prices import evidence_rows, price_parts, unsold
from dse.economics.scenarios import Counter, Hedged, futures_of, hedged
from dse.economics.tco import owned, with_basis
from dse.errors import DseError, InputError, InputErrors, of_field
from dse.options import Opt
from dse.problem.words import untried_words
from dse.questions.fleet.changes import (
    QUICK,
    Progress,
    Row,
    entries,
    lack,
    loosened,
    must_give,
    stock_rows,
    untried,
    waits_for,
)
from dse.questions.fleet.decision import (
    FRAMES,
    SHOWN,
    alone,
    asked,
    assumptions,
    demand_rows,
    frames_of,
    headline,
    hedged_sentences,
    mix_columns,
    nothing_keeps,
    option_row,
    pictures,
    sentences,
    served,
    single,
    to_check,
)
from dse.questions.fleet.finance import memo, sheets
from dse.questions.fleet.options import Known, options_of
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import LARGEST_DOMAIN, lacks_for_owning, lacks_power, server_of
from dse.schema.loader import Document
from dse.schema.plan import BUY, CHOICES, DAY_S, SERVICE_LEVEL, TERMS, Plan
from dse.schema.plan_reader import GIVEN, find_plan, load_plan
from dse.schema.reader import Field, Mistakes, Number, Place, Text, Whole
from dse.schema.reader import Table as Fields
from dse.schema.traffic import read_rate
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
AGREES = 1e-6  # relative: the program's cost and the cost that is counted from its mix
SEEN = 80  # futures that the order is chosen in
COUNTED = 2000  # others that count what it serves
PLAIN = 250  # the same where no service level is asked
NOT_SAID = (
    "Not said of an order at a service level: the prices and limits at which it changes, what "
    "buying returns against renting, what stock saves. The same plan without a level says them."
)
WORDS = {row["term"]: row["meaning"] for row in rows_beside(__file__, "words.csv")}


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
    known = Known()
    read, options, refused, order = _decided(read, catalog, progress, known, seed)
    refused = [*refused, *left_out]
    return answer_of(read, options, refused, progress, catalog, known, order, seed)


def _decided(
    plan: Plan,
    catalog: Catalog,
    progress: Progress = lambda _: None,
    known: Known | None = None,
    seed: int = 0,
) -> tuple[Plan, list[Option], list[dict[str, str]], Hedged | None]:
    """The plan with what it orders in the first quarter where a service level is asked, which is
    chosen over futures (the rest is as predicted); its options, rows of what is refused, and that
    order."""
    options, refused = options_of(plan, catalog, progress, known)
    if plan.service_level is None or unserved(plan, options):
        return plan, options, refused, None
    start = solve(plan, options, split=divisible(plan, options))
    if start.mix is None:
        return plan, options, refused, None
    seen = futures_of(plan, options, catalog, SEEN, (seed, 0))
    counter = Counter(plan, options, futures_of(plan, options, catalog, COUNTED, (seed, 1)))
    first = first_orders(start.mix)
    order = hedged(plan, options, seen, counter, plan.service_level, first, progress)
    return replace(plan, signed=order.order), options, refused, order


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
    level = SERVICE_LEVEL.read(text, Place(Mistakes(Document("", {}, {}))))
    if level is not None:
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
    with of_field("--demand"):
        return {"tokens_per_day": f"{read_rate(demand) * DAY_S:.17g}", **lengths}


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
    reasons: dict[str, str] = {}
    lacks = lacks_for_owning if basis == OWNED else lacks_power
    for chip in priced:
        try:
            catalog.require(chip)
            reason = lacks(catalog, chip, catalog.costs)
        except InputError as error:
            reason = error.message
        if reason is not None:
            reasons[chip] = reason
    return [chip for chip in priced if chip not in reasons], reasons


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


def answer_of(
    plan: Plan,
    options: Sequence[Option],
    refused: Sequence[Row] = (),
    progress: Progress = lambda _: None,
    catalog: Catalog | None = None,
    known: Known | None = None,
    order: Hedged | None = None,
    seed: int = 0,
) -> Answer:
    """A plan of given options, with what a catalog says of its chips. `order` is that of a service
    level, which the plan has signed; what would change it is not sought. Raises DseError where the
    cost or the limits of the mix, counted apart from the program, are not what the program says: a
    fault of this software."""
    solved, counted = _solved(plan, options, progress)
    facts, made = _facts(plan, options, solved), {**demand_rows(plan), "refused": refused}
    base, renting = None, None
    made |= dict.fromkeys(("limits", "prices", "stock", "fleets"), ())
    if counted is not None and order is None:
        split = divisible(plan, options)
        base = solve(plan, options, split=split) if split else solved
        facts["changes_with_split_instances"] = bool(split)
        made["limits"] = loosened(plan, options, base, progress)
        made["prices"] = entries(plan, options, solved, base, progress)
        made["stock"] = stock_rows(plan, options, base, progress)
        made["fleets"] = alone(plan, options) if single(plan) else ()
        if any(plan.offer(label).way == BUY for label, _ in counted.mix.orders):
            # The cheapest order that buys nothing, which buying is compared with.
            rents = plan.with_offers(lambda one: None if one.way == BUY else one)
            renting = solve(rents, options, nodes=QUICK)
    elif solved.status == NOTHING.status and order is None and not unserved(plan, options):
        facts["must_give"] = must_give(plan, options, progress)
        facts["lead_time_too_long"] = waits_for(plan, options)
    off_sale: dict[str, str] = {}
    if catalog is not None:
        priced = [(offer.chip, offer.basis) for offer in plan.offers if offer.basis]
        facts["price_evidence"] = evidence_rows(catalog, priced, plan.costs)
        off_sale = unsold(catalog, [chip.chip for chip in plan.chips])
    if catalog is not None and plan.service_level is None:
        known = Known() if known is None else known
        facts["not_searched"] = untried(plan, options, base, known, catalog, progress)
        if counted is not None:
            progress("futures")
            drawn = futures_of(plan, options, catalog, PLAIN, (seed, 1))
            kept = Counter(plan, options, drawn).share(first_orders(counted.mix))
            facts["futures"] = {"service_level": None, "share": kept}
    if order is not None:
        facts["futures"] = {"service_level": plan.service_level, **asdict(order)}
        facts["futures"]["servers_now"] = facts["futures"].pop("order")
    check, spend = list[str](), dict[str, Any]()
    if counted is not None:
        spend = by_quarter(plan, counted)
        facts |= _costs(plan, solved, counted)
        facts["finance"] = _finance(plan, options, counted, spend, renting)
        made |= mix_columns(plan, options, counted, spend)
        check = to_check(plan, counted.mix, facts["price_evidence"], off_sale)
    if order is not None:
        said = hedged_sentences(plan, order, counted)
        said += [] if counted is None else [" ".join(check), NOT_SAID]
    elif counted is None:
        said = [
            *nothing_keeps(plan, options, facts, refused),
            *untried_words(facts["not_searched"]),
        ]
    else:
        said = [headline(plan, counted)]
        if solved.status.startswith("feasible"):
            said.append(
                "The search stopped at its limit of nodes, and a mix up to "
                f"{share(solved.gap)} cheaper may exist."
            )
        said += [*untried_words(facts["not_searched"]), *served(facts), " ".join(check)]
        said += sentences(plan, solved, counted, facts, made)
    first, *said = filter(None, said)
    said, rests = said[:MOST_SENTENCES], assumptions(plan, facts, off_sale)
    facts |= {"answer": [first, *said], "assumed": rests}
    frames = frames_of(made, split=facts["changes_with_split_instances"])
    written = document({**facts, **{name: [] for name in FRAMES}}, list(frames.values()))
    shown = [name for name in SHOWN if name in frames]
    if single(plan) and counted is not None:
        shown = [name for name in shown if name not in ("chips", "by_quarter")]
    # Of the tables of the files alone, the chips by quarter come first: they are fleet.csv.
    unseen = [one for name, one in frames.items() if name == "chips" or name not in shown]
    parts = [price_parts(facts["owned_prices"])] if facts["owned_prices"] else []
    answer = Answer(
        question="fleet",
        title=f"Fleet: {plan.title}",
        asked=asked(plan),
        headline=first,
        sentences=said,
        blocks=[frames[name] for name in shown],
        rests=rests,
        document=written,
        data=(*unseen, *parts, table_of("options", facts["options"])),
        words=WORDS,
        names={} if catalog is None else catalog.names,
    )
    if counted is None:
        return answer
    figures = pictures(plan, counted, made, frames)
    sure = "How sure: " + " ".join([*served(facts), *check])
    spread, makers = {}, {}
    if catalog is not None:
        spread = catalog.calibration.spread.get("throughput", {})
        makers = {one.id: f"{one.vendor} {one.label}" for one in catalog.chips.values()}
    signed = replace(answer, names=makers)
    return replace(
        answer,
        blocks=(*figures, *answer.blocks),
        opening=Opening(answer.asked, first, figures[0], frames.get("orders"), sure),
        memo=lambda: memo(plan, options, counted, signed, made, frames, spread, check),
        sheets=sheets(plan, counted, spend, max(frames["use"]["peak_use"])),
    )


def _solved(
    plan: Plan, options: Sequence[Option], progress: Progress
) -> tuple[Solved, Counted | None]:
    """The program's answer, and its mix counted; None where nothing keeps the plan."""
    if unserved(plan, options):
        return NOTHING, None
    progress(f"{len(options)} options over {plan.quarters} quarters")
    solved = solve(plan, options)
    if solved.mix is None:
        return solved, None
    counted = count(plan, options, settled(plan, options, solved.mix))
    if counted.broken or abs(counted.usd - solved.usd) > AGREES * max(solved.usd, 1.0):
        raise DseError(
            f"the program's answer does not stand: {counted.usd:.9g} USD counted against "
            f"{solved.usd:.9g}; {'; '.join(counted.broken)}"
        )
    return replace(solved, mix=counted.mix), counted


def first_orders(mix: Mix) -> dict[str, int]:
    """Servers that are ordered in the first quarter, by offer; split ones as whole ones."""
    first = {label: servers for (label, q), servers in mix.orders.items() if q == 0}
    return {label: math.ceil(servers - LEAST) for label, servers in first.items()}


def _facts(plan: Plan, options: Sequence[Option], solved: Solved) -> dict[str, Any]:
    """What the document says beside its frames, of a plan that nothing keeps."""
    none = ("futures", "usd", "usd_undiscounted", "usd_per_million_tokens", "finance")
    empty = ("must_give", "lead_time_too_long", "not_searched", "price_evidence")
    return {
        "plan": plan.name,
        "title": plan.title,
        "feasible": solved.mix is not None,
        "status": solved.status,
        "price_basis": plan.price_basis,
        "quarters": plan.quarters,
        "changes_with_split_instances": False,
        **dict.fromkeys(none),
        **{name: [] for name in empty},
        "options": [{**option_row(one), "chips": dict(one.chips)} for one in options],
        "owned_prices": [
            owned(chip.chip, chip.owning, plan.costs)
            for chip in plan.chips
            if chip.owning is not None
        ],
    }


def _costs(plan: Plan, solved: Solved, counted: Counted) -> dict[str, Any]:
    kwh, carbon = site_kwh(plan, counted), plan.costs.carbon
    return {
        "usd": counted.usd,
        "usd_undiscounted": counted.within_usd,
        "usd_per_million_tokens": counted.within_usd / tokens(plan) * 1e6,
        "usd_signed": counted.signed_usd,
        "usd_committed_beyond": counted.committed_usd,
        "usd_written_off": counted.written_off_usd,
        "usd_bought": counted.bought_usd,
        "usd_lower_bound": solved.bound,
        "gap": solved.gap,
        "kwh_on_site": kwh,
        "co2_kg": None if carbon is None else kwh * carbon.value / 1e3,
    }


def _finance(
    plan: Plan,
    options: Sequence[Option],
    counted: Counted,
    spend: Mapping[str, Any],
    renting: Solved | None,
) -> dict[str, Any]:
    """Today's worth of the cash, and what buying returns against the cheapest order that only
    rents, or why that is not known."""
    after = float(spend["rent_usd"][plan.quarters :].sum())
    found = {
        "discount_rate_per_year": plan.discount_rate,
        "present_usd": float(spend["present_usd"].sum()),
        "capex_usd": counted.bought_usd,
        "opex_usd": float(spend["cash_usd"].sum()) - counted.bought_usd,
        "worth_at_end_usd": float(spend["worth_usd"].sum()),
        "rents_of_use_usd": plan.used_after_end * after,
        "against_renting": None,
        "renting_alone": "" if renting is None else lack(renting),
    }
    if renting is not None and renting.mix is not None and not found["renting_alone"]:
        instead = count(plan, options, renting.mix)
        cash = by_quarter(plan, instead)
        found["against_renting"] = {
            "usd_signed": instead.signed_usd,
            "present_usd": float(cash["present_usd"].sum()),
            **returned(plan, spend, cash),
        }
    return found
