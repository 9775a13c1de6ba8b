"""One card for each chosen point: what to build, what it costs and gives, how certain it is."""

from __future__ import annotations

from dse.answer.answer import Bar, Facts
from dse.answer.labels import BOUND_NAMES, label
from dse.answer.numbers import bytes_, show, significant, time
from dse.problem.mix import held, loads_of
from dse.problem.quality import overtraining_words
from dse.problem.words import deployment_words, shape_words
from dse.questions.study.chosen import Chosen, Json, StudyFolder, beside
from dse.questions.study.figures import part_words
from dse.questions.study.words import (
    basis,
    bottleneck,
    capital,
    extreme,
    limits,
    priced_chips,
    span,
)

COSTS = tuple(f"usd_per_million_{name}_tokens" for name in ("input", "output", "total"))
ALL_IN = "usd_per_million_output_tokens_all_in"
START = "the least expected regret under the errors"
MOST_PARTS = 6  # of a decode step that stand alone
FOLDED = ("Chosen as", "Certainty", "Against the start")
KNEE = "the design where a gain in one objective starts to cost much of others"


def cards(folder: StudyFolder) -> list[Facts]:
    """The facts of each chosen point, the design to start from first."""
    return [_card(folder, chosen) for chosen in folder.chosen]


def _card(folder: StudyFolder, chosen: Chosen) -> Facts:
    rows = {
        "Chosen as": _why(folder, chosen),
        "Build": [shape_words(chosen.item)],
        "Run it on": [deployment_words(chosen.item["deployment"], held(loads_of(folder.study)))],
        "It costs": _cost(folder, chosen),
        "It gives": _gives(folder, chosen.metrics),
        "Bound by": _bound(folder, chosen),
        "Certainty": _certainty(folder, chosen),
        "Against the start": _trade(folder, chosen),
    }
    return Facts(
        _title(folder, chosen),
        [(what, " ".join(said)) for what, said in rows.items() if said],
        strong=[(label(name).text, show(name, chosen.metrics[name])) for name in folder.wanted],
        command=chosen.item["command"],
        marked=chosen is folder.start,
        on_console=False,
        bars=[*_step_bar(chosen), *_memory_bar(chosen)],
        folded=FOLDED,
    )


def _title(folder: StudyFolder, chosen: Chosen) -> str:
    """`Best: lowest predicted loss (point 5)`, `Start, knee: decision 1 (point 75)`."""
    decisions = folder.study.get("decisions")
    found = ["decision 1"] if chosen is folder.start and decisions else _extremes(folder, chosen)
    why = f": {', '.join(found)}" if found else ""
    return f"{capital(chosen.label)}{why} (point {chosen.item['point']})"


def _step_bar(chosen: Chosen) -> list[Bar]:
    """Where a decode step goes: the operators that take most of it, coloured by what bounds them,
    and the others together."""
    rows = sorted(chosen.detail["breakdown"], key=lambda row: -(row["decode_s"] or 0.0))
    total = sum(row["decode_s"] or 0.0 for row in rows)
    if not total:
        return []
    parts = [
        (
            row["operator"],
            row["decode_s"] / total,
            f"{time(row['decode_s'])} ({BOUND_NAMES[row['bound']]})",
            row["bound"],
        )
        for row in rows[:MOST_PARTS]
        if row["decode_s"]
    ]
    rest = sum(row["decode_s"] or 0.0 for row in rows[MOST_PARTS:])
    parts += [("others", rest / total, time(rest), "rest")] if rest else []
    of = chosen.detail.get("breakdown_of")
    return [Bar(f"A decode step{f' of {of}' if of else ''}: {time(total)}", parts)]


def _memory_bar(chosen: Chosen) -> list[Bar]:
    """What fills the memory of one chip."""
    rows, capacity = chosen.detail["memory"], chosen.detail["capacity_bytes"]
    used = sum(row["bytes"] for row in rows)
    parts = [
        (part_words(row["part"]), row["bytes"] / capacity, bytes_(row["bytes"]), f"part{k}")
        for k, row in enumerate(rows)
        if row["bytes"]
    ]
    return [Bar(f"Memory of a chip: {bytes_(used)} of {bytes_(capacity)}", parts)]


def _why(folder: StudyFolder, chosen: Chosen) -> list[str]:
    """What the point is the best in."""
    best = [f"{one} on the front" for one in _extremes(folder, chosen)]
    named = ((START, chosen is folder.start), (KNEE, "knee" in chosen.names))
    reasons = [*best, *(why for why, holds in named if holds)]
    return [f"{capital('; '.join(reasons))}."] if reasons else []


def _extremes(folder: StudyFolder, chosen: Chosen) -> list[str]:
    """The objectives in which no design of the front is better."""
    return [
        extreme(objective)
        for objective in folder.objectives
        if chosen.metrics[objective["metric"]] == _best(folder, objective)
    ]


def _best(folder: StudyFolder, objective: Json) -> float:
    values = [item["metrics"][objective["metric"]] for item in folder.items]
    return min(values) if objective["direction"] == "minimize" else max(values)


def _cost(folder: StudyFolder, chosen: Chosen) -> list[str]:
    metrics, d = chosen.metrics, chosen.item["deployment"]
    basis = folder.study["price"]["basis"]
    parts = [
        f"{show(name, metrics[name])} {name.removeprefix('usd_per_million_').split('_')[0]}"
        for name in COSTS
        if metrics.get(name) is not None
    ]
    if not parts:
        return [f"No price on the basis {basis}."]
    said = [f"Per million tokens ({basis}): {', '.join(parts)}."]
    if metrics.get(ALL_IN) is not None:
        said.append(f"With all cost put on the output tokens {show(ALL_IN, metrics[ALL_IN])}.")
    if parts := priced_chips(folder, d):
        each = " + ".join(f"{chips} × ${significant(rate)}" for chips, rate in parts)
        hour = significant(sum(chips * rate for chips, rate in parts))
        said.append(f"The chips: {each} = ${hour} an hour.")
    return said


def _gives(folder: StudyFolder, metrics: Json) -> list[str]:
    """Quality, latency and throughput, beside the objectives, which head the card."""
    said = []
    if metrics.get("predicted_loss") is not None:
        sentence = f"Predicted loss {show('predicted_loss', metrics['predicted_loss'])} nats"
        if (size := metrics.get("dense_equivalent_parameters")) is not None:
            amount = show("dense_equivalent_parameters", size)
            sentence += f" (dense-equivalent {amount} parameters)"
        near = beside(folder, metrics["predicted_loss"])
        law = f" by the quality law {metrics['quality_law']}" if "quality_law" in metrics else ""
        said.append(f"{sentence}{law}{f', {near} by the same law' if near else ''}.")
        if metrics.get("overtraining_ratio") is not None:
            said.append(overtraining_words(metrics))
        if added := quantisation(metrics):
            said.append(
                f"Of it {added:.3f} come from quantising the weights after training, by a law "
                "fitted on small models in whole-number formats."
            )
    return said + [
        f"{capital(label(name).text)}: {show(name, metrics[name])}."
        for name in ("ttft_s", "tpot_s", "output_tokens_per_s", "running_requests")
        if metrics.get(name) is not None and name not in folder.wanted
    ]


def quantisation(metrics: Json) -> float:
    """Nats that the deployed weight format adds to the loss of the trained model, 0 below 0.0005
    or where the law has no say."""
    added = metrics.get("quantisation_loss") or 0.0
    return added if added >= 0.0005 else 0.0


def _bound(folder: StudyFolder, chosen: Chosen) -> list[str]:
    """The bottleneck, what takes most of its phase, and the nearest limit."""
    said = [capital(bottleneck(chosen))]
    where, of = str(chosen.metrics["bottleneck"]), chosen.detail.get("breakdown_of")
    named = [phase for phase in ("prefill", "decode") if where.startswith(phase)]
    for phase in named or ("prefill", "decode"):
        key = f"{phase}_s"
        rows = sorted(chosen.detail["breakdown"], key=lambda row: -(row[key] or 0.0))
        total = sum(row[key] or 0.0 for row in rows)
        if total > 0:
            top = " and ".join(
                f"{row['operator']} {(row[key] or 0.0) / total:.0%} ({BOUND_NAMES[row['bound']]})"
                for row in rows[:2]
            )
            what = f"{'decode step' if phase == 'decode' else 'prefill of one prompt'}"
            said.append(f"Of the {what}{f' of {of}' if of else ''} ({time(total)}): {top}.")
            said += _parts(chosen, phase)
    nearest = max(limits(folder, chosen.item), key=lambda limit: limit[1], default=None)
    return [*said, *([f"Nearest limit: {nearest[0]}."] if nearest else [])]


def _parts(chosen: Chosen, phase: str) -> list[str]:
    """What each cause takes over all operators; nothing of a study that does not hold it."""
    parts: Json = chosen.detail.get("parts_s", {}).get(phase, {})
    known = sorted((item for item in parts.items() if item[1] > 0.0), key=lambda item: -item[1])
    told = ", ".join(f"{BOUND_NAMES[cause]} {time(s)}" for cause, s in known)
    return [f"All operators together, partly at one time: {told}."] if told else []


def _certainty(folder: StudyFolder, chosen: Chosen) -> list[str]:
    """Interval and provenance of each objective, then what they rest on."""
    metrics = chosen.metrics
    intervals, provenance = metrics.get("intervals", {}), metrics.get("provenance", {})
    parts = [
        f"{label(name).text} {span(name, intervals[name]) if name in intervals else 'no interval'}"
        f" ({provenance.get(name, 'kind not stated')})"
        for name in folder.wanted
    ]
    kind = metrics.get("interval_kind")
    width = f" (its width is {kind})" if kind else ""
    said = [f"80% interval{width}: {', '.join(parts)}.", *basis(chosen, provenance)]
    likely = chosen.item.get("front_probability")
    if likely is not None:
        said.append(f"With errors drawn from these, it is on the front in {likely:.0%} of draws.")
    count = len(metrics.get("assumed", ()))
    if count:
        said.append(f"{count} assumption{'s' * (count > 1)}, listed under Certainty.")
    return said


def _trade(folder: StudyFolder, chosen: Chosen) -> list[str]:
    """Objectives of a point against those of the design to start from; nothing for that itself."""
    start, parts = folder.start, []
    if start is chosen:
        return []
    for name in folder.wanted:
        here, there = chosen.metrics[name], start.metrics[name]
        if label(name).kind == "nats":
            parts.append(f"{label(name).text} {here - there:+.3f}".replace("-", "−"))
        elif there:
            parts.append(f"{label(name).text} × {significant(here / there, 2)}")
    return [f"{capital(', '.join(parts))}."] if parts else []
