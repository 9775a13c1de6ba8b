"""The answer in sentences: shape, deployment, price, what bounds it, how certain it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dse.report.describe import brief_shape, deployment, dtypes, shape
from dse.report.folder import Chosen, Json, StudyFolder
from dse.report.labels import (
    BASES,
    BOUND_NAMES,
    BOUNDS,
    label,
    seconds,
    show,
    significant,
)
from dse.study.words import MIX, mix_words

TITLES = {
    "cheapest": "Cheapest",
    "fastest": "Fastest",
    "best": "Best quality",
    "knee": "Knee: the compromise",
}
CERTAINTY = ("measured", "fitted", "derived", "spec", "estimated", "claimed", "assumed")
COSTS = ("usd_per_million_input_tokens", "usd_per_million_output_tokens",
         "usd_per_million_total_tokens")  # fmt: skip
BY_WORKLOAD = ("ttft_s", "tpot_s", *COSTS)
ALL_IN = "usd_per_million_output_tokens_all_in"


@dataclass(frozen=True, slots=True)
class Card:
    """One chosen point: `stats` are (objective, value), `rows` are (heading, sentences),
    `workloads` the table of a mix, its head first."""

    title: str
    names: tuple[str, ...]
    why: str
    point: int
    stats: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    workloads: list[tuple[str, ...]]
    command: str


def cards(folder: StudyFolder) -> list[Card]:
    """A card for each chosen point, in the order cheapest, fastest, best, knee."""
    return [
        Card(
            " · ".join(_title(folder, name) for name in chosen.names),
            chosen.names,
            _why(folder, chosen),
            chosen.item["point"],
            tuple(
                (label(o["metric"]).text, show(o["metric"], chosen.metrics.get(o["metric"])))
                for o in folder.objectives
            ),
            (
                ("Build", (shape(chosen.item),)),
                ("Run it on", (deployment(chosen.item["deployment"]),)),
                ("It costs", cost(folder, chosen)),
                ("It gives", gives(folder, chosen.metrics)),
                ("Bound by", bound(folder, chosen)),
                ("Certainty", certainty(folder, chosen)),
                *trade(folder, chosen),
            ),
            workload_table(chosen.item),
            chosen.item["command"],
        )
        for chosen in folder.chosen
    ]


def lead(folder: StudyFolder) -> list[str]:
    """What was searched, what was found, in a few sentences."""
    study = folder.study
    evaluations, size = study["evaluations"], study["size"]
    if not folder.items:
        return [
            f"Nothing feasible was found among {evaluations:,} designs evaluated "
            f"(of {size:,} in the space). The constraints below say why."
        ]
    first = next((c for c in folder.chosen if "knee" in c.names), folder.chosen[0])
    numbers = ", ".join(
        f"{label(o['metric']).text} {show(o['metric'], first.metrics[o['metric']])}"
        for o in folder.objectives
    )
    d = first.item["deployment"]
    count = len(folder.items)
    found = f"{count:,} {'designs make' if count > 1 else 'design makes'} the front"
    share = study.get("true_hypervolume_share")
    if evaluations >= size:
        found += f". All {size:,} of the space were evaluated: it is the true front."
    else:
        found += f", out of {evaluations:,} evaluated ({_percent(evaluations / size)} of the "
        found += f"space's {size:,})."
        if share is not None:
            found += f" Against an enumeration of the space it reaches {share:.2%} of the "
            found += "hypervolume of the true front."
    if study.get("feasible") is not None:
        found += f" {study['feasible']:,} of the evaluated designs meet every constraint."
    name = "knee" if "knee" in first.names else first.labels[0]
    return [
        f"If only one can be chosen, start from the {name}: {brief_shape(first.item)} on "
        f"{brief_deployment(folder, d)}: {numbers}.",
        f"Bound by {bottleneck(first)} "
        + " ".join(basis(first, [o["metric"] for o in folder.objectives])),
        found,
    ]


def price_basis(folder: StudyFolder) -> str:
    """`Prices: rental_3yr (chips rented on a three-year contract), newest 2026-10-15.`"""
    price = folder.study["price"]
    basis = price["basis"]
    meaning = f" ({BASES[basis]})" if basis in BASES else ""
    dates = [row["date"] for row in price["rows"] if row.get("date")]
    newest = f"; newest price of {max(dates)}" if dates else ""
    return f"{basis}{meaning}, US dollars{newest}"


def training(folder: StudyFolder) -> str:
    """What every shape is trained with; empty where the study does not say."""
    compute, tokens = (folder.study.get(key) for key in ("training_compute", "training_tokens"))
    if compute:
        return f"{compute:.3g} FLOP for every shape: tokens = FLOP / (6 × active parameters)"
    return f"{show('training_tokens', tokens)} tokens for every shape" if tokens else ""


def workload(folder: StudyFolder) -> str:
    """The workload on one line, tokens first; of several, what is meant by their mix."""
    if folder.study["workload"] is None:
        loads = folder.study["workloads"]
        return f"{mix_words(loads)}; backend {loads[0]['backend']}. {MIX}"
    rest = dict(folder.study["workload"])
    parts = [
        f"{rest.pop(key):,} {name} tokens"
        for key, name in (("prompt_tokens", "prompt"), ("output_tokens", "output"))
        if isinstance(rest.get(key), int | float)
    ]
    parts += [f"{key.replace('_', ' ')} {value}" for key, value in rest.items() if _plain(value)]
    return ", ".join(parts)


def workload_table(item: Json) -> list[tuple[str, ...]]:
    """A head and a row for each figure, a column for each workload of a mix; empty for one."""
    loads = item.get("workloads")
    if not loads:
        return []
    shares = (("share of requests", "weight"), ("share of the time", "chip_seconds_share"))
    return [
        ("", *(load["name"] for load in loads)),
        *((text, *(f"{load[key] * 100:.3g}%" for load in loads)) for text, key in shares),
        *((label(m).text, *(show(m, load[m]) for load in loads)) for m in BY_WORKLOAD),
    ]


def brief_deployment(folder: StudyFolder, d: Json) -> str:
    rate = chip_price(folder, d["chip"])
    price = f", ${significant(d['chips'] * rate)} an hour" if rate is not None else ""
    return f"{d['chips']} × {d['chip']} ({dtypes(d['weight_dtype'])} weights{price})"


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


def chip_price(folder: StudyFolder, chip: str) -> float | None:
    """USD per chip-hour, where the study states exactly one."""
    rates = {
        row["usd_per_chip_hour"] for row in folder.study["price"]["rows"] if row["chip"] == chip
    }
    return rates.pop() if len(rates) == 1 else None


def gives(folder: StudyFolder, metrics: Json) -> tuple[str, ...]:
    """Quality, latency and throughput, beside the objectives, which head the card."""
    sentences = []
    if metrics.get("predicted_loss") is not None:
        sentence = f"Predicted loss {show('predicted_loss', metrics['predicted_loss'])} nats"
        equivalent = metrics.get("dense_equivalent_parameters")
        if equivalent is not None:
            amount = show("dense_equivalent_parameters", equivalent)
            sentence += f" (dense-equivalent {amount} parameters)"
        sentences.append(f"{sentence}.")
    objectives = [objective["metric"] for objective in folder.objectives]
    sentences += [
        f"{_capital(label(name).text)}: {show(name, metrics[name])}."
        for name in ("ttft_s", "tpot_s", "output_tokens_per_s", "running_requests")
        if metrics.get(name) is not None and name not in objectives
    ]
    return tuple(sentences)


def bound(folder: StudyFolder, chosen: Chosen) -> tuple[str, ...]:
    """The bottleneck, what takes most of each phase, and the nearest limit."""
    sentences = [_capital(bottleneck(chosen))]
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
            sentences.append(f"Of the {of_what}{under} ({seconds(total)}): {top}.")
    nearest = max(limits(folder, chosen.item), key=lambda limit: limit[1], default=None)
    if nearest is not None:
        sentences.append(f"Nearest limit: {nearest[0]}.")
    return tuple(sentences)


def bottleneck(chosen: Chosen) -> str:
    """`memory bandwidth in decode: chips wait for ...`"""
    phase, _, cause = str(chosen.metrics["bottleneck"]).rpartition(": ")
    where = f" in {phase}" if phase else ""
    return f"{cause}{where}{f': {BOUNDS[cause]}' if cause in BOUNDS else ''}."


def limits(folder: StudyFolder, item: Json) -> list[tuple[str, float]]:
    """(sentence, share of the limit used) for every constraint that has a number."""
    metrics, found = item["metrics"], []
    by_name = {load["name"]: load for load in item.get("workloads", ())}
    for constraint in folder.study["constraints"]:
        metric, limit = constraint["metric"], constraint["limit"]
        of = constraint.get("workload", "")
        value = by_name.get(of, metrics).get(metric)
        if value is None or not limit:
            continue
        least = constraint.get("sign", 1.0) < 0
        share = limit / value if least and value else value / limit
        allowed = (
            f"where at least {show(metric, limit)} is asked"
            if least
            else f"{share:.0%} of the {show(metric, limit)} allowed"
        )
        name = f"{label(metric).text} of {of}" if of in by_name else label(metric).text
        found.append((f"{name} {show(metric, value)}, {allowed}", share))
    capacity = metrics.get("memory_capacity_bytes_per_chip")
    used = metrics.get("memory_bytes_per_chip")
    if capacity and used is not None:
        share = used / capacity
        amount = show("memory_bytes_per_chip", used)
        total = show("memory_capacity_bytes_per_chip", capacity)
        found.append((f"memory {amount}, {share:.0%} of the chip's {total}", share))
    return found


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
    count = len(metrics.get("assumed", ()))
    if count:
        sentences.append(f"{count} assumption{'s' * (count > 1)}, listed under Certainty.")
    return tuple(sentences)


def basis(chosen: Chosen, metrics: Iterable[str]) -> list[str]:
    """What the predicted time rests on, and which of `metrics` are extrapolated."""
    sentences = []
    shares = sorted(efficiency_shares(chosen), key=lambda pair: -pair[1])
    if shares:
        first, *rest = [f"{share:.0%} on {kind}" for kind, share in shares]
        more = f" ({', '.join(rest)})" if rest else ""
        sentences.append(f"Time of the decode step rests {first} efficiencies{more}.")
    provenance = chosen.metrics.get("provenance", {})
    extrapolated = [
        label(name).text
        for name in metrics
        if provenance.get(name) == "extrapolated" and chosen.metrics.get(name) is not None
    ]
    if extrapolated:
        sentences.append(f"Extrapolated: {', '.join(extrapolated)}.")
    elif provenance:
        sentences.append("Nothing is extrapolated.")
    return sentences


def efficiency_shares(chosen: Chosen) -> list[tuple[str, float]]:
    """(kind, share of the decode step's seconds), best known first."""
    seconds_of: dict[str, float] = {}
    for row in chosen.detail["breakdown"]:
        kind = row["efficiency"]
        seconds_of[kind] = seconds_of.get(kind, 0.0) + (row["decode_s"] or 0.0)
    total = sum(seconds_of.values())
    if total == 0:
        return []
    rank = {kind: i for i, kind in enumerate(CERTAINTY)}
    ordered = sorted(seconds_of, key=lambda kind: rank.get(kind, len(rank)))
    return [(kind, seconds_of[kind] / total) for kind in ordered]


def span(metric: str, interval: Iterable[float]) -> str:
    low, high = interval
    return f"{show(metric, low)} to {show(metric, high)}"


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
    return [("Against the knee", (_capital(", ".join(parts)) + ".",))] if parts else []


def _title(folder: StudyFolder, name: str) -> str:
    if name in TITLES:
        return TITLES[name]
    extremes = {o["metric"]: _extreme(o) for o in folder.objectives}
    return _capital(extremes.get(name, name))


def _why(folder: StudyFolder, chosen: Chosen) -> str:
    reasons = []
    for name in chosen.names:
        if name == "knee":
            reasons.append("the design where a gain in one objective starts to cost much of others")
        kinds = {"cheapest": ("usd",), "fastest": ("s", "rate"), "best": ("nats", "parameters")}
        for objective in folder.objectives:
            if label(objective["metric"]).kind in kinds.get(name, ()):
                reasons.append(f"{_extreme(objective)} on the front")
                break
    return _capital("; ".join(reasons))


def _extreme(objective: Json) -> str:
    """`lowest time per output token`."""
    side = "lowest" if objective["direction"] == "minimize" else "highest"
    return f"{side} {label(objective['metric']).text}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _percent(share: float) -> str:
    return f"{significant(100 * share, 2)}%" if share < 0.995 else "100%"


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
