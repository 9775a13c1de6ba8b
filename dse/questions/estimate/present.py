"""The answer of `dse estimate`: what is predicted of one point, and where it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dse.answer.answer import Answer, Block, Cell, Column, Figure, Opening, Table, table_of
from dse.answer.numbers import show
from dse.economics.prices import evidence_words, price_tables
from dse.problem.mix import held
from dse.problem.quality import quality_words
from dse.problem.words import (
    KNOWN,
    LINES,
    MIX,
    OF_ARRIVALS,
    OF_POOLS,
    SHORT,
    average_load_words,
    heading,
    known_words,
    pool_heading,
    violation_words,
)
from dse.questions.estimate.detail import where_figures
from dse.questions.estimate.point import Estimate
from dse.record import record
from dse.schema.metrics import EVERY
from dse.schema.plausible import FAR

WORKLOAD_COLUMNS = (
    "ttft_s",
    "tpot_s",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "usd_per_million_total_tokens",
)
# Of one point, beside the picture.
FEW = (
    "ttft_s",
    "tpot_s",
    "output_tokens_per_s",
    "usd_per_million_total_tokens",
    "joules_per_output_token",
    "running_requests",
    "memory_bytes_per_chip",
)
# The same where requests of one arrive at random.
ARRIVAL_COLUMNS = (
    "ttft_s",
    "ttft_p99_s",
    "utilisation",
    "tpot_s",
    "usd_per_million_total_tokens",
)


@record
class PointAnswer(Answer):
    """The answer of one point. Every key of its document is an attribute: `e.tpot_s`,
    `e.provenance`, `e.feasible`. `point` has the arrays behind it, of pools those of decode."""

    point: Estimate | None = None

    def __getattr__(self, name: str) -> Any:
        document = self.__dict__.get("document", {})
        if name in document:
            return document[name]
        raise AttributeError(f"an estimate has no {name!r}")

    def interval(self, metric: str) -> tuple[float, float] | None:
        """(low, high) of a metric, 80%; None for one that has no interval."""
        found = self.document["intervals"].get(metric)
        return None if found is None else (found[0], found[1])


def point_answer(found: Estimate, *, detail: bool = False) -> PointAnswer:
    """The answer of one point that kept its entries. `detail` adds where time, memory, money and
    energy go."""
    estimated = found.as_json()
    document = dict(estimated)
    first, *rest = _lead(estimated)
    loads = estimated.get("workloads", ())
    blocks: list[Block] = [workload_table(loads)] if estimated["workload"] is None else []
    step, memory = where_figures(found.metrics)
    blocks += [memory, metric_table(estimated)]
    if detail:
        from dse.questions.estimate.detail import detail_blocks

        more, made = detail_blocks(found, estimated)
        document |= more
        blocks += made
    if "price" in estimated:
        blocks += price_tables(estimated["price"])
    if "at_average_load" in estimated:
        rest.append(average_load_words(estimated["at_average_load"]))
    if estimated.get("loss_runs"):
        from dse.problem.own_law import own_law_words

        own = own_law_words(estimated)
    else:
        own = []
    asked = "; ".join(heading(estimated))
    return PointAnswer(
        question="estimate",
        title=f"{estimated['model']} on {estimated['deployment']['chips']:,} x "
        f"{estimated['deployment']['chip']}",
        asked=asked,
        headline=first,
        opening=_opening(estimated, asked, step),
        sentences=[*rest, *quality_words(estimated), *own],
        blocks=blocks,
        certainty=[known_words(estimated)],
        rests=estimated["assumed"],
        document=document,
        data=(data_table(estimated),),
        names=found.names,
        point=found,
    )


def pools_answer(found: Estimate) -> PointAnswer:
    """The answer of disaggregated prefill and decode (`dse.questions.estimate.pools`), of a decode
    pool with its `prefill`."""
    from dse.questions.estimate.pools import pools

    assert found.prefill is not None
    document = pools(found.prefill, found)
    first, *rest = _lead(document)
    asked, (step, memory) = "; ".join(pool_heading(document)), where_figures(found.metrics)
    return PointAnswer(
        question="estimate",
        title=f"{document['model']}, prefill and decode on pools of their own",
        asked=asked,
        headline=first,
        opening=_opening(document, asked, step),
        sentences=rest,
        blocks=[memory, metric_table(document)],
        rests=document["assumed"],
        document=document,
        data=(data_table(document),),
        names=found.names,
        point=found,
    )


def _opening(document: Mapping[str, Any], asked: str, step: Figure) -> Opening:
    few = metric_table(document, [name for name in FEW if document.get(name) is not None])
    few = replace(few, caption="", columns=few.columns[:3])
    known = document["provenance"].get("tpot_s")
    sure = "How sure: the truth is expected within the 80% interval in four of five cases"
    sure += f"; the time per output token is {known} ({KNOWN[known]})." if known in KNOWN else "."
    return Opening(asked, _lead(document)[0], step, few, sure)


def _lead(document: Mapping[str, Any]) -> list[str]:
    """The answer in one sentence, or the first rule that the point breaks; then the rest."""
    bound = [f"Bound by {document['bottleneck']}."]
    slips = [text for text in document["assumed"] if FAR in text]
    bound += [f"Before you believe it, check {text}." for text in slips]
    if not document["feasible"]:
        broken = [f"Infeasible: {violation_words(row)}." for row in document["violations"]]
        return [*broken, *bound]
    money = document["usd_per_million_total_tokens"]
    usd = show("usd_per_million_total_tokens", money)
    cost = "" if money is None else f", {usd} per million tokens"
    check = [] if money is None else evidence_words(document["price_evidence"])
    return [
        f"Feasible. {show('tpot_s', document['tpot_s'])} per output token, "
        f"{show('ttft_s', document['ttft_s'])} to the first token, "
        f"{show('output_tokens_per_s', document['output_tokens_per_s'])} output tokens per second"
        f"{cost}.",
        *bound,
        *check,
    ]


def _shown(document: Mapping[str, Any]) -> list[str]:
    """The metrics of a document that are worth a line."""
    pools = "prefill_pool" in document
    return [
        metric
        for metric in (*LINES, *OF_POOLS)
        if metric in document
        and not ((pools or metric in OF_ARRIVALS) and document[metric] is None)
    ]


def metric_table(document: Mapping[str, Any], metrics: Sequence[str] = ()) -> Table:
    """Every metric worth a line, or those given: its value, interval and how it is known."""

    def interval(metric: str) -> str:
        ends = document["intervals"].get(metric) or ()
        return " .. ".join(show(metric, end) for end in ends)

    return Table.of(
        "metrics",
        "What is predicted",
        metrics or _shown(document),
        (
            Column("metric", "metric", of=lambda metric: EVERY[metric].title),
            Column(
                "predicted",
                "predicted",
                right=True,
                of=lambda metric: show(metric, document[metric]),
            ),
            Column("interval", "80% interval", right=True, of=interval),
            Column("known", "known as", of=lambda metric: document["provenance"].get(metric, "")),
        ),
    )


def data_table(document: Mapping[str, Any]) -> Table:
    """estimate.csv: the same numbers, raw and in SI."""
    rows: list[dict[str, Cell]] = []
    for metric in _shown(document):
        low, high = document["intervals"].get(metric) or (None, None)
        known = document["provenance"].get(metric)
        rows.append(
            {"metric": metric, "value": document[metric], "low": low, "high": high, "known": known}
        )
    return table_of("data", rows)


def workload_table(loads: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each workload of a mix."""
    metrics = WORKLOAD_COLUMNS if held(loads) else ARRIVAL_COLUMNS
    return Table(
        "workloads",
        "Each workload of the mix",
        (
            Column("name", "workload"),
            Column("weight", "requests", "share"),
            Column("chip_seconds_share", "of the time", "share"),
            *(Column(metric, SHORT[metric], metric) for metric in metrics),
        ),
        loads,
        notes=(MIX,),
    )


def why_not_answer(document: dict[str, Any], study: str) -> Answer:
    """The answer of `dse estimate --why-not STUDY` (`dse.questions.estimate.why_not`)."""
    first, *rest = document["reasons"]
    return Answer(
        question="estimate",
        title=f"Why the front of {study} lacks this point",
        headline=first,
        sentences=rest,
        document=document,
    )
