"""One card for each chosen point: what to build, what it costs and gives, how certain it is."""

from __future__ import annotations

import numpy as np

from dse.answer.answer import Column, Facts, Table
from dse.answer.labels import BOUND_NAMES, label
from dse.answer.numbers import show, significant, time
from dse.problem.loads import held, loads_of
from dse.problem.quality import overtraining_words
from dse.quality.laws import DEFAULT, predicted_loss
from dse.questions.study.describe import deployment, shape
from dse.questions.study.folder import Chosen, Json, StudyFolder
from dse.questions.study.words import basis, bottleneck, capital, chip_price, extreme, limits, span

TITLES = {
    "cheapest": "Cheapest",
    "fastest": "Fastest",
    "best": "Best quality",
    "knee": "Knee: the compromise",
}
COSTS = tuple(f"usd_per_million_{name}_tokens" for name in ("input", "output", "total"))
BY_WORKLOAD = ("ttft_s", "tpot_s", *COSTS)
ALL_IN = "usd_per_million_output_tokens_all_in"


def cards(folder: StudyFolder) -> list[Facts]:
    """The facts of each chosen point, in the order cheapest, fastest, best, knee."""
    return [_card(folder, chosen) for chosen in folder.chosen]


def _card(folder: StudyFolder, chosen: Chosen) -> Facts:
    title = " · ".join(_title(folder, name) for name in chosen.names)
    why, loads = _why(folder, chosen), held(loads_of(folder.study))
    rows = [
        *([("Chosen as", (f"{why}.",))] if why else []),
        ("Build", (shape(chosen.item),)),
        ("Run it on", (deployment(chosen.item["deployment"], loads),)),
        ("It costs", cost(folder, chosen)),
        ("It gives", gives(folder, chosen.metrics)),
        ("Bound by", bound(folder, chosen)),
        ("Certainty", certainty(folder, chosen)),
        *trade(folder, chosen),
    ]
    wanted = [o["metric"] for o in folder.objectives]
    return Facts(
        f"{title} (point {chosen.item['point']})",
        [(what, " ".join(said)) for what, said in rows],
        strong=[(label(name).text, show(name, chosen.metrics.get(name))) for name in wanted],
        command=chosen.item["command"],
        marked="knee" in chosen.names,
        on_console=False,
    )


def workload_tables(folder: StudyFolder) -> list[Table]:
    """Of a mix, a table for each chosen point, with a row for each workload."""
    found = []
    for chosen in folder.chosen:
        if loads := chosen.item.get("workloads"):
            columns = (
                Column("name", "workload"),
                Column("weight", "share of requests", "share"),
                Column("chip_seconds_share", "share of the time", "share"),
                *(Column(metric, label(metric).text, metric) for metric in BY_WORKLOAD),
            )
            name = f"workloads-of-{chosen.item['point']}"
            caption = f"Each workload: {chosen.label}"
            found.append(Table(name, caption, columns, loads, on_console=False))
    return found


def cost(folder: StudyFolder, chosen: Chosen) -> tuple[str, ...]:
    metrics, d = chosen.metrics, chosen.item["deployment"]
    basis = folder.study["price"]["basis"]
    parts = [
        f"{show(name, metrics[name])} {name.removeprefix('usd_per_million_').split('_')[0]}"
        for name in COSTS
        if metrics.get(name) is not None
    ]
    sentences = []
    if parts:
        sentences.append(f"Per million tokens ({basis}): {', '.join(parts)}.")
    if metrics.get(ALL_IN) is not None:
        sentences.append(
            f"With all cost put on the output tokens: {show(ALL_IN, metrics[ALL_IN])} per million."
        )
    rate = chip_price(folder, d["chip"])
    if rate is not None:
        sentences.append(
            f"The chips: {d['chips']} × ${significant(rate)} = ${significant(d['chips'] * rate)} "
            "an hour."
        )
    return tuple(sentences) or (f"No price on the basis {basis}.",)


def gives(folder: StudyFolder, metrics: Json) -> tuple[str, ...]:
    """Quality, latency and throughput, beside the objectives, which head the card."""
    sentences = []
    if metrics.get("predicted_loss") is not None:
        sentence = f"Predicted loss {show('predicted_loss', metrics['predicted_loss'])} nats"
        equivalent = metrics.get("dense_equivalent_parameters")
        if equivalent is not None:
            amount = show("dense_equivalent_parameters", equivalent)
            sentence += f" (dense-equivalent {amount} parameters)"
        law = f" by the law {metrics['quality_law']}" if "quality_law" in metrics else ""
        sentences.append(f"{sentence}{law}.")
        if metrics.get("overtraining_ratio") is not None:
            sentences.append(overtraining_words(metrics))
        added = quantisation(metrics)
        if added:
            sentences.append(
                f"Of it {added:.3f} come from quantising the weights after training, by a law "
                "fitted on small models in whole-number formats."
            )
    objectives = [objective["metric"] for objective in folder.objectives]
    sentences += [
        f"{capital(label(name).text)}: {show(name, metrics[name])}."
        for name in ("ttft_s", "tpot_s", "output_tokens_per_s", "running_requests")
        if metrics.get(name) is not None and name not in objectives
    ]
    return tuple(sentences)


def quantisation(metrics: Json) -> float:
    """Nats that the deployed weight format adds to the loss of the trained model, 0 below 0.0005
    or where the law has no say."""
    tokens, size = metrics.get("training_tokens"), metrics.get("dense_equivalent_parameters")
    if not (tokens and size):
        return 0.0
    law = predicted_loss(np.array([size]), np.array([tokens]), metrics.get("quality_law", DEFAULT))
    added = metrics["predicted_loss"] - float(law[0])
    return added if added >= 0.0005 else 0.0


def bound(folder: StudyFolder, chosen: Chosen) -> tuple[str, ...]:
    """The bottleneck, what takes most of each phase, and the nearest limit."""
    sentences = [capital(bottleneck(chosen))]
    where, of = str(chosen.metrics["bottleneck"]), chosen.detail.get("breakdown_of")
    under = f" of {of}" if of else ""
    for phase, key, of_what in (
        ("prefill", "prefill_s", "prefill of one prompt"),
        ("decode", "decode_s", "decode step"),
    ):
        if not where.startswith(phase) and where.startswith(("prefill", "decode")):
            continue
        rows = sorted(chosen.detail["breakdown"], key=lambda row: -(row[key] or 0.0))
        total = sum(row[key] or 0.0 for row in rows)
        if total > 0:
            top = " and ".join(
                f"{row['operator']} {(row[key] or 0.0) / total:.0%} ({BOUND_NAMES[row['bound']]})"
                for row in rows[:2]
            )
            sentences.append(f"Of the {of_what}{under} ({time(total)}): {top}.")
            sentences += _parts(chosen, phase)
    nearest = max(limits(folder, chosen.item), key=lambda limit: limit[1], default=None)
    if nearest is not None:
        sentences.append(f"Nearest limit: {nearest[0]}.")
    return tuple(sentences)


def _parts(chosen: Chosen, phase: str) -> list[str]:
    """What each cause takes over all operators; nothing of a study that does not hold it."""
    parts: Json = chosen.detail.get("parts_s", {}).get(phase, {})
    known = sorted((item for item in parts.items() if item[1] > 0.0), key=lambda item: -item[1])
    told = ", ".join(f"{BOUND_NAMES[cause]} {time(s)}" for cause, s in known)
    return [f"All operators together, partly at one time: {told}."] if told else []


def certainty(folder: StudyFolder, chosen: Chosen) -> tuple[str, ...]:
    """Interval and provenance of each objective, then what they rest on."""
    metrics = chosen.metrics
    intervals, provenance = metrics.get("intervals", {}), metrics.get("provenance", {})
    parts = []
    for objective in folder.objectives:
        name = objective["metric"]
        spread = span(name, intervals[name]) if name in intervals else "no interval"
        parts.append(f"{label(name).text} {spread} ({provenance.get(name, 'kind not stated')})")
    kind = metrics.get("interval_kind")
    width = f" (its width is {kind})" if kind else ""
    sentences = [f"80% interval{width}: {', '.join(parts)}.", *basis(chosen, provenance)]
    likely = chosen.item.get("front_probability")
    if likely is not None:
        sentences.append(
            "With errors drawn from these intervals, in part alike for chips whose kernel laws "
            f"have one origin, it is on the front in {likely:.0%} of draws; in the others a near "
            "neighbour takes its place (front_probability in front.csv)."
        )
    count = len(metrics.get("assumed", ()))
    if count:
        sentences.append(f"{count} assumption{'s' * (count > 1)}, listed under Certainty.")
    return tuple(sentences)


def trade(folder: StudyFolder, chosen: Chosen) -> list[tuple[str, tuple[str, ...]]]:
    """Objectives of a point against those of the knee; nothing for the knee itself."""
    knee = next((other for other in folder.chosen if "knee" in other.names), None)
    if knee is None or knee is chosen:
        return []
    parts = []
    for objective in folder.objectives:
        name = objective["metric"]
        here, there = chosen.metrics.get(name), knee.metrics.get(name)
        if here is None or not there:
            continue
        change = (
            f"{here - there:+.3f}".replace("-", "−")
            if label(name).kind == "nats"
            else f"× {significant(here / there, 2)}"
        )
        parts.append(f"{label(name).text} {change}")
    return [("Against the knee", (capital(", ".join(parts)) + ".",))] if parts else []


def _title(folder: StudyFolder, name: str) -> str:
    if name in TITLES:
        return TITLES[name]
    extremes = {o["metric"]: extreme(o) for o in folder.objectives}
    return capital(extremes.get(name, name))


def _why(folder: StudyFolder, chosen: Chosen) -> str:
    reasons = []
    for name in chosen.names:
        if name == "knee":
            reasons.append("the design where a gain in one objective starts to cost much of others")
        kinds = {
            "cheapest": ("usd/Mtoken", "usd/h"),
            "fastest": ("s", "tokens/s"),
            "best": ("nats", "count"),
        }
        for objective in folder.objectives:
            if label(objective["metric"]).kind in kinds.get(name, ()):
                reasons.append(f"{extreme(objective)} on the front")
                break
    return capital("; ".join(reasons))
