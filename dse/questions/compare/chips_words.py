"""Chips side by side in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse import units
from dse.answer.numbers import dollars, show
from dse.problem.words import violation_words

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
