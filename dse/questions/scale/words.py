"""The answer of `dse scale` in sentences, which the console and the page both show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.numbers import NONE, dollars, plain, share, time
from dse.questions.scale.answer import Scaled
from dse.questions.scale.experts import ExpertAnswer, expert_answer
from dse.questions.scale.sizes import GAIN_PER_DOUBLING, Point
from dse.questions.scale.uniform import Evenness

# Terms that the pages explain besides the common ones.
WORDS = {
    "instance": "one copy of the model on as many chips as it is divided over",
    "scale-up domain": "the chips that one fast fabric joins, such as a server or a rack; beyond "
    "it, traffic takes the network",
    "ceiling": "the size past which twice the chips save less than 5% of one user's time per "
    "output token, up to any larger size that was looked at",
    "replication": "more instances of the same size, each with requests of its own",
    "all-to-all": "every chip sends a part of its tokens to every other: dispatch to the experts "
    "and combine on the way back",
    "jitter": "how much longer than usual a message of one member of a collective takes; the "
    "collective waits for the slowest",
    "fixed": "launching kernels and the host's work: time that neither bandwidth nor arithmetic "
    "shortens",
    "elasticity": "percent that a time falls by for one percent of what is changed",
    "division": "how one instance is divided: tp tensor, pp pipeline, dp attention-data, ep expert "
    "parallel, +copies of experts",
}


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


def asked_words(document: Mapping[str, Any]) -> str:
    """Workload, limits and price basis of the document of `dse scale --json`."""
    load, limits = document["workload"], document["limits"]
    overlap = ""
    if "network_overlap" in load:
        overlap = f", {load['network_overlap']:.0%} of network overlapped (as given)"
    return (
        f"{load['prompt_tokens']:,} prompt and {load['output_tokens']:,} output tokens, backend "
        f"{load['backend']}{overlap}; limits: {time(limits['tpot_s'])} a token and "
        f"{time(limits['ttft_s'])} to the first one; prices: {document['price_basis']}"
    )


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
    gains = f"gains up to {chips_words(at)} in one instance"
    if sum(row.single is not None for row in answer.sizes) == 1:
        gains = f"runs on {chips_words(at)}, the only size looked at that can"
    elif found.chips == 1:
        gains = "gains nothing beyond 1 chip"
    elif found.chips is None:
        gains = f"is served fastest by {chips_words(at)}, no ceiling in sight"
    sentence = (
        f"{answer.subject.model.name} on {answer.subject.chip}: one user {gains} "
        f"({time(lowest)} per output token)"
    )
    chosen, demand = answer.replicas_of, answer.asked.demand
    by_size = {row.chips: row for row in answer.replicas}
    if chosen is None:
        return f"{sentence}; no instance keeps the limits."
    if chosen not in by_size:
        return f"{sentence}; replication wins from {chosen} chips on, more than {demand} in all."
    best, whole = by_size[chosen], by_size.get(demand)
    many = (
        f"{sentence}; past {chips_words(chosen)} replication wins: {demand} chips as "
        f"{best.replicas} x {chosen} give {plain(best.output_tokens_per_s)} output tokens/s"
    )
    if chosen == demand:
        best_size = chips_words(chosen)
        return f"{sentence}; no size gives more tokens a chip within the limits than {best_size}."
    if whole is None:
        return f"{many}{_at(best.usd_per_million_total_tokens)}."
    prices = ""
    low, high = best.usd_per_million_total_tokens, whole.usd_per_million_total_tokens
    if low is not None and high is not None:
        prices = f", at {dollars(low)} against {dollars(high)} per million tokens"
    factor = plain(best.output_tokens_per_s / whole.output_tokens_per_s)
    return f"{many}, {factor} x one instance of {demand}{prices}."


def _one_user(answer: Scaled) -> str:
    found, gain = answer.ceiling, f"{GAIN_PER_DOUBLING:.0%}"
    start = f"One user on {answer.subject.chip}:"
    if found.chips is None or found.tpot_s is None:
        runs = [row.chips for row in answer.sizes if row.single is not None]
        if len(runs) == 1:
            return f"{start} no ceiling without a second size that runs."
        return (
            f"{start} no ceiling shows in what runs and was looked at, {runs[0]} to {runs[-1]} "
            f"chips ({time(found.minimum_tpot_s)} on {found.minimum_chips})."
        )
    at = next(row.single for row in answer.sizes if row.chips == found.chips)
    interval = ""
    if at is not None:
        low, high = at.tpot_interval
        interval = f" (80% interval {time(low)} to {time(high)})"
    more = ""
    if found.chips > found.smallest_chips:
        speed = plain(found.smallest_tpot_s / found.tpot_s)
        more = f", {speed} x as fast as on {found.smallest_chips}, the fewest that hold the model"
    best = ""
    if found.minimum_chips > found.chips:
        best = f"; the lowest of all is {time(found.minimum_tpot_s)} on {found.minimum_chips}"
    return (
        f"{start} the ceiling is {chips_words(found.chips)}{interval}{more}. Past it twice the "
        f"chips save less than {gain} of the time per output token{best}."
    )


def _limits(answer: Scaled) -> list[str]:
    """Why nothing keeps the limits, or what stands in the way of one large instance."""
    asked, chosen = answer.asked, answer.replicas_of
    limits = f"{time(asked.tpot_limit_s)} a token and {time(asked.ttft_limit_s)} to the first one"
    if chosen is None:
        last = [row for row in answer.sizes if row.single][-1]
        return [
            f"No instance of {answer.subject.chip} keeps {limits}: on "
            f"{chips_words(last.chips)}, {last.within_reason}."
        ]
    sentences = []
    if not any(row.chips == asked.demand for row in answer.replicas) and chosen < asked.demand:
        sentences.append(f"One instance of {asked.demand} {_why_not(answer, asked.demand)}.")
    if answer.even_of is not None and answer.even_of != chosen:
        sentences.append(
            f"With experts chosen evenly (--routing-skew 0) replication wins past "
            f"{chips_words(answer.even_of)} of {answer.subject.chip}."
        )
    return sentences


def _why_not(answer: Scaled, chips: int) -> str:
    row = next((row for row in answer.sizes if row.chips == chips), None)
    if row is None:
        return "was not looked at"
    return f"cannot: {row.reason or row.within_reason}"


def _at(usd: float | None) -> str:
    return "" if usd is None else f" at {dollars(usd)} per million tokens"


def chips_words(count: int) -> str:
    return "1 chip" if count == 1 else f"{count} chips"


def _experts(answer: Scaled) -> list[str]:
    if not answer.experts:
        return []
    found, domain = expert_answer(answer.experts), answer.subject.domain
    load = f"at {answer.asked.requests_per_chip} requests a chip"
    if found.best is None:
        return [f"No expert group up to {answer.asked.chips_up_to} chips fits {load}."]
    best = (
        f"The expert layer works best on {chips_words(found.best.expert_parallel)} {load} "
        f"({time(found.best.decode_step_s)} a step)"
    )
    if found.across is None or found.across.slowdown is None:
        return [f"{best}; no group that was looked at and fits leaves the domain of {domain}."]
    inside = ""
    if found.inside is not None and found.inside.all_to_all_s:
        inside = (
            f" instead of {share(found.inside.all_to_all_share)} at {found.inside.expert_parallel}"
        )
    return [
        f"{best} and outgrows its domain beyond {domain}: over {found.across.expert_parallel} "
        f"chips its all-to-alls take {plain(found.across.slowdown)} x as long as in one "
        f"domain, {share(found.across.all_to_all_share)} of the step{inside}{_widest(found)}."
    ]


def _widest(found: ExpertAnswer) -> str:
    row = found.widest
    if row is None or row is found.across or row.slowdown is None:
        return ""
    return f"; over {row.expert_parallel} chips {plain(row.slowdown)} x as long"


def _jitter(answer: Scaled) -> list[str]:
    """The largest useful collective by jitter, equal ones together; what evenness is worth."""
    rows = answer.jitter
    if len(rows) < 2 or max(row.group_chips for row in rows) == 1:
        return []
    runs = [[rows[0]]]
    for row in rows[1:]:
        if row.group_chips == runs[-1][-1].group_chips:
            runs[-1].append(row)
        else:
            runs.append([row])
    parts = []
    for run in runs:
        low, high = time(run[0].jitter_s), time(run[-1].jitter_s)
        when = f"at {low}" if low == high else f"from {low} to {high}"
        parts.append(f"{chips_words(run[0].group_chips)} {when}")
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
    start = (
        f"Half the jitter against twice the link bandwidth, {load} on {chips_words(rows[0].chips)}"
    )
    more = [row for row in rows if row.half_jitter_s < row.twice_bandwidth_s]
    if not more:
        return f"{start}: bandwidth is worth more up to {time(rows[-1].jitter_s)} of jitter."
    if len(more) == len(rows):
        row = rows[0]
        return (
            f"{start}: even latency is worth more from {time(row.jitter_s)} of jitter on "
            f"({time(row.half_jitter_s)} a token against "
            f"{time(row.twice_bandwidth_s)}, of {time(row.tpot_s)})."
        )
    last = [row for row in rows if row.jitter_s < more[0].jitter_s][-1]
    return (
        f"{start}: bandwidth is worth more up to {time(last.jitter_s)} of jitter, even "
        f"latency from {time(more[0].jitter_s)} on."
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
        f"Experts over {a.expert_parallel} chips: {time(a.decode_step_s)} a step with "
        f"{share(a.all_to_all_share)} all-to-all in {_domains(a.domains)} of {first.subject.chip}, "
        f"{time(b.decode_step_s)} with {share(b.all_to_all_share)} in "
        f"{_domains(b.domains)} of {other.subject.chip}."
    ]


def _domains(count: int) -> str:
    return "one domain" if count == 1 else f"{count} domains"
