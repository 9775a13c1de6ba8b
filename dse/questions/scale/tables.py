"""The tables of `dse scale`, and the rows of scale.csv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dse.answer.answer import Cell, Column, Table
from dse.questions.scale.answer import Scaled
from dse.questions.scale.sizes import GAIN_PER_DOUBLING, Size
from dse.questions.scale.words import chips_words

DENSE_KEY = "tp, pp: tensor and pipeline parallel"
SPARSE_KEY = (
    "tp, pp, dp, ep: tensor, pipeline, attention-data and expert parallel, +copies of experts"
)
# Of each point in scale.csv.
POINT = (
    "tpot_s",
    "ttft_s",
    "output_tokens_per_s_per_chip",
    "usd_per_million_total_tokens",
    "network_share",
    "bound",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "redundant_experts",
    "concurrency",
    "kind",
)
LOADS = ("single", "within")
RATE, PRICE = "output_tokens_per_s_per_chip", "usd_per_million_total_tokens"


def tables(answer: Scaled, *, with_stages: bool = False) -> list[Table]:
    """Every table of one chip, in the order of the questions; `with_stages`: the console has that
    of pipeline stages too."""
    made = [_sizes(answer), _replicas(answer)]
    if answer.pools:
        made.append(_pools(answer))
    if answer.experts:
        made.append(_experts(answer))
    return [*made, _jitter(answer), _evenness(answer), _stages(answer, with_stages)]


def _of(load: str, name: str) -> Callable[[Size], Cell]:
    """What the point of a size under a load says; None where it has no such point."""
    return lambda row: getattr(getattr(row, load), name, None)


def size_data(answers: Sequence[Scaled]) -> Table:
    """scale.csv: a line for each chip and size, empty where it does not run."""
    rows: list[dict[str, Cell]] = [
        {
            "chip": answer.subject.chip,
            "chips": row.chips,
            "crosses_domain": row.crosses_domain,
            "choices": row.choices,
            "reason": row.reason or "",
            **{f"{load}_{name}": _of(load, name)(row) for load in LOADS for name in POINT},
        }
        for answer in answers
        for row in answer.sizes
    ]
    return Table("data", "Every size", [Column(key, key) for key in rows[0]], rows)


def beside(answers: Sequence[Scaled]) -> Table:
    """How far to scale up each chip, in five columns."""

    def cheapest(one: Scaled) -> Cell:
        found = (row for row in one.replicas if row.chips == one.replicas_of)
        return next((row.usd_per_million_total_tokens for row in found), None)

    columns = (
        Column("chip", "an instance of"),
        Column("chips", "for one user", "count"),
        Column("tpot_s", "a token", "tpot_s"),
        Column("replica", "for many", "count", explain="past it, more instances give more"),
        Column(PRICE, "$/M tokens", PRICE),
    )
    rows = [
        {
            "chip": one.subject.chip,
            "chips": one.ceiling.chips or one.ceiling.minimum_chips,
            "tpot_s": one.ceiling.tpot_s or one.ceiling.minimum_tpot_s,
            "replica": one.replicas_of,
            PRICE: cheapest(one),
        }
        for one in answers
    ]
    return Table("instances", "", columns, rows, ("Chips of one instance.",))


def _sizes(answer: Scaled) -> Table:
    return Table.of(
        f"sizes {answer.subject.chip}",
        f"One instance by its size ({answer.subject.chip})",
        answer.sizes,
        (
            Column("chips", "chips", right=True, of=lambda r: f"{r.chips}{'*' * r.crosses_domain}"),
            Column("tpot_s", "one user, a token", "tpot_s", of=_of("single", "tpot_s")),
            Column("division", "division", of=_of("single", "division")),
            Column("bound", "bound", of=_of("single", "bound")),
            Column("network_share", "network", "network_share", of=_of("single", "network_share")),
            Column(RATE, "at limits, tokens/s a chip", RATE, of=_of("within", RATE)),
            Column(PRICE, "$/M tokens", PRICE, of=_of("within", PRICE)),
            Column("division_at_limits", "division", of=_of("within", "division")),
            Column("concurrency", "in flight", "count", of=_of("within", "concurrency")),
        ),
        (
            f"* leaves the scale-up domain of {answer.subject.domain}. One user: the lowest time "
            "per output token over all divisions; bound: the largest part of its decode step; "
            "network: its share. At limits: the most output tokens per second and chip within "
            f"them. {SPARSE_KEY if answer.experts else DENSE_KEY}; degrees of 1 are left out.",
            *_unmet(answer.sizes),
        ),
    )


def _unmet(rows: Sequence[Size]) -> list[str]:
    """Why sizes are empty, sizes of one reason together."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if reason := row.reason or row.within_reason:
            reasons.setdefault(reason, []).append(str(row.chips))
    return [f"On {', '.join(chips)}: {reason}." for reason, chips in reasons.items()]


def _replicas(answer: Scaled) -> Table:
    named = (answer.replicas_of, answer.subject.domain, answer.asked.demand)
    return Table.of(
        f"replicas {answer.subject.chip}",
        f"{chips_words(answer.asked.demand)} in all, within the limits ({answer.subject.chip})",
        [r for r in answer.replicas if r.chips in named or r.chips & (r.chips - 1) == 0],
        (
            Column("replicas", "instances", "count"),
            Column("chips", "of chips", "count"),
            Column("idle_chips", "idle", "count"),
            Column("concurrency", "in flight", "count"),
            Column("output_tokens_per_s", "output tokens/s", "output_tokens_per_s"),
            Column("of_best", "of the best", "share"),
            Column(PRICE, "$/M tokens", PRICE),
            Column("tpot_s", "a token", "tpot_s"),
            Column("ttft_s", "first token", "ttft_s"),
        ),
        ("Idle chips are paid for.",),
    )


def _pools(answer: Scaled) -> Table:
    def split(pool: str) -> Callable[[Any], Cell]:
        return lambda row: (
            f"{getattr(row, f'{pool}_workers')} x ({getattr(row, f'{pool}_division')})"
        )

    return Table.of(
        f"pools {answer.subject.chip}",
        f"Prefill and decode on pools of their own ({answer.subject.chip})",
        answer.pools,
        (
            Column("chips", "chips at most", "count"),
            Column("used", "taken", "count"),
            Column("prefill", "prefill", of=split("prefill")),
            Column("decode", "decode", of=split("decode")),
            Column("in_flight", "in flight", "count", of=lambda row: round(row.in_flight)),
            Column(RATE, "tokens/s a chip", RATE),
            Column("of_best", "of one pool", "share"),
            Column(PRICE, "$/M tokens", PRICE),
            Column("tpot_s", "a token", "tpot_s"),
            Column("ttft_s", "first token", "ttft_s"),
        ),
        ("Of one pool: against the best instance of as many chips at most that does both.",),
    )


def _experts(answer: Scaled) -> Table:
    def over(row: Any) -> str:
        copies = f"+{row.redundant_experts}" if row.redundant_experts else ""
        return f"{row.expert_parallel}{copies}"

    return Table.of(
        f"experts {answer.subject.chip}",
        f"Experts over more chips, {answer.asked.requests_per_chip} requests a chip "
        f"({answer.subject.chip})",
        answer.experts,
        (
            Column("expert_parallel", "experts over", right=True, of=over),
            Column("domains", "domains", "count"),
            Column("decode_step_s", "step", "decode_step_s"),
            Column("experts_s", "experts", "time"),
            Column("all_to_all_s", "all-to-all", "time"),
            Column("all_to_all_share", "share", "share"),
            Column("slowdown", "x one domain", "number"),
            Column(
                "step_slowdown",
                "step x",
                "number",
                of=lambda row: row.decode_step_s / row.decode_step_one_domain_s,
            ),
            Column(RATE, "tokens/s a chip", RATE),
            Column("fits", "fits"),
        ),
        (
            "Each chip is an attention rank; +copies of busy experts. x one domain: all-to-all "
            "time over that in a domain that holds the whole group; step x: the same of the step.",
        ),
    )


def _jitter(answer: Scaled) -> Table:
    return Table.of(
        f"jitter {answer.subject.chip}",
        f"The largest useful collective by jitter, one user ({answer.subject.chip})",
        answer.jitter,
        (
            Column("jitter_s", "jitter", "time"),
            Column("group_chips", "collective of", "count"),
            Column("ceiling_chips", "ceiling, chips", "count"),
            Column("minimum_chips", "fastest, chips", "count"),
            Column("minimum_tpot_s", "a token", "tpot_s"),
            Column("network_share", "network", "network_share"),
            Column(
                "speedup",
                "x the fewest chips",
                "number",
                of=lambda row: row.smallest_tpot_s / row.minimum_tpot_s,
            ),
        ),
        (
            f"Jitter: {answer.asked.distribution} extra latency of each member of a collective, "
            "which waits for the slowest. An input: no public percentiles were found. Ceiling: "
            f"twice the chips save less than {GAIN_PER_DOUBLING:.0%} beyond it. Collective of: "
            "chips that meet in a layer at the ceiling (tensor x data parallel); 1: stages alone.",
        ),
    )


def _evenness(answer: Scaled) -> Table:
    return Table.of(
        f"evenness {answer.subject.chip}",
        f"Even latency against peak bandwidth at the same point ({answer.subject.chip})",
        answer.evenness,
        (
            Column("chips", "chips", "count"),
            Column("concurrency", "in flight", "count"),
            Column("jitter_s", "jitter", "time"),
            Column("tpot_s", "a token", "tpot_s"),
            Column("twice_bandwidth_s", "links x 2", "tpot_s"),
            Column("half_jitter_s", "jitter / 2", "tpot_s"),
            Column("bandwidth_elasticity", "bandwidth elasticity", "number"),
            Column("jitter_elasticity", "jitter elasticity", "number"),
        ),
        (
            "Elasticity: percent that the time falls by for one percent more bandwidth, or one "
            "percent less jitter.",
        ),
    )


def _stages(answer: Scaled, on_console: bool) -> Table:
    return Table.of(
        f"stages {answer.subject.chip}",
        f"One request over pipeline stages ({answer.subject.chip})",
        answer.stages,
        (
            Column("tensor_parallel", "tensor", "count"),
            Column("pipeline_parallel", "stages", "count"),
            Column("chips", "chips", "count"),
            Column("tpot_s", "a token", "tpot_s"),
            Column("tpot_ratio", "x one stage", "number"),
            Column("ttft_s", "first token", "ttft_s"),
            Column("memory_bytes_per_chip", "memory a chip", "memory_bytes_per_chip"),
            Column("fits", "fits", right=True),
            Column("tensor_tpot_s", "a token, all tensor", "tpot_s"),
        ),
        (
            "Stages divide the memory, not the time of one request: it passes through all of them. "
            "Last column: the same chips as one tensor-parallel group.",
        ),
        on_console=on_console,
    )
