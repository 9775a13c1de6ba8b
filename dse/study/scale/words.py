"""The answer of `dse scale` in sentences, and its tables as text: what the console and the page
both show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from dse.study.scale.answer import Scaled
from dse.study.scale.experts import ExpertAnswer, expert_answer
from dse.study.scale.sizes import GAIN_PER_DOUBLING, Point, Size
from dse.study.scale.uniform import Evenness

NONE = "–"
DENSE_KEY = "tp, pp: tensor and pipeline parallel"
SPARSE_KEY = (
    "tp, pp, dp, ep: tensor, pipeline, attention-data and expert parallel, +copies of experts"
)


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` of text under `titles`; the columns in `right` are numbers. `notes` explain it."""

    name: str
    caption: str
    titles: tuple[str, ...]
    rows: list[tuple[str, ...]]
    right: tuple[int, ...]
    notes: tuple[str, ...] = ()


def milliseconds(seconds: float) -> str:
    return significant(1e3 * seconds)


def significant(value: float, digits: int = 3) -> str:
    """Plain notation: 0.0812, 12.0, 1,230."""
    return f"{Decimal(f'{value:.{digits - 1}e}'):,f}"


def dollars(value: float | None) -> str:
    return NONE if value is None else f"${significant(value)}"


def short_time(seconds: float) -> str:
    """0, 10 us, 2 ms, 1.5 s."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return "0"


def division(p: Point | None) -> str:
    """tp 8 pp 2; degrees of 1 are left out."""
    if p is None:
        return NONE
    degrees = (
        ("tp", p.tensor_parallel), ("pp", p.pipeline_parallel), ("dp", p.data_parallel),
        ("ep", p.expert_parallel),
    )  # fmt: skip
    parts = [f"{name}{degree}" for name, degree in degrees if degree > 1]
    copies = f"+{p.redundant_experts}" if p.redundant_experts else ""
    return " ".join(parts) + copies if parts else "one chip"


def lead(answers: Sequence[Scaled]) -> list[str]:
    """The answer first: one sentence for each chip, then what is behind it."""
    first, *others = answers
    sentences = [_summary(answer) for answer in answers]
    for other in others:
        sentences += _against(first, other)
    for answer in answers:
        sentences += [_one_user(answer), *_limits(answer), *_experts(answer), *_jitter(answer)]
    return sentences


def _summary(answer: Scaled) -> str:
    """How far to scale up, and what replicas then give."""
    found = answer.ceiling
    at, lowest = found.chips or found.minimum_chips, found.tpot_s or found.minimum_tpot_s
    up_to = f"up to {_chips(at)}" if at > 1 else "from one chip alone"
    sentence = (
        f"{answer.subject.model.name} on {answer.subject.chip}: one user gains {up_to} in one "
        f"instance ({milliseconds(lowest)} ms per output token)"
    )
    chosen, demand = answer.replicas_of, answer.asked.demand
    by_size = {row.chips: row for row in answer.replicas}
    if chosen is None:
        return f"{sentence}; no instance keeps the limits."
    if chosen not in by_size:
        return f"{sentence}; replication wins from {chosen} chips on, more than {demand} in all."
    best, whole = by_size[chosen], by_size.get(demand)
    many = (
        f"{sentence}; past {_chips(chosen)} replication wins: {demand} chips as {best.replicas} x "
        f"{chosen} give {significant(best.output_tokens_per_s)} output tokens/s"
    )
    if chosen == demand:
        return f"{sentence}; many users are served best by the largest instance, {chosen} chips."
    if whole is None:
        return f"{many}{_at(best.usd_per_million_total_tokens)}."
    prices = ""
    if best.usd_per_million_total_tokens is not None:
        prices = (
            f", at {dollars(best.usd_per_million_total_tokens)} against "
            f"{dollars(whole.usd_per_million_total_tokens)} per million tokens"
        )
    factor = significant(best.output_tokens_per_s / whole.output_tokens_per_s)
    return f"{many}, {factor} x one instance of {demand}{prices}."


def _one_user(answer: Scaled) -> str:
    found, gain = answer.ceiling, f"{GAIN_PER_DOUBLING:.0%}"
    start = f"One user on {answer.subject.chip}:"
    if found.chips is None or found.tpot_s is None:
        return (
            f"{start} no ceiling shows up to {answer.asked.chips_up_to} chips; twice the chips "
            f"still save {gain} of the time per output token or more "
            f"({milliseconds(found.minimum_tpot_s)} ms on {found.minimum_chips})."
        )
    at = next(row.single for row in answer.sizes if row.chips == found.chips)
    interval = ""
    if at is not None:
        low, high = at.tpot_interval
        interval = f" (80% interval {milliseconds(low)} to {milliseconds(high)} ms)"
    more = ""
    if found.chips > found.smallest_chips:
        speed = significant(found.smallest_tpot_s / found.tpot_s)
        more = f", {speed} x as fast as on {found.smallest_chips}, the fewest that hold the model"
    best = ""
    if found.minimum_chips > found.chips:
        best = (
            f"; the lowest of all is {milliseconds(found.minimum_tpot_s)} ms on "
            f"{found.minimum_chips}"
        )
    return (
        f"{start} the ceiling is {_chips(found.chips)}{interval}{more}. Past it twice the chips "
        f"save less than {gain} of the time per output token{best}."
    )


def _limits(answer: Scaled) -> list[str]:
    """Why nothing keeps the limits, or what stands in the way of one large instance."""
    asked, chosen = answer.asked, answer.replicas_of
    limits = (
        f"{short_time(asked.tpot_limit_s)} a token and {short_time(asked.ttft_limit_s)} to the "
        "first one"
    )
    if chosen is None:
        reasons = [row.within_reason for row in answer.sizes if row.single]
        return [f"No instance of {answer.subject.chip} keeps {limits}: {reasons[-1]}."]
    sentences = []
    if not any(row.chips == asked.demand for row in answer.replicas) and chosen < asked.demand:
        sentences.append(f"One instance of {asked.demand} {_why_not(answer, asked.demand)}.")
    if answer.even_of is not None and answer.even_of != chosen:
        sentences.append(
            f"With experts chosen evenly (--routing-skew 0) replication wins past "
            f"{_chips(answer.even_of)} of {answer.subject.chip}."
        )
    return sentences


def _why_not(answer: Scaled, chips: int) -> str:
    row = next((row for row in answer.sizes if row.chips == chips), None)
    if row is None:
        return "was not looked at"
    return f"cannot: {row.reason or row.within_reason}"


def _at(usd: float | None) -> str:
    return "" if usd is None else f" at {dollars(usd)} per million tokens"


def _chips(count: int) -> str:
    return "1 chip" if count == 1 else f"{count} chips"


def _experts(answer: Scaled) -> list[str]:
    if not answer.experts:
        return []
    found, domain = expert_answer(answer.experts), answer.subject.domain
    load = f"at {answer.asked.requests_per_chip} requests a chip"
    if found.best is None:
        return [f"No expert group up to {answer.asked.chips_up_to} chips fits {load}."]
    best = (
        f"The expert layer works best on {_chips(found.best.expert_parallel)} {load} "
        f"({milliseconds(found.best.decode_step_s)} ms a step)"
    )
    if found.across is None or found.across.slowdown is None:
        return [f"{best}; no group that was looked at and fits leaves the domain of {domain}."]
    inside = ""
    if found.inside is not None and found.inside.all_to_all_s:
        inside = (
            f" instead of {found.inside.all_to_all_share:.0%} at {found.inside.expert_parallel}"
        )
    return [
        f"{best} and outgrows its domain beyond {domain}: over {found.across.expert_parallel} "
        f"chips its all-to-alls take {significant(found.across.slowdown)} x as long as in one "
        f"domain, {found.across.all_to_all_share:.0%} of the step{inside}{_widest(found)}."
    ]


def _widest(found: ExpertAnswer) -> str:
    row = found.widest
    if row is None or row is found.across or row.slowdown is None:
        return ""
    return f"; over {row.expert_parallel} chips {significant(row.slowdown)} x as long"


def _jitter(answer: Scaled) -> list[str]:
    """The largest useful collective by jitter, equal ones together; what evenness is worth."""
    rows = answer.jitter
    if len(rows) < 2:
        return []
    runs = [[rows[0]]]
    for row in rows[1:]:
        if row.group_chips == runs[-1][-1].group_chips:
            runs[-1].append(row)
        else:
            runs.append([row])
    parts = []
    for run in runs:
        low, high = short_time(run[0].jitter_s), short_time(run[-1].jitter_s)
        when = f"at {low}" if low == high else f"from {low} to {high}"
        parts.append(f"{_chips(run[0].group_chips)} {when}")
    sentences = [
        f"Jitter: the largest collective that helps one user on {answer.subject.chip} joins "
        f"{', '.join(parts)} of jitter of each member."
    ]
    ceiling_rows = [row for row in answer.evenness if row.chips == answer.evenness[0].chips]
    for load, rows_of in (
        ("one user", [row for row in ceiling_rows if row.concurrency == 1]),
        ("full load", [row for row in ceiling_rows if row.concurrency > 1]),
    ):
        if rows_of:
            sentences.append(_worth(load, rows_of))
    return sentences


def _worth(load: str, rows: Sequence[Evenness]) -> str:
    """From which jitter on half of it is worth more than links of twice the bandwidth."""
    start = f"Half the jitter against twice the link bandwidth, {load} on {_chips(rows[0].chips)}"
    more = [row for row in rows if row.half_jitter_s < row.twice_bandwidth_s]
    if not more:
        return f"{start}: bandwidth is worth more up to {short_time(rows[-1].jitter_s)} of jitter."
    if len(more) == len(rows):
        row = rows[0]
        return (
            f"{start}: even latency is worth more from {short_time(row.jitter_s)} of jitter on "
            f"({milliseconds(row.half_jitter_s)} ms a token against "
            f"{milliseconds(row.twice_bandwidth_s)}, of {milliseconds(row.tpot_s)})."
        )
    last = [row for row in rows if row.jitter_s < more[0].jitter_s][-1]
    return (
        f"{start}: bandwidth is worth more up to {short_time(last.jitter_s)} of jitter, even "
        f"latency from {short_time(more[0].jitter_s)} on."
    )


def _against(first: Scaled, other: Scaled) -> list[str]:
    """Expert groups of equal size on two chips, at the widest that fits both."""
    mine = {row.expert_parallel: row for row in first.experts if row.fits}
    both = [(mine[r.expert_parallel], r) for r in other.experts if r.fits
            and r.expert_parallel in mine]  # fmt: skip
    apart = [pair for pair in both if (pair[0].domains == 1) != (pair[1].domains == 1)]
    if not apart:
        return []
    a, b = apart[-1]
    return [
        f"Experts over {a.expert_parallel} chips: {milliseconds(a.decode_step_s)} ms a step with "
        f"{a.all_to_all_share:.0%} all-to-all in {_domains(a.domains)} of {first.subject.chip}, "
        f"{milliseconds(b.decode_step_s)} ms with {b.all_to_all_share:.0%} in "
        f"{_domains(b.domains)} of {other.subject.chip}."
    ]


def _domains(count: int) -> str:
    return "one domain" if count == 1 else f"{count} domains"


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
        "sizes",
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
        "replication",
        f"{_chips(answer.asked.demand)} in all, within the limits ({answer.subject.chip})",
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
        "experts",
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
        "jitter",
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
        "evenness",
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
        "pipeline",
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
