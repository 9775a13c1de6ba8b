"""`dse.fleet`: what to buy or rent for a plan of demand, or for a trace of requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from dse.answer.answer import Answer, Opening, table_of
from dse.catalog import Catalog, load_catalog
from dse.economics.tco import with_basis
from dse.errors import InputError, InputErrors
from dse.questions.fleet.answer import Refusal, Solution, answered
from dse.questions.fleet.cash import (
    carbon_words,
    cash_figure,
    finance,
    finance_words,
    stock_words,
)
from dse.questions.fleet.changes import Progress, Steps
from dse.questions.fleet.document import chip_rows, document
from dse.questions.fleet.figures import figures
from dse.questions.fleet.futures import for_level, with_served
from dse.questions.fleet.memo import memo, order_table
from dse.questions.fleet.tables import data_table, tables
from dse.questions.fleet.untried import with_untried
from dse.questions.fleet.words import WORDS, asked_words, assumptions, lead, sure_words
from dse.questions.fleet.workbook import sheets
from dse.schema.costs import BASIS as OWNED
from dse.schema.deployed import OPTIONS, Choices, full, prefill_of
from dse.schema.load import read_demand
from dse.schema.owning import LARGEST_DOMAIN, lacks_for_owning, lacks_power, server_of
from dse.schema.plan import CHOICES, DAY_S, SERVICE_LEVEL, TERMS, Plan
from dse.schema.plan_reader import GIVEN, find_plan, load_plan
from dse.schema.workloads import SERVED

ALL = "all"  # every chip that has a price and the other figures
NAME = "requests"  # of the one class of a plan that is made from arguments
# Lines of that plan whose option has another name.
_OPTIONS = {"ttft": "--ttft-limit", "tpot": "--tpot-limit", "tokens_per_day": "--demand"}
_OPTIONS |= OPTIONS


def fleet(
    plan: str | Path | Mapping[str, Any] | None = None,
    *,
    model: str | Path | None = None,
    chip: str | Sequence[str] = (),
    trace: str | Path | None = None,
    requests_per_second: float | None = None,
    demand: str | None = None,
    peak_over_average: float = 1.0,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    ttft_limit: str = "2s",
    tpot_limit: str = "50ms",
    percentile: int | None = 90,
    window: str = "60s",
    windows: float = 1.0,
    lengths: int | None = None,
    largest_instance: int = 16,
    price_basis: str = "rental_3yr",
    service_level: str | float | None = None,
    seed: int = 0,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **deployed: Unpack[Choices],
) -> Answer:
    """The cheapest mix of chips for a plan: what to buy or rent, how much of it, and when.

        dse.fleet("dense-70b-billion-tokens").to_html("fleet.html")
        dse.fleet(model="llama-3-70b", chip=["h100_sxm", "mi300x"], trace="requests.csv")

    `plan` is a shipped plan, the path of a file, or what such a file says (docs/fleet.md). Without
    one, the other arguments make a plan of one quarter for one model on `chip` (names, or "all"):
    a `trace` of requests, or `requests_per_second` or `demand` (tokens, "1B/day") of
    `prompt_tokens` and `output_tokens` each. `percentile` of first tokens come within
    `ttft_limit`; None is the median of a steady load. They are the options of `dse fleet`.

    With a `service_level` ("80%", or that line of the plan), what is ordered first suffices in that
    share of futures, drawn from `seed`.

    Where nothing keeps the plan, the document of the answer has `feasible` false. Raises InputError
    for what cannot be read.
    """
    flags = full(deployed, Choices)
    catalog = catalog or load_catalog()
    if plan is not None:
        found = load_plan(find_plan(str(plan)) if isinstance(plan, str | Path) else plan, catalog)
        made = _answer(_solved(found, catalog, service_level, seed, progress))
        return replace(made, names=catalog.names)
    catalog, named = _named([chip] if isinstance(chip, str) else chip, catalog)
    catalog = with_basis(catalog, price_basis)
    chips, refused = _chips(named, catalog, price_basis)
    one: dict[str, Any] = {
        "name": NAME,
        "model": None if model is None else str(model),
        "ttft": ttft_limit,
        "tpot": tpot_limit,
        "percentile": percentile,
        **{name: _listed(flags[name]) for name in CHOICES},
        **{field.name: flags[field.name] for field in SERVED},
        "prefill": {axis: [value] for axis, value in prefill_of(flags).items()} or None,
        **_load(trace, requests_per_second, demand, prompt_tokens, output_tokens),
    }
    if trace is not None:
        one |= {"window": window, "windows": windows, "lengths": lengths}
    else:
        one["peak_over_average"] = peak_over_average
    what = Path(trace).name if trace is not None else demand or f"{requests_per_second:g} a second"
    written = {
        "name": "requests",
        "title": f"{model} for {what}",
        "quarters": 1,
        "used_after_end": "100%",
        "price_basis": price_basis,
        "backend": flags["backend"] or "current",
        "disaggregated": bool(flags["disaggregated"]),
        "largest_instance": largest_instance,
        "demand": [{key: value for key, value in one.items() if value is not None}],
        "chips": [_offered(name, catalog, price_basis) for name in chips],
    }
    try:
        read = load_plan(written, catalog)
    except InputError as error:
        raise _of_option(error) from None
    singly = [row["chip"] for row in written["chips"] if row.get("server") == 1]
    if singly:
        words = f"{', '.join(singly)}: taken chip by chip, not by the domain"
        read = replace(read, assumed=(*read.assumed, words))
    solved = _solved(read, catalog, service_level, seed, progress)
    left_out = [Refusal(NAME, name, str(model), reason) for name, reason in refused.items()]
    made = _answer(replace(solved, refused=(*solved.refused, *left_out)))
    return replace(made, names=catalog.names)


def _solved(
    plan: Plan,
    catalog: Catalog,
    service_level: str | float | None,
    seed: int,
    progress: Progress,
) -> Solution:
    """The plan solved, with what it did not choose from; each step says what is left."""
    if service_level is not None:
        plan = replace(plan, service_level=_level(service_level))
    if plan.service_level is not None:
        return for_level(plan, catalog, seed, progress)
    steps = Steps(progress, plan)
    solved = with_untried(answered(plan, catalog, steps), catalog, steps)
    return with_served(solved, catalog, seed, steps)


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


def _answer(found: Solution) -> Answer:
    money = finance(found)
    said = (finance_words(found, money), stock_words(found), carbon_words(found))
    sentences = [*lead(found), *(line for lines in said for line in lines)]
    rests, chips = assumptions(found), chip_rows(found)
    made = document(found, sentences, rests)
    made["finance"] = money
    asked, drawn = asked_words(found.plan), figures(found, made)
    first = None
    if drawn:
        picture = drawn[0] if found.plan.quarters == 1 and drawn[1:] else cash_figure(made)
        ordered = order_table(found, made)
        first = Opening(asked, sentences[0], picture, ordered, sure_words(found))
    # The options that were weighed are for the workbook alone.
    return Answer(
        question="fleet",
        title=f"Fleet: {found.plan.title}",
        asked=asked,
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*drawn, *tables(found, made, chips)),
        rests=rests,
        document=made,
        data=(data_table(chips), table_of("options", made["options"])),
        words=WORDS,
        opening=first,
        memo=None if found.counted is None else lambda: memo(found, made),
        sheets=sheets(found),
    )


def _load(
    trace: str | Path | None,
    requests_per_second: float | None,
    demand: str | None,
    prompt_tokens: int | None,
    output_tokens: int | None,
) -> dict[str, Any]:
    """The lines of the demand that say how many requests come, and how long they are."""
    given = {
        "--trace": trace,
        "--requests-per-second": requests_per_second,
        "--demand": demand,
    }
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        said = " and ".join(named) or "no demand"
        raise InputError(said, accepted=f"a plan, or one of {', '.join(given)}")
    lengths = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
    if trace is not None:
        return {"trace": str(Path(trace).absolute()), **lengths}
    if demand is None:
        return {"requests_per_second": requests_per_second, **lengths}
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


def _named(texts: Sequence[str], catalog: Catalog) -> tuple[Catalog, list[str]]:
    """The ids of the chips that are named by id or file, with commas between them or not, and the
    catalog that has them all."""
    apart = [[text] if Path(text).is_file() else text.split(",") for text in texts]
    wanted = [word.strip() for words in apart for word in words if word.strip()]
    if not wanted:
        raise InputError(
            "--chip is missing", accepted="ids that `dse catalog chips` prints, or all"
        )
    return (catalog, wanted) if wanted == [ALL] else catalog.with_chips(wanted, "--chip")


def _chips(
    wanted: Sequence[str], catalog: Catalog, basis: str
) -> tuple[list[str], Mapping[str, str]]:
    """Chips to choose from; of "all", those that cannot be, with the reason."""
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
    reasons = {chip: _lacks(chip, catalog, basis) for chip in priced}
    return (
        [chip for chip, reason in reasons.items() if reason is None],
        {chip: reason for chip, reason in reasons.items() if reason is not None},
    )


def _lacks(chip: str, catalog: Catalog, basis: str) -> str | None:
    """Which figure of a chip is missing; None where all are there."""
    try:
        catalog.require(chip)
    except InputError as error:
        return error.message
    lacks = lacks_for_owning if basis == OWNED else lacks_power
    return lacks(catalog, chip, catalog.costs)


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
    option = _OPTIONS.get(line, f"--{line.replace('_', '-')}" if line else None)
    return InputError(error.message, field=option, accepted=error.accepted)
