"""What every part of the answer of `dse whatif` says: the winner, what a demand takes, changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from dse import units
from dse.answer.answer import Column
from dse.answer.glossary import GLOSSARY
from dse.answer.numbers import dollars, percent, priced, show, tenths
from dse.physics.workload import POISSON
from dse.problem.words import served_words
from dse.questions.whatif.solve import words
from dse.schema.metrics import METRICS
from dse.schema.workloads import load_words

Json = Mapping[str, Any]
# Terms that the page explains besides the common ones.
WORDS = {
    "winner": "the point that is best in the objective among all that keep the limits",
    "front": "the points that no other point is as good as in every objective",
    "elasticity": "percent that the objective moves by for one percent of an input",
    "shadow price": "what one step of a limit is worth: the gain where it is looser by that much",
    "break-even": "where two choices cost the same",
    "utilisation": "the share of its hours in which a chip serves",
    "deployment": "one instance of the model with its replicas; a demand takes several",
    "if busy": "the price of a token on a deployment that never waits for requests",
    "deployed anew": "with degrees, formats and load chosen again after the change",
    "envelope": "the best of all deployments at each value of an input",
    "requests in flight": GLOSSARY["requests in flight"],
}
HELD_NOTE = (
    "held: deployments bought for the demand, with their chips and dollars in all; if busy: the "
    "cost per million tokens of a deployment that never waits."
)


def named(metric: str) -> str:
    return METRICS[metric].title


def asked_words(document: Json) -> str:
    """What is asked of what, in a line."""
    loads = "; ".join(load_words(load) for load in document["workloads"])
    limits = ", ".join(document["limits"]) or "no limit"
    demand = f"demand: {document['demand']['words']}; " if document["demand"] else ""
    return f"{document['title']}: {loads}; {demand}{limits}; prices: {document['price_basis']}"


def in_full(value: Any) -> Any:
    """A document whose points say their deployment in words, not in short."""
    if isinstance(value, Mapping):
        own = {key: in_full(one) for key, one in value.items()}
        return own | {"words": served_words(own["deployment"])} if "provenance" in own else own
    return [in_full(one) for one in value] if isinstance(value, list) else value


def winner_words(document: Json) -> str:
    """The winner as things stand, and how sure its objective is."""
    metric, winner = document["objective"], document["winner"]
    value, load = winner["metrics"][metric], winner["at_average_load"]
    if not metric.startswith("usd_per_million"):
        said = f"{words(winner)} is best: {priced(metric, value)}"
    elif load is None or load["deployments"] is None:
        said = f"{words(winner)} is cheapest: {priced(metric, value)}"
    else:
        verb = "is" if load["deployments"] == 1 else "are"
        said = (
            f"{counted(load['deployments'], 'deployment')} of {words(winner)} {verb} cheapest for "
            f"the demand: {priced(metric, value)}"
        )
    sure = f"kernel laws {winner['provenance']}"
    if ends := winner["intervals"].get(metric):
        low, high = (show(metric, end) for end in ends)
        same = "the same at both ends of the 80% interval"
        sure = f"{same if low == high else f'80% interval {low} to {high}'}, {sure}"
    return f"As things stand, {said} ({sure})."


def demand_words(document: Json) -> list[str]:
    """What the demand takes of the winner; nothing without a demand."""
    demand, load = document["demand"], document["winner"]["at_average_load"]
    if demand is None:
        return []
    arrive = any(one["serving"] == POISSON for one in document["workloads"])
    of, full = ("given", " of the study's arrivals") if arrive else ("busy", "")
    busy = (
        f"{of} {percent(load['busy_share'])}{full} on average, where one that "
        f"{'gets them all' if arrive else 'never waits'} would cost "
        f"{dollars(load['busy_usd_per_million_total_tokens'])} per million tokens"
    )
    said = f"{demand['words'][0].upper()}{demand['words'][1:]}"
    if load["deployments"] is None:
        return [f"{said}: deployments of any size, {busy}."]
    ends = load["deployments_interval"]
    between = (
        "" if ends is None or ends[0] == ends[1] else f" (80% interval {ends[0]:,} to {ends[1]:,})"
    )
    parts = [f"{counted(load['deployments'], 'deployment')}{between}"]
    parts.append(f"{counted(load['chips'], 'chip')} in all")
    if load["meter_w"] is not None:
        parts.append(f"{units.format(load['meter_w'], 'W', 3)} at the meter")
    if demand["racks"] is not None:
        rack = units.format(demand["rack_w"], "W", 3)
        parts.append(f"{counted(demand['racks'], 'rack')} of {rack}")
    paid = (
        f"{dollars(load['usd_per_hour'])} an hour, {dollars(load['usd_per_year'])} a year, "
        f"{dollars(load['usd_per_million_total_tokens'])} per million tokens"
    )
    who = "it" if load["deployments"] == 1 else "each"
    return [f"{said}, takes {', '.join(parts)}: {paid}; {who} is {busy}."]


def counted(count: float, what: str) -> str:
    """`1 chip`, `1,024 chips`."""
    return f"{count:,.0f} {what}{'' if count == 1 else 's'}"


def load_of(point: Json | None) -> Json:
    """What a demand buys of a point; empty without a demand."""
    load = None if point is None else point["at_average_load"]
    return {} if load is None or load["deployments"] is None else load


def taking(point: Json | None) -> str:
    """` with 4 deployments, 8 chips, $8.40 an hour`; nothing without a demand."""
    if not (load := load_of(point)):
        return ""
    return (
        f" with {counted(load['deployments'], 'deployment')}, {counted(load['chips'], 'chip')}, "
        f"{dollars(load['usd_per_hour'])} an hour"
    )


def by_words(metric: str, change: float | None) -> str:
    """`29.0% cheaper`, `4.1% more`."""
    if change is None:
        return ""
    if abs(change) < 5e-4:
        return "unchanged within 0.05%"
    if metric.startswith("usd_"):
        return f"{tenths(abs(change))} {'cheaper' if change < 0 else 'dearer'}"
    return f"{tenths(abs(change))} {'less' if change < 0 else 'more'}"


def held_columns(rows: Iterable[Json]) -> tuple[Column, ...]:
    """Columns of what a demand takes of the `winner` of a row, where one of them serves one."""

    def of(key: str, title: str, kind: str) -> Column:
        return Column(key, title, kind, of=lambda row: load_of(row["winner"]).get(key))

    if not any(load_of(row["winner"]) for row in rows):
        return ()
    return (
        of("deployments", "held", "count"),
        of("chips", "chips", "count"),
        of("usd_per_hour", "an hour", "dollars"),
        of("busy_usd_per_million_total_tokens", "if busy", "dollars"),
    )


def metric_columns(*metrics: str, first: int = 0) -> tuple[Column, ...]:
    """Columns of metrics of the `winner` of a row, of which the `first` stand on a first screen."""

    def of(k: int, name: str) -> Column:
        value = partial(_metric, name)
        return Column(name, named(name), name, of=value, first=k < first)

    return tuple(of(k, name) for k, name in enumerate(dict.fromkeys(metrics)))


def _metric(name: str, row: Json) -> float | None:
    return None if row["winner"] is None else row["winner"]["metrics"].get(name)
