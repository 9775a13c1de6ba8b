"""Chips side by side in words: the tables of `dse hardware compare` and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse import units
from dse.problem.words import SHOWN, show, violation_words

NAMES = {
    "memory_capacity": "memory", "memory_bandwidth": "memory bandwidth",
    "domain": "scale-up domain, chips", "topology": "its topology",
    "link": "scale-up link, per direction", "link_latency": "latency of a hop",
    "scale_out_bandwidth": "scale-out network", "tdp": "rated power",
    "system_power": "power with its share of the system",
}  # fmt: skip
RATIOS = {
    "ridge_flops_per_byte": "ridge at bf16, FLOP per byte",
    "usd_per_hour_per_tb_per_s": "$/h per TB/s",
    "usd_per_hour_per_pflop_per_s": "$/h per PFLOP/s at bf16",
    "usd_per_hour_per_tb": "$/h per TB of memory",
    "watts_per_tb_per_s": "W per TB/s",
}
MARKS = {"claimed": "c", "estimated": "e", "assumed": "a", "derived": "d", "fitted": "f"}
MARKS_KEY = "(c) claimed, (e) estimated, (a) assumed, (d) derived; no mark: specified or measured."
QUESTIONS = {
    "tpot_s": ("writes fastest", "per token"),
    "ttft_s": ("answers soonest", "to the first token"),
    "usd_per_million_total_tokens": ("is cheapest", "per million tokens"),
    "joules_per_output_token": ("takes least energy", "per output token"),
}
METRICS = (
    "ttft_s", "tpot_s", "prefill_s", "output_tokens_per_s", "output_tokens_per_s_per_user",
    "usd_per_million_total_tokens", "joules_per_output_token", "mfu", "mbu",
)  # fmt: skip


def figure_rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """(figure, value on each chip)."""
    chips = document["chips"]
    names = list(dict.fromkeys(name for chip in chips for name in chip["figures"]))
    order = ["memory_capacity", "memory_bandwidth"]
    order += [name for name in names if name.startswith("peak_")]
    order += [name for name in names if name not in order]
    rows = [
        (NAMES.get(name, name.replace("_", " ")), *(_cell(chip, name) for chip in chips))
        for name in order
    ]
    for basis in dict.fromkeys(basis for chip in chips for basis in chip["prices"]):
        cells = [_price(chip["prices"].get(basis)) for chip in chips]
        published = all(cell != "-" and not cell.endswith("(a)") for cell in cells)
        if basis == document["price_basis"] or published:
            rows.append((f"$/h {basis}", *cells))
    for key, name in RATIOS.items():
        cells = [chip["ratios"][key] for chip in chips]
        rows.append((name, *("-" if value is None else f"{value:,.3g}" for value in cells)))
    laws = [
        "its own, measured" if chip["laws_of"] == chip["id"] else f"of {chip['laws_of']}"
        for chip in chips
    ]
    rows.append(("kernel efficiencies", *laws))
    return rows


def _cell(chip: Mapping[str, Any], name: str) -> str:
    figure = chip["figures"].get(name)
    if figure is None:
        return "-"
    text = figure["text"]
    if figure["value"] is not None:
        text = units.format(figure["value"], figure["unit"], 4)
    mark = MARKS.get(figure["kind"])
    return f"{text} ({mark})" if mark else text


def _price(price: Mapping[str, Any] | None) -> str:
    if price is None:
        return "-"
    return f"{price['usd_per_chip_hour']:.3g}" + (" (a)" if price["kind"] == "assumed" else "")


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
        words = f"the cheapest TB/s, ${least:.3g} an hour ({document['price_basis']})"
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
        value = f"${value}" if metric.startswith("usd") else value
        value = f"{value} J" if metric.startswith("joules") else value
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


def metric_rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """(metric, value on each estimated chip)."""
    points = estimated(document)
    rows = [
        (SHOWN.get(metric, metric), *(show(metric, point["metrics"][metric]) for point in points))
        for metric in METRICS
    ]
    rows.append(("bound by", *(point["bottleneck"] for point in points)))
    rows.append(("feasible", *("yes" if point["feasible"] else "no" for point in points)))
    return rows


def operator_rows(document: Mapping[str, Any], phase: str) -> list[tuple[str, ...]]:
    """(operator, time and bound on each estimated chip) in `prefill` or `decode`, longest on the
    first chip first; last the sum."""
    points = estimated(document)
    tables = [{row["operator"]: row for row in point["operators"]} for point in points]
    names = dict.fromkeys(name for table in tables for name in table)
    key, bound = f"{phase}_s", "prefill_bound" if phase == "prefill" else "bound"

    def seconds(table: Mapping[str, Any], name: str) -> float:
        return table[name][key] if name in table else 0.0

    ranked = sorted(names, key=lambda name: -seconds(tables[0], name))
    rows = [
        (
            name,
            *(
                f"{show(key, seconds(table, name))} {table[name][bound]}"
                if seconds(table, name)
                else "-"
                for table in tables
            ),
        )
        for name in ranked
        if any(seconds(table, name) for table in tables)
    ]
    totals = [sum(seconds(table, name) for name in table) for table in tables]
    return [*rows, ("total", *(show(key, total) for total in totals))]


def estimated(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [point for point in document["points"] if not point["refused"]]
