"""The answer in sentences: what was asked and found, what bounds a point, what it rests on and
how sure it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.answer.answer import Column, Figure, Table
from dse.answer.labels import BASES, BOUNDS, label
from dse.answer.numbers import show, show_as, significant
from dse.answer.sentences import listed
from dse.economics.prices import evidence_words
from dse.problem.describe import pools_of
from dse.problem.mix import held, loads_of
from dse.problem.words import (
    DEPLOYMENT_KEY,
    DOMAIN_KEY,
    HELD_KEY,
    MIX,
    MOST_TOKENS,
    Untried,
    brief_shape,
    chips_words,
    copies_words,
    given_name,
    in_weights,
    sentence,
    short_deployment,
)
from dse.questions.study.chosen import QUALITY, Chosen, Json, StudyFolder, beside
from dse.questions.study.decisions import how_sure
from dse.questions.study.systems import software_words, system_answers, unpriced
from dse.questions.study.views import view_answers
from dse.schema.prices import dates_of
from dse.schema.workloads import mix_words

CERTAINTY = ("measured", "fitted", "derived", "spec", "estimated", "claimed", "assumed")
ASKED = "asked for"  # `why_engine` where it was not auto that chose
YEAR = 365 * 24 * 3600.0


def lead(folder: StudyFolder) -> list[str]:
    """The design to start from and how sure that is, then what was found, in a few sentences."""
    study, first = folder.study, folder.start
    return [
        *system_answers(study),
        *view_answers(study),
        f"{start_words(folder)}{how_sure(folder)}.",
        " ".join([f"Bound by {bottleneck(first)}", *basis(first, folder.wanted)]),
        *evidence_words(study["price"].get("evidence", ())),
        *_not_searched(study),
        *_untrained(folder),
        *unpriced(study),
        found_words(folder),
        *([" ".join(study["rack"]["sentences"])] if "rack" in study else []),
    ]


def _not_searched(study: Json) -> list[str]:
    """What the space did not choose from and would pay of the design to start from."""
    found = study.get("not_searched")
    if not found or not found["rows"]:
        return []
    rows = [Untried.read(row) for row in found["rows"]]
    return sentence(rows, f" (it would change the {label(found['metric']).text})")


def start_words(folder: StudyFolder, *, translated: bool = False) -> str:
    """The design to start from and its objectives; `translated`: the loss beside those of published
    models."""

    def amount(metric: str) -> str:
        value = folder.start.metrics[metric]
        near = beside(folder, value) if translated and metric == QUALITY else ""
        return f"{label(metric).text} {show(metric, value)}{f' ({near})' if near else ''}"

    d = folder.start.item["deployment"]
    parts = priced_chips(folder, d)
    price = f", ${significant(sum(n * usd for n, usd in parts))} an hour" if parts else ""
    on = f"{chips_words(d)} ({copies_words(d)}{in_weights(d)} weights{price})"
    amounts = ", ".join(map(amount, folder.wanted))
    return f"Start with {brief_shape(folder.start.item)} on {on}: {amounts}"


def found_words(folder: StudyFolder) -> str:
    """The size of the front, and how much of the space was evaluated for it."""
    study, count = folder.study, len(folder.items)
    evaluations, size = study["evaluations"], study["size"]
    said = f"{count:,} {'designs make' if count > 1 else 'design makes'} the front{_kept(study)}"
    if evaluations >= size:
        said += f". All {size:,} of the space were evaluated: it is the true front."
    else:
        said += f", out of {evaluations:,} evaluated ({show_as('share', evaluations / size)} of "
        said += f"the space's {size:,})."
        if (share := study.get("true_hypervolume_share")) is not None:
            said += f" Against an enumeration of the space the search reaches {percent(share)} of "
            said += "the hypervolume of the true front."
    said += _engine(study)
    if study.get("feasible") is not None:
        said += f" {study['feasible']:,} of the evaluated designs meet every constraint."
    if study.get("evaluator"):
        said += f" Objectives and limits were evaluated by {study['evaluator']}; everything else "
        said += "on this page is the prediction of the model."
    return said


def _engine(study: Json) -> str:
    """Who looked for the front, and why; an enumeration is a proof and no search."""
    why = study.get("why_engine") or ASKED
    said = f" The engine is {study['engine']}"
    if not why.startswith(ASKED):
        said += f", chosen by auto: {why}"
    if study["engine"] == "exhaustive":
        said += ", which proves the front instead of searching it"
    return f"{said}."


def _kept(study: Json) -> str:
    """What counted for nothing on the front, where that left designs out."""
    exact = study.get("exact_front_size", study["front_size"])
    if exact == study["front_size"]:
        return ""
    steps = [f"{text} of {label(name).text}" for name, text in study["resolution"].items()]
    return (
        f", of {exact:,} that nothing beats (differences up to {listed(steps)} count for nothing)"
    )


def _untrained(folder: StudyFolder) -> list[str]:
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
        f"{show_as('share', count / len(tokens))} of the front asks for more training tokens than "
        f"any published model had ({most}), up to {show('training_tokens', max(tokens))}. A limit "
        f"training_tokens <= {most} in the space file leaves those designs out."
    ]


def summary(folder: StudyFolder) -> Table:
    """A row for each chosen point: name, objectives, what its time rests on, shape, deployment."""
    several = len({brief_shape(item) for item in folder.items}) > 1
    held_too = held(loads_of(folder.study))
    key = f"{DEPLOYMENT_KEY}{DOMAIN_KEY if 'rack' in folder.study else ''}"
    key += HELD_KEY if held_too else ""

    def rests(chosen: Chosen) -> str | None:
        kinds = [kind for kind, share in efficiency_shares(chosen) if share >= 0.5]
        return ", ".join(kinds) or None

    return Table.of(
        "summary",
        "",
        folder.chosen,
        (
            Column("point", "point", of=lambda one: f"{one.label} ({one.item['point']})"),
            *(
                Column(m, label(m).short, m, explain=label(m).text, of=lambda c, m=m: c.metrics[m])
                for m in folder.wanted
            ),
            Column("efficiencies", "efficiencies", of=rests),
            *([Column("shape", "shape", of=lambda c: brief_shape(c.item))] if several else []),
            Column(
                "deployment",
                "deployment",
                of=lambda c: short_deployment(c.item["deployment"], held_too),
            ),
        ),
        notes=[
            f"Deployment: {key}; degrees of 1 are left out. "
            "front.csv has every design of the front."
        ],
    )


def asked(folder: StudyFolder) -> str:
    """The price basis first, then the workload and the limits, on one line."""
    many = "Workloads" if folder.study["workload"] is None else "Workload"
    limited = ", ".join(constraint["text"] for constraint in folder.study["constraints"])
    return (
        f"Prices: {price_basis(folder)}. {many}: {workload(folder).removesuffix('.')}. "
        f"Limits: {limited or 'none'}."
    )


def price_basis(folder: StudyFolder) -> str:
    """`rental_3yr (chips rented on a three-year contract), US dollars; newest price of ...`"""
    price, costs = folder.study["price"], folder.study.get("costs")
    said = price["basis"]
    if said in BASES:
        said += f" ({BASES[said]})"
    if costs:
        life, busy, usd = (
            costs["inputs"][name]["value"] for name in ("life", "utilisation", "electricity")
        )
        said += f", over {life / YEAR:.3g} years of which they serve {busy:.0%}, at ${usd:.3g} per "
        said += "kWh"
    dates = [end for row in price["rows"] if row.get("date") for end in row["date"].split(" to ")]
    return f"{said}, US dollars{f'; prices of {dates_of(dates)}' if dates else ''}"


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
        return f"{mix_words(loads)}; {software_words(folder.study)}. {MIX}"
    rest = dict(folder.study["workload"])
    software = software_words({**folder.study, "workload": {"backend": rest.pop("backend")}})
    parts = [f"{rest.pop(f'{name}_tokens'):,} {name} tokens" for name in ("prompt", "output")]
    parts += [f"{key.replace('_', ' ')} {value}" for key, value in rest.items()]
    return ", ".join([*parts, software])


def priced_chips(folder: StudyFolder, deployment: Json) -> list[tuple[int, float]]:
    """(chips, USD per chip-hour) of each pool; empty where the study has no price of one."""
    parts = [
        (int(one["chips"]), chip_price(folder, one["chip"]))
        for one in pools_of(deployment) or (deployment,)
    ]
    found = [(chips, rate) for chips, rate in parts if rate is not None]
    return found if len(found) == len(parts) else []


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
        least = constraint["sign"] < 0
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
        amounts = show_as("bytes", used), show_as("bytes", capacity)
        found.append((f"memory {amounts[0]}, {share:.0%} of the chip's {amounts[1]}", share))
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
    if provenance:
        named = f"Extrapolated: {', '.join(extrapolated)}."
        sentences.append(named if extrapolated else "Nothing is extrapolated.")
    return sentences


def efficiency_shares(chosen: Chosen) -> list[tuple[str, float]]:
    """(kind, share of the decode step's seconds), best known first."""
    seconds: dict[str, float] = {}
    for row in chosen.detail["breakdown"]:
        seconds[row["efficiency"]] = seconds.get(row["efficiency"], 0.0) + (row["decode_s"] or 0.0)
    total = sum(seconds.values())
    ordered = sorted(seconds, key=lambda kind: (*CERTAINTY, kind).index(kind))
    return [(kind, seconds[kind] / total) for kind in ordered] if total else []


def span(metric: str, interval: Iterable[float]) -> str:
    low, high = interval
    return f"{show(metric, low)} to {show(metric, high)}"


def extreme(objective: Json) -> str:
    """`lowest time per output token`."""
    side = "lowest" if objective["direction"] == "minimize" else "highest"
    return f"{side} {label(objective['metric']).text}"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def sentences(study: Mapping[str, Any]) -> list[str]:
    """`proof` of study.json in words, for the report and the console; nothing without one."""
    proof = study.get("proof")
    if not proof:
        return []
    if study.get("evaluator"):
        if study.get("true_hypervolume_share") is not None:
            return []
        return [
            f"Each evaluation is a call of {study['evaluator']}, so none was spent on proof: how "
            "near the front is to the true one is not known."
        ]
    said: list[str] = []
    if whole := proof.get("enumerated"):
        if whole["found"] == whole["true_front_size"] and whole["additive_epsilon"] == 0.0:
            said.append(
                f"All {whole['evaluations']:,} points of the space were evaluated: this is the "
                "true front of the model."
            )
        else:
            said.append(
                f"Against all {whole['evaluations']:,} points of the space, evaluated afterwards, "
                f"the search found {percent(whole['true_hypervolume_share'])} of the true "
                f"hypervolume and {whole['found']:,} of {whole['true_front_size']:,} true points; "
                f"additive epsilon {whole['additive_epsilon']:.2g} of an objective's range."
            )
    else:
        said.append("The space was not enumerated: what follows is evidence, not proof.")
    if local := proof.get("local"):
        said.append(
            f"One parameter away from the front lie {local['neighbours']:,} points, "
            f"{local['feasible']:,} of them feasible; all were evaluated: "
            + (
                "none improves the front."
                if not local["better"]
                else f"{local['better']:,} improve it, and {percent(local['share'])} of "
                "its points stay unbeaten."
            )
        )
    if runs := proof.get("restarts"):
        shares = [run["share"] for run in runs[1:]]
        said.append(
            f"{len(shares)} more searches that share nothing with this one found {_range(shares)} "
            f"of the hypervolume of all together; this one found {percent(runs[0]['share'])}."
        )
    if part := proof.get("subgrid"):
        said.append(
            f"On {part['size']:,} points spread over the space that were all evaluated, the same "
            f"search finds {percent(part['true_hypervolume_share'])} of the true hypervolume with "
            f"{part['evaluations']:,} evaluations."
        )
    if added := proof.get("added"):
        designs = f"{added:,} more designs" if added > 1 else "One more design"
        said.append(
            f"{designs} that the search had not met {'were' if added > 1 else 'was'} added to the "
            + ("front, which is the true one of the model now." if whole else "front.")
        )
    return said


def _range(shares: Sequence[float]) -> str:
    least, most = percent(min(shares)), percent(max(shares))
    return f"{least} each" if least == most else f"{least} to {most}"


def percent(share: float) -> str:
    """A share with as many nines as it has, never rounded up to 100%."""
    for digits in (2, 3, 4, 5, 6):
        text = f"{100 * share:.{digits}f}"
        if share >= 1.0 or not text.startswith("100"):
            return f"{100 * min(share, 1.0):g}%" if share >= 1.0 else f"{text}%"
    return "over 99.999999%"


def history_figures(history: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Share of the final hypervolume over evaluations; nothing for fewer than three points, or
    where all of it was there from the start."""
    rows = [row for row in history if row["evaluations"] > 0]
    counts = [row["evaluations"] for row in rows]
    if len(rows) < 3 or counts[0] >= counts[-1] or min(row["share"] for row in rows) >= 1.0:
        return []
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": counts,
        "y": [row["share"] for row in rows],
        "line": {"color": "ink", "width": 2},
        "marker": {"color": "ink", "size": 5},
        "hovertemplate": "%{x:,} evaluations: %{y:.2%}<extra></extra>",
    }
    layout = {
        "height": 240,
        "xaxis": {"title": {"text": "evaluations"}, "type": "log", "dtick": 1},
        "yaxis": {"tickformat": ".0%"},
    }
    shows = "How the front grew: its share of the final hypervolume after so many evaluations."
    return [Figure("history", "", {"data": [line], "layout": layout}, shows)]
