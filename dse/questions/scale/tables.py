"""The tables of `dse scale`."""

from __future__ import annotations

from collections.abc import Sequence

from dse.answer.answer import Cell, Column, Table
from dse.questions.scale.answer import Scaled
from dse.questions.scale.sizes import GAIN_PER_DOUBLING, Size
from dse.questions.scale.words import chips_words, division

DENSE_KEY = "tp, pp: tensor and pipeline parallel"
SPARSE_KEY = (
    "tp, pp, dp, ep: tensor, pipeline, attention-data and expert parallel, +copies of experts"
)


def tables(answer: Scaled) -> list[Table]:
    """Every table of one chip but that of stages, in the order of the questions."""
    made = [size_table(answer), replica_table(answer)]
    if answer.experts:
        made.append(expert_table(answer))
    return [*made, jitter_table(answer), evenness_table(answer)]


def size_table(answer: Scaled) -> Table:
    rows: list[dict[str, Cell]] = []
    for row in answer.sizes:
        one, many = row.single, row.within
        cells: dict[str, Cell] = {"chips": f"{row.chips}{'*' * row.crosses_domain}"}
        if one is not None:
            cells |= {
                "tpot_s": one.tpot_s,
                "division": division(one),
                "bound": one.bound,
                "network_share": one.network_share,
            }
        if one is not None and many is not None:
            cells |= {
                "output_tokens_per_s_per_chip": many.output_tokens_per_s_per_chip,
                "usd_per_million_total_tokens": many.usd_per_million_total_tokens,
                "division_at_limits": division(many),
                "concurrency": many.concurrency,
            }
        rows.append(cells)
    return Table(
        f"sizes {answer.subject.chip}",
        f"One instance by its size ({answer.subject.chip})",
        (
            Column("chips", "chips", right=True),
            Column("tpot_s", "one user, a token", "tpot_s"),
            Column("division", "division"),
            Column("bound", "bound"),
            Column("network_share", "network", "network_share"),
            Column(
                "output_tokens_per_s_per_chip",
                "at limits, tokens/s a chip",
                "output_tokens_per_s_per_chip",
            ),
            Column("usd_per_million_total_tokens", "$/M tokens", "usd_per_million_total_tokens"),
            Column("division_at_limits", "division"),
            Column("concurrency", "in flight", "count"),
        ),
        rows,
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
        reason = row.reason or row.within_reason
        if reason:
            reasons.setdefault(reason, []).append(str(row.chips))
    return [f"On {', '.join(chips)}: {reason}." for reason, chips in reasons.items()]


def replica_table(answer: Scaled) -> Table:
    kept = [
        row
        for row in answer.replicas
        if row.chips in (answer.replicas_of, answer.subject.domain, answer.asked.demand)
        or row.chips & (row.chips - 1) == 0
    ]
    return Table(
        f"replicas {answer.subject.chip}",
        f"{chips_words(answer.asked.demand)} in all, within the limits ({answer.subject.chip})",
        (
            Column("replicas", "instances", "count"),
            Column("chips", "of chips", "count"),
            Column("idle_chips", "idle", "count"),
            Column("concurrency", "in flight", "count"),
            Column("output_tokens_per_s", "output tokens/s", "output_tokens_per_s"),
            Column("of_best", "of the best", "share"),
            Column("usd_per_million_total_tokens", "$/M tokens", "usd_per_million_total_tokens"),
            Column("tpot_s", "a token", "tpot_s"),
            Column("ttft_s", "first token", "ttft_s"),
        ),
        [
            {
                "replicas": row.replicas,
                "chips": row.chips,
                "idle_chips": row.idle_chips,
                "concurrency": row.concurrency,
                "output_tokens_per_s": row.output_tokens_per_s,
                "of_best": row.of_best,
                "usd_per_million_total_tokens": row.usd_per_million_total_tokens,
                "tpot_s": row.tpot_s,
                "ttft_s": row.ttft_s,
            }
            for row in kept
        ],
        ("Idle chips are paid for.",),
    )


def expert_table(answer: Scaled) -> Table:
    return Table(
        f"experts {answer.subject.chip}",
        f"Experts over more chips, {answer.asked.requests_per_chip} requests a chip "
        f"({answer.subject.chip})",
        (
            Column("expert_parallel", "experts over", right=True),
            Column("domains", "domains", "count"),
            Column("decode_step_s", "step", "decode_step_s"),
            Column("experts_s", "experts", "time"),
            Column("all_to_all_s", "all-to-all", "time"),
            Column("all_to_all_share", "share", "share"),
            Column("slowdown", "x one domain", "number"),
            Column("step_slowdown", "step x", "number"),
            Column(
                "output_tokens_per_s_per_chip", "tokens/s a chip", "output_tokens_per_s_per_chip"
            ),
            Column("fits", "fits"),
        ),
        [
            {
                "expert_parallel": str(row.expert_parallel)
                + f"+{row.redundant_experts}" * bool(row.redundant_experts),
                "domains": row.domains,
                "decode_step_s": row.decode_step_s,
                "experts_s": row.experts_s,
                "all_to_all_s": row.all_to_all_s,
                "all_to_all_share": row.all_to_all_share,
                "slowdown": row.slowdown,
                "step_slowdown": row.decode_step_s / row.decode_step_one_domain_s,
                "output_tokens_per_s_per_chip": row.output_tokens_per_s_per_chip,
                "fits": row.fits,
            }
            for row in answer.experts
        ],
        (
            "Each chip is an attention rank; +copies of busy experts. x one domain: all-to-all "
            "time over that in a domain that holds the whole group; step x: the same of the step.",
        ),
    )


def jitter_table(answer: Scaled) -> Table:
    return Table(
        f"jitter {answer.subject.chip}",
        f"The largest useful collective by jitter, one user ({answer.subject.chip})",
        (
            Column("jitter_s", "jitter", "time"),
            Column("group_chips", "collective of", "count"),
            Column("ceiling_chips", "ceiling, chips", "count"),
            Column("minimum_chips", "fastest, chips", "count"),
            Column("minimum_tpot_s", "a token", "tpot_s"),
            Column("network_share", "network", "network_share"),
            Column("speedup", "x the fewest chips", "number"),
        ),
        [
            {
                "jitter_s": row.jitter_s,
                "group_chips": row.group_chips,
                "ceiling_chips": row.ceiling_chips,
                "minimum_chips": row.minimum_chips,
                "minimum_tpot_s": row.minimum_tpot_s,
                "network_share": row.network_share,
                "speedup": row.smallest_tpot_s / row.minimum_tpot_s,
            }
            for row in answer.jitter
        ],
        (
            f"Jitter: {answer.asked.distribution} extra latency of each member of a collective, "
            "which waits for the slowest. An input: no public percentiles were found. Ceiling: "
            f"twice the chips save less than {GAIN_PER_DOUBLING:.0%} beyond it. Collective of: "
            "chips that meet in a layer at the ceiling (tensor x data parallel); 1: stages alone.",
        ),
    )


def evenness_table(answer: Scaled) -> Table:
    return Table(
        f"evenness {answer.subject.chip}",
        f"Even latency against peak bandwidth at the same point ({answer.subject.chip})",
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
        [
            {
                "chips": row.chips,
                "concurrency": row.concurrency,
                "jitter_s": row.jitter_s,
                "tpot_s": row.tpot_s,
                "twice_bandwidth_s": row.twice_bandwidth_s,
                "half_jitter_s": row.half_jitter_s,
                "bandwidth_elasticity": row.bandwidth_elasticity,
                "jitter_elasticity": row.jitter_elasticity,
            }
            for row in answer.evenness
        ],
        (
            "Elasticity: percent that the time falls by for one percent more bandwidth, or one "
            "percent less jitter.",
        ),
    )


def stage_table(answer: Scaled) -> Table:
    return Table(
        f"stages {answer.subject.chip}",
        f"One request over pipeline stages ({answer.subject.chip})",
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
        [
            {
                "tensor_parallel": row.tensor_parallel,
                "pipeline_parallel": row.pipeline_parallel,
                "chips": row.chips,
                "tpot_s": row.tpot_s,
                "tpot_ratio": row.tpot_ratio,
                "ttft_s": row.ttft_s,
                "memory_bytes_per_chip": row.memory_bytes_per_chip,
                "fits": row.fits,
                "tensor_tpot_s": row.tensor_tpot_s,
            }
            for row in answer.stages
        ],
        (
            "Stages divide the memory, not the time of one request: it passes through all of them. "
            "Last column: the same chips as one tensor-parallel group.",
        ),
    )
