"""The answer in sentences: what was asked and found, what bounds a point, what it rests on."""

from __future__ import annotations

from collections.abc import Iterable

from dse.answer.answer import Column, Table
from dse.answer.labels import BASES, BOUNDS, label
from dse.answer.numbers import show, significant
from dse.problem.loads import held, loads_of
from dse.problem.words import (
    DEPLOYMENT_KEY,
    DOMAIN_KEY,
    HELD_KEY,
    MIX,
    mix_words,
    short_deployment,
)
from dse.questions.study.describe import MOST_TOKENS, brief_shape, dtypes, given_name
from dse.questions.study.folder import Chosen, Json, StudyFolder
from dse.questions.study.sure import percent
from dse.questions.study.views import view_answers

CERTAINTY = ("measured", "fitted", "derived", "spec", "estimated", "claimed", "assumed")
YEAR = 365 * 24 * 3600.0


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
            found += f" Against an enumeration of the space it reaches {percent(share)} of the "
            found += "hypervolume of the true front."
    if study.get("feasible") is not None:
        found += f" {study['feasible']:,} of the evaluated designs meet every constraint."
    name = "knee" if "knee" in first.names else first.labels[0]
    if study.get("evaluator"):
        found += f" Objectives and limits were evaluated by {study['evaluator']}; everything else "
        found += "on this page is the prediction of the model."
    return [
        *view_answers(study),
        f"A compromise to start from, the {name}: {brief_shape(first.item)} on "
        f"{brief_deployment(folder, d)}: {numbers}.",
        f"Bound by {bottleneck(first)} "
        + " ".join(basis(first, [o["metric"] for o in folder.objectives])),
        *untrained(folder),
        found,
        *([" ".join(study["rack"]["sentences"])] if "rack" in study else []),
    ]


def untrained(folder: StudyFolder) -> list[str]:
    """How much of a front of searched shapes asks for more training tokens than any model had."""
    tokens = [
        item["metrics"].get("training_tokens") or 0.0
        for item in folder.items
        if not given_name(item)
    ]
    count = sum(amount > MOST_TOKENS for amount in tokens)
    if not count:
        return []
    most = f"{MOST_TOKENS / 1e12:g}T"
    return [
        f"{_percent(count / len(tokens))} of the front asks for more training tokens than any "
        f"published model had ({most}), up to {show('training_tokens', max(tokens))}. A limit "
        f"training_tokens <= {most} in the space file leaves those designs out."
    ]


def summary(folder: StudyFolder) -> Table:
    """A row for each chosen point: name, objectives, what its time rests on, shape, deployment."""
    wanted = [objective["metric"] for objective in folder.objectives]
    several = len({brief_shape(item) for item in folder.items}) > 1
    held_too = held(loads_of(folder.study))
    rows = []
    for chosen in folder.chosen:
        kinds = [kind for kind, share in efficiency_shares(chosen) if share >= 0.5]
        rows.append(
            {
                "point": f"{chosen.label} ({chosen.item['point']})",
                **{metric: chosen.metrics.get(metric) for metric in wanted},
                "efficiencies": ", ".join(kinds) or None,
                "shape": brief_shape(chosen.item),
                "deployment": short_deployment(chosen.item["deployment"], held_too),
            }
        )
    columns = (
        Column("point", "point"),
        *(Column(m, label(m).short, m, explain=label(m).text) for m in wanted),
        Column("efficiencies", "efficiencies"),
        *([Column("shape", "shape")] if several else []),
        Column("deployment", "deployment"),
    )
    domain = DOMAIN_KEY if "rack" in folder.study else ""
    key = f"{DEPLOYMENT_KEY}{domain}{HELD_KEY if held_too else ''}"
    note = f"Deployment: {key}; degrees of 1 are left out. front.csv has every design of the front."
    return Table("summary", "", columns, rows, notes=[note])


def asked(folder: StudyFolder) -> str:
    """The price basis first, then the workload and the limits, on one line."""
    many = "Workloads" if folder.study["workload"] is None else "Workload"
    limited = ", ".join(constraint["text"] for constraint in folder.study["constraints"])
    return (
        f"Prices: {price_basis(folder)}. {many}: {workload(folder).removesuffix('.')}. "
        f"Limits: {limited or 'none'}."
    )


def price_basis(folder: StudyFolder) -> str:
    """`Prices: rental_3yr (chips rented on a three-year contract), newest 2026-10-15.`"""
    price = folder.study["price"]
    basis = price["basis"]
    meaning = f" ({BASES[basis]})" if basis in BASES else ""
    dates = [row["date"] for row in price["rows"] if row.get("date")]
    newest = f"; newest price of {max(dates)}" if dates else ""
    return f"{basis}{meaning}{_terms(folder)}, US dollars{newest}"


def _terms(folder: StudyFolder) -> str:
    """`, over 4 years of which they serve 60%, at $0.12 per kWh`; empty where chips are rented."""
    costs = folder.study.get("costs")
    if not costs:
        return ""
    life, busy, usd = (
        costs["inputs"][name]["value"] for name in ("life", "utilisation", "electricity")
    )
    return f", over {life / YEAR:.3g} years of which they serve {busy:.0%}, at ${usd:.3g} per kWh"


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


def brief_deployment(folder: StudyFolder, d: Json) -> str:
    rate = chip_price(folder, d["chip"])
    price = f", ${significant(d['chips'] * rate)} an hour" if rate is not None else ""
    return f"{d['chips']} × {d['chip']} ({dtypes(d['weight_dtype'])} weights{price})"


def chip_price(folder: StudyFolder, chip: str) -> float | None:
    """USD per chip-hour, where the study states exactly one."""
    rates = {
        row["usd_per_chip_hour"] for row in folder.study["price"]["rows"] if row["chip"] == chip
    }
    return rates.pop() if len(rates) == 1 else None


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


def extreme(objective: Json) -> str:
    """`lowest time per output token`."""
    side = "lowest" if objective["direction"] == "minimize" else "highest"
    return f"{side} {label(objective['metric']).text}"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _percent(share: float) -> str:
    return f"{significant(100 * share, 2)}%" if share < 0.995 else "100%"


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
