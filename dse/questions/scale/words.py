"""The answer of `dse scale` in sentences, which the console and the page both show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from dse.answer.numbers import dollars, plain, share, time
from dse.questions.scale.answer import Scaled
from dse.questions.scale.experts import expert_answer
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
        sentences += [_one_user(answer), *_limits(answer), *_pools(answer), *_experts(answer)]
        sentences += _jitter(answer)
    return sentences


def _pools(answer: Scaled) -> list[str]:
    """What pools of their own give, and from how many chips on they are better."""
    if not answer.pools:
        return []
    best = max(answer.pools, key=lambda row: row.output_tokens_per_s_per_chip)
    better = [row.chips for row in answer.pools if (row.of_best or 2.0) > 1.0]
    from_on = f"better than one pool from {min(better)} chips on" if better else "never better here"
    return [
        f"Prefill and decode on pools of their own ({answer.subject.chip}): {from_on}; at best "
        f"{best.prefill_workers} x ({best.prefill_division}) before {best.decode_workers} x "
        f"({best.decode_division}) give {plain(best.output_tokens_per_s_per_chip)} output tokens/s "
        f"a chip on {best.used} chips."
    ]


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
    if chosen == demand:
        best = chips_words(chosen)
        return f"{sentence}; no size gives more tokens a chip within the limits than {best}."
    best, whole = by_size[chosen], by_size.get(demand)
    sentence += (
        f"; past {chips_words(chosen)} replication wins: {demand} chips as "
        f"{best.replicas} x {chosen} give {plain(best.output_tokens_per_s)} output tokens/s"
    )
    usd = best.usd_per_million_total_tokens
    if whole is None:
        return f"{sentence}{'' if usd is None else f' at {dollars(usd)} per million tokens'}."
    factor = plain(best.output_tokens_per_s / whole.output_tokens_per_s)
    sentence += f", {factor} x one instance of {demand}"
    other = whole.usd_per_million_total_tokens
    if usd is None or other is None:
        return f"{sentence}."
    return f"{sentence}, at {dollars(usd)} against {dollars(other)} per million tokens."


def how_sure(answers: Sequence[Scaled]) -> str:
    """The interval of one user's time on each chip, at the ceiling."""
    said = []
    for one in answers:
        at = one.ceiling.chips or one.ceiling.minimum_chips
        single = next((row.single for row in one.sizes if row.chips == at), None)
        said += [f"a token on {one.subject.chip} {_interval(single)}"] if single else []
    return f"How sure: {', '.join(said)}." if said else ""


def _interval(single: Point | None) -> str:
    ends = single and map(time, single.tpot_interval)
    return "80% interval {} to {}".format(*ends) if ends else ""


def _one_user(answer: Scaled) -> str:
    found, start = answer.ceiling, f"One user on {answer.subject.chip}:"
    runs = {row.chips: row.single for row in answer.sizes if row.single is not None}
    if found.chips is None or found.tpot_s is None:
        if len(runs) == 1:
            return f"{start} no ceiling without a second size that runs."
        return (
            f"{start} no ceiling shows in what runs and was looked at, {min(runs)} to {max(runs)} "
            f"chips ({time(found.minimum_tpot_s)} on {found.minimum_chips})."
        )
    more, best, said = "", "", _interval(runs.get(found.chips))
    interval = said and f" ({said})"
    if found.chips > found.smallest_chips:
        speed = plain(found.smallest_tpot_s / found.tpot_s)
        more = f", {speed} x as fast as on {found.smallest_chips}, the fewest that hold the model"
    if found.minimum_chips > found.chips:
        best = f"; the lowest of all is {time(found.minimum_tpot_s)} on {found.minimum_chips}"
    return (
        f"{start} the ceiling is {chips_words(found.chips)}{interval}{more}. Past it twice the "
        f"chips save less than {GAIN_PER_DOUBLING:.0%} of the time per output token{best}."
    )


def _limits(answer: Scaled) -> list[str]:
    """Why nothing keeps the limits, or what stands in the way of one large instance."""
    asked, chosen, demand = answer.asked, answer.replicas_of, answer.asked.demand
    if chosen is None:
        last = [row for row in answer.sizes if row.single][-1]
        return [
            f"No instance of {answer.subject.chip} keeps {time(asked.tpot_limit_s)} a token and "
            f"{time(asked.ttft_limit_s)} to the first one: on {chips_words(last.chips)}, "
            f"{last.within_reason}."
        ]
    sentences = []
    if chosen < demand and all(row.chips != demand for row in answer.replicas):
        row = next((row for row in answer.sizes if row.chips == demand), None)
        why = f"cannot: {row.reason or row.within_reason}" if row else "was not looked at"
        sentences.append(f"One instance of {demand} {why}.")
    if answer.even_of is not None and answer.even_of != chosen:
        sentences.append(
            f"With experts chosen evenly (--routing-skew 0) replication wins past "
            f"{chips_words(answer.even_of)} of {answer.subject.chip}."
        )
    return sentences


def chips_words(count: int) -> str:
    return "1 chip" if count == 1 else f"{count} chips"


def domains_words(count: int) -> str:
    return f"{count} domain{'s' * (count > 1)}"


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
    inside, widest, row = "", "", found.widest
    if found.inside is not None and found.inside.all_to_all_s:
        inside = (
            f" instead of {share(found.inside.all_to_all_share)} at {found.inside.expert_parallel}"
        )
    if row is not None and row is not found.across and row.slowdown is not None:
        widest = f"; over {row.expert_parallel} chips {plain(row.slowdown)} x as long"
    return [
        f"{best} and outgrows its domain beyond {domain}: over {found.across.expert_parallel} "
        f"chips its all-to-alls take {plain(found.across.slowdown)} x as long as in one "
        f"domain, {share(found.across.all_to_all_share)} of the step{inside}{widest}."
    ]


def _jitter(answer: Scaled) -> list[str]:
    """The largest useful collective by jitter, equal ones together; what evenness is worth."""
    rows = answer.jitter
    if len(rows) < 2 or max(row.group_chips for row in rows) == 1:
        return []
    parts = []
    for chips, run in groupby(rows, key=lambda row: row.group_chips):
        low, *_, high = [time(row.jitter_s) for row in run] * 2
        parts.append(
            f"{chips_words(chips)} {f'at {low}' if low == high else f'from {low} to {high}'}"
        )
    sentences = [
        f"Jitter: the largest collective that helps one user on {answer.subject.chip} joins "
        f"{', '.join(parts)} of jitter of each member."
    ]
    at_ceiling = [row for row in answer.evenness if row.chips == answer.evenness[0].chips]
    for load, many in (("one user", False), ("full load", True)):
        if of := [row for row in at_ceiling if (row.concurrency > 1) is many]:
            sentences.append(_worth(load, of))
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
    both = [(mine.get(row.expert_parallel), row) for row in other.experts if row.fits]
    apart = [(a, b) for a, b in both if a is not None and (a.domains == 1) != (b.domains == 1)]
    if not apart:
        return []
    said = [
        f"{time(row.decode_step_s)}{step} with {share(row.all_to_all_share)}{what} in "
        f"{'one domain' if row.domains == 1 else domains_words(row.domains)} of {on.subject.chip}"
        for row, on, step, what in zip(
            apart[-1], (first, other), (" a step", ""), (" all-to-all", ""), strict=True
        )
    ]
    return [f"Experts over {apart[-1][0].expert_parallel} chips: {', '.join(said)}."]
