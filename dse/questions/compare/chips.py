"""Chips side by side: their figures with how each is known, and a model's operators on each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dse import units
from dse.answer.numbers import dollars, number, show
from dse.catalog import Catalog, with_own_chips
from dse.economics.tco import with_basis
from dse.errors import InputError
from dse.problem.words import violation_words
from dse.questions.estimate.ask import point_of
from dse.questions.estimate.detail import breakdown
from dse.questions.estimate.point import Estimate
from dse.schema.chip import Chip, Figure
from dse.schema.derive import PEAKS, derive
from dse.schema.system import FabricLevel, System

POINT = (
    "ttft_s",
    "tpot_s",
    "prefill_s",
    "decode_step_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_chip",
    "output_tokens_per_s_per_user",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "usd_per_million_total_tokens",
    "joules_per_output_token",
    "running_requests",
    "mfu",
    "mbu",
    "latency_floor_s",
)
MOST = 6  # chips side by side


def compare_chips(catalog: Catalog, chips: Sequence[str], **point: Any) -> dict[str, Any]:
    """Chips by id or by the path of a chip file, with the model on each where `point` (the
    arguments of `dse.estimate`) has one; `settings` add the first of them with figures changed.

    Raises InputError for more than MOST chips, a chip that does not exist, and what `dse.estimate`
    refuses on any chip that lacks nothing for it.
    """
    if len(chips) > MOST:
        raise InputError(f"{len(chips)} chips", field="CHIP", accepted=f"at most {MOST}")
    catalog, found = catalog.with_chips(chips)
    names: list[tuple[str, Sequence[str]]] = [(name, ()) for name in found]
    read, basis = catalog, point["price_basis"]
    if point["settings"]:
        own = derive(catalog, names[0][0], point["settings"])
        catalog = with_own_chips(catalog, [own])
        names.insert(1, (own.chip.id, tuple(point["settings"])))
    catalog = with_basis(catalog, basis)
    catalog.prices.select(basis)
    names = list(dict.fromkeys(names))
    document: dict[str, Any] = {
        "chips": [chip_row(catalog, name, basis) for name, _ in names],
        "price_basis": basis,
        "model": None,
        "points": [],
        "leaders": None,
    }
    if point["model"] is None:
        return document
    for name, settings in names:
        chip = names[0][0] if settings else name
        found = _estimate(read, point | {"chip": chip, "settings": settings})
        document["points"].append(point_row(name, found))
        if not isinstance(found, InputError):
            document["model"] = found.model.name
    return document | {"leaders": leaders(document["points"])}


def _estimate(catalog: Catalog, point: dict[str, Any]) -> Estimate | InputError:
    """The estimate on one chip, or the error of a chip that lacks a figure for it."""
    try:
        return point_of(catalog, point, keep=True)
    except InputError as error:
        if catalog.refusal(point["chip"], point["tp"] * point["pp"] * point["dp"]):
            return error
        raise


def chip_row(catalog: Catalog, name: str, basis: str) -> dict[str, Any]:
    """One chip of `dse compare CHIP... --json`; `figures` maps a name to {value, unit, text,
    kind}, a value of null where nobody published it."""
    chip = catalog.chip(name)
    system = catalog.systems[chip.system]
    figures = {
        "memory_capacity": _capacity(chip),
        "memory_bandwidth": _figure(chip.figure("memory_bandwidth")),
        **{peak: _figure(chip.figure(peak)) for peak in PEAKS if chip.figure(peak)},
        **_fabric(system),
        "tdp": _figure(chip.figure("tdp")),
        "system_power": _figure(chip.figure("system_power")),
    }
    prices = {}
    for one in catalog.prices.bases():
        price = catalog.prices.select(one).get(name)
        if price is not None:
            assumed = any(note.startswith("assumed") for note in price.notes)
            prices[one] = {
                "usd_per_chip_hour": price.usd_per_chip_hour,
                "rule": price.rule,
                "date": price.newest_date,
                "kind": "assumed" if assumed else None,
            }
    return {
        "id": chip.id,
        "name": chip.name,
        "vendor": chip.vendor,
        "hypothetical": chip.hypothetical,
        "derived_from": chip.derived_from or None,
        "changes": list(chip.changes),
        "laws_of": chip.efficiency.split(":")[0],
        "figures": figures,
        "ratios": _ratios(chip, prices.get(basis)),
        "prices": prices,
        "refused": catalog.refusal(name),
    }


def _figure(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    text, value, unit = figure.text, number(figure.value), figure.unit
    return {"value": value, "unit": unit, "text": text, "kind": figure.kind}


def _capacity(chip: Chip) -> dict[str, Any] | None:
    """The figure that is used: what the driver reports where it is known."""
    own = chip.figure("memory_capacity_driver_reported") or chip.figure("memory_capacity")
    return _figure(own)


def _fabric(system: System) -> dict[str, dict[str, Any] | None]:
    inner, outer = system.levels[0], system.levels[-1]
    return {
        "domain": _of(system, inner, "size"),
        "topology": _of(system, inner, "topology"),
        "link": _of(system, inner, "bandwidth_per_direction"),
        "link_latency": _of(system, inner, "latency"),
        "scale_out_bandwidth": _of(system, outer, "bandwidth_per_direction"),
    }


def _of(system: System, level: FabricLevel, field: str) -> dict[str, Any] | None:
    name = f"{level.name} {field}"
    return _figure(next((figure for figure in system.figures if figure.name == name), None))


def _ratios(chip: Chip, price: dict[str, Any] | None) -> dict[str, float | None]:
    """FLOP per byte where the roof bends, and what a TB/s and a PFLOP/s cost by the hour."""
    bandwidth = chip.memories[0].bytes_per_s
    peak = chip.peak_flops_per_s.get("bf16", math.nan)
    usd = price["usd_per_chip_hour"] if price else math.nan
    return {
        "ridge_flops_per_byte": number(peak / bandwidth),
        "usd_per_hour_per_tb_per_s": number(usd / bandwidth * 1e12),
        "usd_per_hour_per_pflop_per_s": number(usd / peak * 1e15),
        "usd_per_hour_per_tb": number(usd / chip.capacity_bytes * 1e12),
        "watts_per_tb_per_s": number((chip.tdp_w or math.nan) / bandwidth * 1e12),
    }


def point_row(name: str, found: Estimate | InputError) -> dict[str, Any]:
    """The model on one chip: metrics and operators, or why it cannot be estimated."""
    if isinstance(found, InputError):
        return {"chip": name, "refused": found.message, "metrics": None, "operators": []}
    answer = found.as_json()
    where = breakdown(found.metrics, 0)
    return {
        "chip": name,
        "refused": None,
        "feasible": answer["feasible"],
        "violations": answer["violations"],
        "bottleneck": answer["bottleneck"],
        "efficiency": answer["provenance"]["decode_step_s"],
        "metrics": {metric: answer[metric] for metric in POINT},
        "intervals": {m: answer["intervals"][m] for m in POINT if m in answer["intervals"]},
        "deployment": answer["deployment"],
        "workload": answer["workload"],
        **({"workloads": answer["workloads"]} if "workloads" in answer else {}),
        "operators": where["breakdown"],
        "hbm_bytes_per_s": where["hbm_bytes_per_s"],
    }


def leaders(points: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any] | None]:
    """For each question, the feasible chip that is best and how far the next one is behind:
    {metric: {chip, value, next, times}}; None where no chip has a value."""
    answers: dict[str, dict[str, Any] | None] = {}
    for metric in ("tpot_s", "ttft_s", "usd_per_million_total_tokens", "joules_per_output_token"):
        known = [
            (point["metrics"][metric], point["chip"])
            for point in points
            if point["metrics"] and point["feasible"] and point["metrics"][metric] is not None
        ]
        known.sort(key=lambda pair: pair[0])
        if not known:
            answers[metric] = None
            continue
        (value, chip), second = known[0], known[1] if len(known) > 1 else None
        answers[metric] = {
            "chip": chip,
            "value": value,
            "next": second[1] if second else None,
            "times": second[0] / value if second else None,
        }
    return answers


QUESTIONS = {
    "tpot_s": ("writes fastest", "per token"),
    "ttft_s": ("answers soonest", "to the first token"),
    "usd_per_million_total_tokens": ("is cheapest", "per million tokens"),
    "joules_per_output_token": ("takes least energy", "per output token"),
}


def lead(document: Mapping[str, Any]) -> list[str]:
    """Which chip is best at what, in a sentence each; without a model, by their figures."""
    if document["points"]:
        return _lead_of_points(document)
    chips, sentences = document["chips"], []
    for name, words, unit in (
        ("memory_bandwidth", "the most memory bandwidth", "bytes/s"),
        ("memory_capacity", "the most memory", "bytes"),
        ("peak_bf16", "the highest bf16 peak", "flop/s"),
    ):
        known = {c["id"]: c["figures"][name]["value"] for c in chips if c["figures"].get(name)}
        if known:
            most = max(known.values())
            sentences.append((_first(known, most), f"{words}, {units.format(most, unit, 4)}"))
    known = {c["id"]: c["ratios"]["usd_per_hour_per_tb_per_s"] for c in chips}
    known = {chip: value for chip, value in known.items() if value is not None}
    if known:
        least = min(known.values())
        words = f"the cheapest TB/s, {dollars(least)} an hour ({document['price_basis']})"
        sentences.append((_first(known, least), words))
    return _by_chip(sentences, "has")


def _first(known: Mapping[str, float], best: float) -> str:
    return " and ".join(chip for chip, value in known.items() if value == best)


def _by_chip(parts: Sequence[tuple[str, str]], verb: str = "") -> list[str]:
    """One sentence for each chip that leads in something."""
    found: dict[str, list[str]] = {}
    for chip, words in parts:
        found.setdefault(chip, []).append(words)
    return [
        " ".join(filter(None, (chip, "have" if verb and " and " in chip else verb)))
        + f" {'; '.join(words)}."
        for chip, words in found.items()
    ]


def _lead_of_points(document: Mapping[str, Any]) -> list[str]:
    parts = []
    for metric, (verb, per) in QUESTIONS.items():
        best = document["leaders"][metric]
        if best is None:
            continue
        value = show(metric, best["value"])
        behind = ""
        if best["next"]:
            behind = f" ({best['next']}: {best['times']:.2f} times that)"
        parts.append((best["chip"], f"{verb}, {value} {per}{behind}"))
    lines = _by_chip(parts) or ["None of these chips can serve this."]
    for point in document["points"]:
        if point["refused"]:
            lines.append(f"{point['chip']} is not estimated: {point['refused']}.")
        elif not point["feasible"]:
            broken = "; ".join(map(violation_words, point["violations"]))
            lines.append(f"{point['chip']} cannot: it {broken}.")
    return lines


def hypothetical_lines(document: Mapping[str, Any]) -> list[str]:
    """What each hypothetical chip is."""
    return [
        f"{chip['id']} is hypothetical: {'; '.join(chip['changes']) or 'its file says so'}."
        for chip in document["chips"]
        if chip["hypothetical"]
    ]


def estimated(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [point for point in document["points"] if not point["refused"]]
