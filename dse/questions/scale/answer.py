"""All of `dse scale` for one chip: the rows of every question, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dse.problem.instances import Subject, with_routing_skew
from dse.problem.loads import load_row, one_load
from dse.problem.mix import Share, alone
from dse.questions.estimate.point import assumptions
from dse.questions.scale.experts import ExpertGroup, expert_domain
from dse.questions.scale.pools import Pooled, Stages, pipeline_latency, pooled
from dse.questions.scale.sizes import (
    Ceiling,
    Point,
    Progress,
    Replicas,
    Size,
    ceiling,
    instance_sizes,
    replica_size,
    replication,
)
from dse.questions.scale.uniform import DISTRIBUTION, JITTERS_S, Evenness, JitterLimit, jitter_limit
from dse.questions.scale.uniform import evenness as evenness_of
from dse.schema.calibration import KINDS
from dse.schema.metrics import Limit

# How sentences of `assumptions` begin that concern no number here.
UNUSED = ("power is the chip's rated power",)


@dataclass(frozen=True, slots=True)
class Asked:
    """What to look at besides the subject. `requests_per_chip` is the load of the expert layer."""

    chips_up_to: int = 512
    demand: int = 512
    tpot_limit_s: float = 0.05
    ttft_limit_s: float = 2.0
    jitters_s: tuple[float, ...] = JITTERS_S
    distribution: str = DISTRIBUTION
    requests_per_chip: int = 32
    prefill: Mapping[str, Any] = field(default_factory=dict)  # degrees of a prefill worker

    @property
    def limits(self) -> tuple[Limit, ...]:
        return (
            Limit("ttft_s", "<=", self.ttft_limit_s, "ttft"),
            Limit("tpot_s", "<=", self.tpot_limit_s, "tpot"),
        )


@dataclass(frozen=True, slots=True)
class Scaled:
    """The rows for one chip. `replicas_of` is the size past which replication wins, `even_of` the
    same where experts are chosen evenly (None for a dense model, a skew that was given, or limits
    that nothing meets); `experts` is empty for a dense model."""

    subject: Subject
    asked: Asked
    sizes: list[Size]
    ceiling: Ceiling
    replicas_of: int | None
    even_of: int | None
    replicas: list[Replicas]
    experts: list[ExpertGroup]
    jitter: list[JitterLimit]
    evenness: list[Evenness]
    stages: list[Stages]
    pools: list[Pooled]

    @property
    def assumed(self) -> list[str]:
        """What the rows rest on beyond sourced figures, a sentence each."""
        points = [p for row in self.sizes for p in (row.single, row.within) if p is not None]
        widest = max(points, key=lambda p: p.tensor_parallel * p.data_parallel)
        worst = max(KINDS.index(p.kind) for p in points)
        subject = self.subject
        deployment = {
            "chip": subject.chip,
            "tensor_parallel": widest.tensor_parallel,
            "data_parallel": widest.data_parallel,
            **({} if subject.one.routing_skew is None else {"routing_skew": True}),
        }
        known = assumptions(
            subject.catalog,
            subject.model,
            deployment,
            alone(subject.workload),
            worst,
            subject.price_basis,
        )
        return [
            *(text for text in known if not text.startswith(UNUSED)),
            "jitter is an input: no public percentiles of collective times were found",
            "the backend's cap on running requests, a setting, is lifted for instances of any size",
            "one request on an instance with attention data parallelism is counted with idle ranks "
            "that take part in its steps as if busy",
        ]


def scaled(
    subject: Subject,
    asked: Asked,
    progress: Progress = lambda _: None,
    prefill: Subject | None = None,
) -> Scaled:
    """Every question for one chip; with `prefill`, also pools of their own, whose prefill workers
    that is. Raises NothingFeasible where the model fits no size."""

    def sizes_of(one: Subject) -> list[Size]:
        return instance_sizes(
            one,
            chips_up_to=asked.chips_up_to,
            tpot_limit_s=asked.tpot_limit_s,
            ttft_limit_s=asked.ttft_limit_s,
            progress=progress,
        )

    rows = sizes_of(subject)
    found, chosen = ceiling(rows), replica_size(rows, asked.demand)
    even = None
    if subject.experts and subject.one.routing_skew is None:
        even = replica_size(sizes_of(with_routing_skew(subject, 0.0)), asked.demand)
    return Scaled(
        subject=subject,
        asked=asked,
        sizes=rows,
        ceiling=found,
        replicas_of=chosen,
        even_of=even,
        replicas=replication(subject, rows, asked.demand),
        experts=expert_domain(
            subject,
            chips_up_to=asked.chips_up_to,
            requests_per_chip=asked.requests_per_chip,
        )
        if subject.experts
        else [],
        jitter=jitter_limit(
            subject,
            asked.jitters_s,
            distribution=asked.distribution,
            chips_up_to=asked.chips_up_to,
            progress=progress,
        ),
        evenness=evenness_of(
            subject,
            _compared(rows, found, subject.domain),
            asked.jitters_s,
            distribution=asked.distribution,
        ),
        stages=pipeline_latency(subject),
        pools=[]
        if prefill is None
        else pooled(prefill, subject, asked.prefill, rows, asked.limits),
    )


def _compared(rows: Sequence[Size], found: Ceiling, domain: int) -> list[Point]:
    """The points at which jitter and bandwidth are compared: one user at the ceiling and on the
    largest instance of the domain, and the full load of the ceiling's instance."""
    at = found.chips or found.minimum_chips
    inside = max((row.chips for row in rows if row.single and row.chips <= domain), default=at)
    by_size = {row.chips: row for row in rows}
    wanted = [by_size[at].single, by_size[inside].single if inside != at else None]
    wanted.append(by_size[at].within)
    return [p for p in wanted if p is not None]


def document(answers: Sequence[Scaled], lead: Sequence[str]) -> dict[str, Any]:
    """What `dse scale --json` prints: `chips` holds one entry for each chip, in order."""
    first = answers[0]
    subject, asked = first.subject, first.asked
    return {
        "model": subject.model.name,
        "workload": one_load([load_row(Share("", 1.0, subject.workload))]),
        "price_basis": subject.price_basis,
        "limits": {"tpot_s": asked.tpot_limit_s, "ttft_s": asked.ttft_limit_s},
        "chips_up_to": asked.chips_up_to,
        "demand_chips": asked.demand,
        "requests_per_chip": asked.requests_per_chip,
        "jitter_distribution": asked.distribution,
        "answer": list(lead),
        "chips": [_entry(answer) for answer in answers],
    }


def _entry(answer: Scaled) -> dict[str, Any]:
    return {
        "chip": answer.subject.chip,
        "domain": answer.subject.domain,
        "ceiling": asdict(answer.ceiling),
        "replica_chips": answer.replicas_of,
        "replica_chips_even_routing": answer.even_of,
        "sizes": [asdict(row) for row in answer.sizes],
        "replication": [asdict(row) for row in answer.replicas],
        "experts": [asdict(row) | {"slowdown": row.slowdown} for row in answer.experts],
        "jitter": [asdict(row) for row in answer.jitter],
        "evenness": [asdict(row) for row in answer.evenness],
        "pipeline": [asdict(row) for row in answer.stages],
        "pools": [asdict(row) for row in answer.pools],
        "assumed": answer.assumed,
    }
