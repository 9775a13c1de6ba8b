"""The tables of `dse scale` as text, which the console and the page both show."""

from __future__ import annotations

from collections.abc import Sequence

from dse.answer.text_table import Table
from dse.questions.scale.answer import Scaled
from dse.questions.scale.sizes import GAIN_PER_DOUBLING, Size
from dse.questions.scale.words import (
    NONE,
    chips_words,
    division,
    dollars,
    milliseconds,
    short_time,
    significant,
)

DENSE_KEY = "tp, pp: tensor and pipeline parallel"
SPARSE_KEY = (
    "tp, pp, dp, ep: tensor, pipeline, attention-data and expert parallel, +copies of experts"
)


def tables(answer: Scaled) -> list[Table]:
    """Every table of one chip, in the order of the questions."""
    made = [size_table(answer), replica_table(answer)]
    if answer.experts:
        made.append(expert_table(answer))
    return [*made, jitter_table(answer), evenness_table(answer)]


def size_table(answer: Scaled) -> Table:
    rows = []
    for row in answer.sizes:
        name = f"{row.chips}{'*' * row.crosses_domain}"
        if row.single is None:
            rows.append((name, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE))
            continue
        one, many = row.single, row.within
        rows.append(
            (
                name, milliseconds(one.tpot_s), division(one), one.bound,
                f"{one.network_share:.0%}",
                NONE if many is None else significant(many.output_tokens_per_s_per_chip),
                NONE if many is None else dollars(many.usd_per_million_total_tokens),
                division(many), NONE if many is None else f"{many.concurrency:,}",
            )
        )  # fmt: skip
    return Table(
        f"One instance by its size ({answer.subject.chip})",
        ("chips", "one user, ms/token", "division", "bound", "network",
         "at limits, tokens/s a chip", "$/M tokens", "division", "in flight"),
        rows,
        (0, 1, 4, 5, 6, 8),
        (
            f"* leaves the scale-up domain of {answer.subject.domain}. One user: the lowest time "
            "per output token over all divisions; bound: the largest part of its decode step; "
            "network: its share. At limits: the most output tokens per second and chip within "
            f"them. {SPARSE_KEY if answer.experts else DENSE_KEY}; degrees of 1 are left out.",
            *_unmet(answer.sizes),
        ),
    )  # fmt: skip


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
        f"{chips_words(answer.asked.demand)} in all, within the limits ({answer.subject.chip})",
        ("instances", "of chips", "idle", "in flight", "output tokens/s", "of the best",
         "$/M tokens", "ms/token", "first token, s"),
        [
            (
                f"{row.replicas:,}", str(row.chips), str(row.idle_chips), f"{row.concurrency:,}",
                significant(row.output_tokens_per_s), f"{row.of_best:.0%}",
                dollars(row.usd_per_million_total_tokens), milliseconds(row.tpot_s),
                significant(row.ttft_s),
            )
            for row in kept
        ],
        tuple(range(9)),
        ("Idle chips are paid for.",),
    )  # fmt: skip


def expert_table(answer: Scaled) -> Table:
    return Table(
        f"Experts over more chips, {answer.asked.requests_per_chip} requests a chip "
        f"({answer.subject.chip})",
        ("experts over", "domains", "step, ms", "experts, ms", "all-to-all, ms", "share",
         "x one domain", "step x", "tokens/s a chip", "fits"),
        [
            (
                f"{row.expert_parallel}{f'+{row.redundant_experts}' * bool(row.redundant_experts)}",
                str(row.domains), milliseconds(row.decode_step_s), milliseconds(row.experts_s),
                milliseconds(row.all_to_all_s), f"{row.all_to_all_share:.0%}",
                NONE if row.slowdown is None else f"{row.slowdown:.2f}",
                f"{row.decode_step_s / row.decode_step_one_domain_s:.2f}",
                significant(row.output_tokens_per_s_per_chip), "yes" if row.fits else "no",
            )
            for row in answer.experts
        ],
        tuple(range(9)),
        (
            "Each chip is an attention rank; +copies of busy experts. x one domain: all-to-all "
            "time over that in a domain that holds the whole group; step x: the same of the step.",
        ),
    )  # fmt: skip


def jitter_table(answer: Scaled) -> Table:
    return Table(
        f"The largest useful collective by jitter, one user ({answer.subject.chip})",
        ("jitter", "collective of", "ceiling, chips", "fastest, chips", "ms/token", "network",
         "x the fewest chips"),
        [
            (
                short_time(row.jitter_s), str(row.group_chips),
                NONE if row.ceiling_chips is None else str(row.ceiling_chips),
                str(row.minimum_chips), milliseconds(row.minimum_tpot_s),
                f"{row.network_share:.0%}",
                significant(row.smallest_tpot_s / row.minimum_tpot_s),
            )
            for row in answer.jitter
        ],
        tuple(range(7)),
        (
            f"Jitter: {answer.asked.distribution} extra latency of each member of a collective, "
            "which waits for the slowest. An input: no public percentiles were found. Ceiling: "
            f"twice the chips save less than {GAIN_PER_DOUBLING:.0%} beyond it. Collective of: "
            "chips that meet in a layer at the ceiling (tensor x data parallel); 1: stages alone.",
        ),
    )  # fmt: skip


def evenness_table(answer: Scaled) -> Table:
    return Table(
        f"Even latency against peak bandwidth at the same point ({answer.subject.chip})",
        ("chips", "in flight", "jitter", "ms/token", "links x 2", "jitter / 2",
         "bandwidth elasticity", "jitter elasticity"),
        [
            (
                str(row.chips), f"{row.concurrency:,}", short_time(row.jitter_s),
                milliseconds(row.tpot_s), milliseconds(row.twice_bandwidth_s),
                milliseconds(row.half_jitter_s), f"{row.bandwidth_elasticity:.3f}",
                f"{row.jitter_elasticity:.3f}",
            )
            for row in answer.evenness
        ],
        tuple(range(8)),
        ("Elasticity: percent that the time falls by for one percent more bandwidth, or one "
         "percent less jitter.",),
    )  # fmt: skip


def stage_table(answer: Scaled) -> Table:
    return Table(
        f"One request over pipeline stages ({answer.subject.chip})",
        ("tensor", "stages", "chips", "ms/token", "x one stage", "first token, s",
         "GB a chip", "fits", "ms/token, all tensor"),
        [
            (
                str(row.tensor_parallel), str(row.pipeline_parallel), str(row.chips),
                milliseconds(row.tpot_s), f"{row.tpot_ratio:.3f}", significant(row.ttft_s),
                significant(row.memory_bytes_per_chip / 1e9), "yes" if row.fits else "no",
                NONE if row.tensor_tpot_s is None else milliseconds(row.tensor_tpot_s),
            )
            for row in answer.stages
        ],
        tuple(range(9)),
        ("Stages divide the memory, not the time of one request: it passes through all of them. "
         "Last column: the same chips as one tensor-parallel group.",),
    )  # fmt: skip
