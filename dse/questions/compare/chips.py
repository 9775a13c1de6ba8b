"""Chips side by side: their figures with how each is known, and a model's operators on each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dse import units
from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import across, document, lines, of_rows
from dse.answer.numbers import GLOSSARY, dollars, label, number, show, show_as
from dse.answer.sentences import listed
from dse.catalog import Catalog, with_own_chips
from dse.economics.tco import with_basis
from dse.errors import InputError
from dse.problem.words import heading, violation_words
from dse.questions.estimate.estimate import DEFAULTS, check_load, point_of
from dse.questions.estimate.point import Estimate
from dse.questions.estimate.where import breakdown
from dse.schema.chip import Chip
from dse.schema.derive import PEAKS, derive

PRICE = "usd_per_million_total_tokens"
FEW = ("ttft_s", "tpot_s", PRICE, "joules_per_output_token")
METRICS = ("prefill_s", "output_tokens_per_s", "output_tokens_per_s_per_user", "mfu", "mbu")
METRICS = (*FEW, *METRICS, "decode_step_s", "output_tokens_per_s_per_chip")
METRICS = (*METRICS, "usd_per_million_input_tokens", "usd_per_million_output_tokens")
METRICS = (*METRICS, "running_requests", "latency_floor_s")
MOST = 6  # chips side by side
FIGURES = {
    "memory_capacity": "memory",
    "memory_bandwidth": "memory bandwidth",
    **dict.fromkeys(PEAKS, ""),
    "size": "scale-up domain, chips",
    "topology": "its topology",
    "bandwidth_per_direction": "scale-up link, per direction",
    "latency": "latency of a hop",
    "scale_out": "scale-out network",
    "tdp": "rated power",
    "system_power": "power with its share of the system",
}
MARKS = {"claimed": "c", "estimated": "e", "assumed": "a", "derived": "d", "fitted": "f"}
MARKS_KEY = (
    "(c) claimed, (e) estimated, (a) assumed, (d) derived; no mark: specified or measured. "
    "`dse catalog chips show` gives the source of each figure."
)
# What is best in a metric: a verb, and what its value is of.
LEADS = {
    "tpot_s": ("writes fastest", "per token"),
    "ttft_s": ("answers soonest", "to the first token"),
    PRICE: ("is cheapest", "per million tokens"),
    "joules_per_output_token": ("takes least energy", "per output token"),
}
WORDS = {
    "roof": "the most that a chip can do at an intensity: memory bandwidth times the intensity, "
    "up to its peak arithmetic",
    "ridge": "the intensity at which a roof bends: below it memory is the limit, above it "
    "arithmetic",
    "arithmetic intensity": "operations for each byte moved between memory and chip",
    "hypothetical": "made up from a known chip by changing figures; nobody makes it",
    "scale-up domain": "the chips that one fast fabric joins",
    "claimed": GLOSSARY["claimed"],
}
ASKED = ("deployment", "workload", "workloads")
PHASE = {"prefill": "Prefill of one prompt", "decode": "Decode step"}
Row = Mapping[str, Any]


def compare_chips(catalog: Catalog, chips: Sequence[str], **given: Any) -> Answer:
    """Chips by id or by the path of a chip file, with the model on each where `given` (the
    arguments of `dse.estimate`) has one; `settings` add the first of them with figures changed.

    Raises InputError for more than MOST chips, a chip that does not exist, and what `dse.estimate`
    refuses on any chip that lacks nothing for it.
    """
    if len(chips) > MOST:
        raise InputError(f"{len(chips)} chips", field="CHIP", accepted=f"at most {MOST}")
    point = {**DEFAULTS, **given}
    check_load(point)
    if isinstance(point["settings"], Mapping):
        point["settings"] = [f"{name}={value}" for name, value in point["settings"].items()]
    catalog, found = catalog.with_chips(chips)
    names: dict[str, Any] = dict.fromkeys(found, ())
    read, basis = catalog, point["price_basis"]
    if point["settings"]:
        own = derive(catalog, found[0], point["settings"])
        catalog = with_own_chips(catalog, [own])
        rest = dict.fromkeys(found[1:], ())
        names = {found[0]: (), own.chip.id: point["settings"], **rest}
    catalog = with_basis(catalog, basis)
    catalog.prices.select(basis)
    figures = [row for name in names for row in _figures(catalog, name, basis)]
    points, operators, first, refused = [], [], None, {}
    for name, settings in names.items():
        if point.get("model") is None:
            continue
        one = _estimate(read, {**point, "chip": found[0] if settings else name}, settings)
        if isinstance(one, InputError):
            refused[name] = one.message
            continue
        answer, where = one.as_json(), breakdown(one.metrics, 0)
        first = first or {**answer, "model": one.model.name}
        row = {**answer, "chip": name, "known": answer["provenance"]["decode_step_s"]}
        for metric, ends in answer["intervals"].items():
            row |= {f"{metric}.low": ends[0], f"{metric}.high": ends[1]}
        points.append(row)
        operators += [{"chip": name, **one} for one in where["breakdown"]]
    leaders = _leaders(points)
    asked = f"Prices: {basis}"
    if first is not None:
        deployment = {**first["deployment"], "chip": "each chip"}
        asked = heading({**first, "deployment": deployment, "price_basis": basis})
    sentences = _figure_lead(figures, basis)
    if point.get("model") is not None:
        sentences = [*_lead(leaders), *_cannot(points, refused)]
    specs = [catalog.chip(name) for name in names]
    for chip in specs:
        if chip.hypothetical:
            changed = "; ".join(chip.changes) or "its file says so"
            sentences.append(f"{chip.id} is hypothetical: {changed}.")
    keys = [key for metric in METRICS for key in (metric, f"{metric}.low", f"{metric}.high")]
    work = [f"{phase}_{key}" for phase in PHASE for key in ("flops", "bytes", "peak_flops_per_s")]
    timed = ("prefill_s", "prefill_bound", "decode_s", "bound")
    frames = [
        of_rows("figures", "Figures", figures, "chip figure_name value unit written kind"),
        of_rows(
            "points",
            "The model on each chip",
            points,
            ("chip", "feasible", "bottleneck", "known", *keys),
            shown=("chip", *FEW, "bottleneck", "feasible") if points else (),
            first=("chip", *FEW),
        ),
        of_rows("leaders", "Best chip by metric", leaders, "metric chip value next ratio"),
        of_rows("operators", "Operators", operators, ("chip", "operator", *timed, *work)),
    ]
    pictures = []
    if feasible := [row for row in points if row["feasible"]] or points:
        x = PRICE if all(row[PRICE] is not None for row in feasible) else "ttft_s"
        what = f"{label(x).text} and {label('tpot_s').text}"
        speed = of_rows("speed", "", feasible, f"chip {x} tpot_s")
        shows = f"Each mark is a chip, by {what}; lower is better in both."
        title = f"{what[0].upper()}{what[1:]}"
        pictures = [lines("speed", title, speed, x, "tpot_s", "chip", shows, joined=False)]
    facts = {
        "chips": list(names),
        "price_basis": basis,
        **{key: first and first.get(key) for key in ("model", *ASKED)},
        "refused": refused,
        "answer": sentences,
    }
    return Answer(
        question="compare",
        title=listed(list(names)),
        asked=asked,
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(
            *pictures,
            *(frames[1:2] if points else ()),
            _figure_table(figures, basis),
            *(_operator_table(phase, operators) for phase in PHASE if operators),
            *_roofs(specs),
        ),
        document=document(facts, frames),
        data=(frames[1] if points else frames[0], frames[0]),
        words=WORDS,
        names={chip.id: _maker(chip) for chip in specs},
    )


def _estimate(catalog: Catalog, point: dict[str, Any], settings: Any) -> Estimate | InputError:
    """The estimate on one chip, or the error of a chip that lacks a figure for it."""
    try:
        return point_of(catalog, {**point, "settings": settings}, keep=True)
    except InputError as error:
        if catalog.refusal(point["chip"], point["tp"] * point["pp"] * point["dp"]):
            return error
        raise


def _maker(chip: Chip) -> str:
    """`hypothetical H100 SXM5 80GB`."""
    known = chip.name.partition(" (")[0].removesuffix(", hypothetical")
    return f"hypothetical {known}" if chip.hypothetical else known


def _figures(catalog: Catalog, name: str, basis: str) -> list[dict[str, Any]]:
    """A row for each figure of a chip and its system, price, and ratio of these; a value of None
    where nobody published it."""
    chip = catalog.chip(name)
    system = catalog.systems[chip.system]
    inner, outer = system.levels[0].name, system.levels[-1].name
    on_system = {figure.name: figure for figure in system.figures}
    rows: list[dict[str, Any]] = []

    def add(title: str, value: float | None, written: str, unit: str = "", kind: Any = None):
        row = {"value": value, "unit": unit, "written": written, "kind": kind}
        rows.append({"chip": name, "figure_name": title, **row})

    for key, title in FIGURES.items():
        found = chip.figure(key) or on_system.get(f"{inner} {key}")
        if key == "memory_capacity":  # what the driver reports where it is known
            found = chip.figure("memory_capacity_driver_reported") or found
        if key == "scale_out":
            found = on_system.get(f"{outer} bandwidth_per_direction")
        if found is not None:
            value, text = number(found.value), found.text
            text = text if value is None else units.format(value, found.unit, 4)
            add(title or key.replace("_", " "), value, text, found.unit, found.kind)
    paid = math.nan
    for one in catalog.prices.bases():
        if (price := catalog.prices.select(one).get(name)) is not None:
            usd = price.usd_per_chip_hour
            paid = usd if one == basis else paid
            assumed = any(note.startswith("assumed") for note in price.notes)
            add(f"$/h {one}", usd, dollars(usd), "USD/h", "assumed" if assumed else None)
    bandwidth = chip.memories[0].bytes_per_s
    peak = chip.peak_flops_per_s.get("bf16", math.nan)
    for title, ratio in (
        ("ridge at bf16, FLOP per byte", peak / bandwidth),
        ("$/h per TB/s", paid / bandwidth * 1e12),
        ("$/h per PFLOP/s at bf16", paid / peak * 1e15),
        ("$/h per TB of memory", paid / chip.capacity_bytes * 1e12),
        ("W per TB/s", (chip.tdp_w or math.nan) / bandwidth * 1e12),
    ):
        add(title, number(ratio), show_as("number", ratio))
    laws = chip.efficiency.split(":")[0]
    add("kernel efficiencies", None, "its own, measured" if laws == name else f"of {laws}")
    return rows


def _leaders(points: Sequence[Row]) -> list[dict[str, Any]]:
    """For each of LEADS, the feasible chip that is best and how far the next one is behind."""
    rows = []
    for metric in LEADS:
        known = [row for row in points if row["feasible"] and row[metric] is not None]
        known.sort(key=lambda row: row[metric])
        if known:
            best, second = known[0], known[1] if len(known) > 1 else None
            row = {"metric": metric, "chip": best["chip"], "value": best[metric]}
            row |= {"next": second and second["chip"]}
            rows.append(row | {"ratio": second and second[metric] / best[metric]})
    return rows


def _lead(leaders: Sequence[Row]) -> list[str]:
    """One sentence for each chip that is best at something."""
    found = []
    for row in leaders:
        verb, per = LEADS[row["metric"]]
        behind = f" ({row['next']}: {row['ratio']:.2f} times that)" if row["next"] else ""
        words = f"{verb}, {show(row['metric'], row['value'])} {per}{behind}"
        found.append((row["chip"], words))
    return _by_chip(found) or ["None of these chips can serve this."]


def _by_chip(found: Sequence[tuple[str, str]]) -> list[str]:
    """A sentence for each chip, or chips, of what is said of it."""
    said: dict[str, list[str]] = {}
    for chip, words in found:
        said.setdefault(chip, []).append(words)
    return [f"{chip} {'; '.join(words)}." for chip, words in said.items()]


def _cannot(points: Sequence[Row], refused: Mapping[str, str]) -> list[str]:
    said = [f"{chip} is not estimated: {message}." for chip, message in refused.items()]
    for row in points:
        if not row["feasible"]:
            broken = "; ".join(map(violation_words, row["violations"]))
            said.append(f"{row['chip']} cannot: it {broken}.")
    return said


def _figure_lead(figures: Sequence[Row], basis: str) -> list[str]:
    """Which chip has the most of what, without a model."""
    found = []
    for name, words, choose in (
        ("memory bandwidth", "the most memory bandwidth, {}", max),
        ("memory", "the most memory, {}", max),
        ("peak bf16", "the highest bf16 peak, {}", max),
        ("$/h per TB/s", f"the cheapest TB/s, ${{}} an hour ({basis})", min),
    ):
        known = [row for row in figures if row["figure_name"] == name and row["value"] is not None]
        if known:
            best = choose(row["value"] for row in known)
            who = [row for row in known if row["value"] == best]
            chips = " and ".join(row["chip"] for row in who)
            have = f"{chips} {'have' if len(who) > 1 else 'has'}"
            found.append((have, words.format(who[0]["written"])))
    return _by_chip(found) or ["None of these figures is published."]


def _figure_table(figures: Sequence[Row], basis: str) -> Table:
    """Figures, a column for each chip, and the prices of the basis."""
    order = [title or name.replace("_", " ") for name, title in FIGURES.items()]
    kept = [
        row
        for row in figures
        if not row["figure_name"].startswith("$/h ")
        or " per " in row["figure_name"]
        or row["figure_name"] == f"$/h {basis}"
    ]
    kept.sort(key=lambda row: (*order, row["figure_name"]).index(row["figure_name"]))

    def written(row: Row) -> str:
        mark = MARKS.get(row["kind"])
        return f"{row['written']} ({mark})" if mark else row["written"]

    return across("figures", "Figures", kept, "figure_name", "chip", written, MARKS_KEY)


def _operator_table(phase: str, operators: Sequence[Row]) -> Table:
    """Times of one phase, a column for each chip, the longest of the first chip on top."""
    key, bound = f"{phase}_s", "bound" if phase == "decode" else "prefill_bound"
    first = operators[0]["chip"]
    longest = {row["operator"]: row[key] for row in operators if row["chip"] == first}
    rows = [row for row in operators if row[key]]
    rows.sort(key=lambda row: -longest.get(row["operator"], 0.0))

    def cell(row: Row) -> str:
        return f"{show(key, row[key])} {row[bound]}"

    note = "Beside a time: what the operator waits for."
    return across(phase, PHASE[phase], rows, "operator", "chip", cell, note)


def _roofs(chips: Sequence[Chip]) -> list[Figure]:
    """Intensity, FLOP per byte, against TFLOP/s: a roof at the bf16 peak for each chip that has one
    (Williams, Waterman and Patterson, Communications of the ACM 52, 2009): attainable FLOP/s =
    min(peak, intensity * bandwidth). Nothing where none has."""
    peaks = {chip.id: chip.peak_flops_per_s.get("bf16") for chip in chips}
    rates = {chip.id: chip.memories[0].bytes_per_s for chip in chips}
    ridges = {name: peak / rates[name] for name, peak in peaks.items() if peak}
    if not ridges:
        return []
    low, high = min(ridges.values()) / 100, max(ridges.values()) * 8
    rows = [
        {
            "chip": name,
            "arithmetic_intensity": at,
            "attainable_flops_per_s": min(at, ridge) * rates[name],
            "bytes_per_s": rates[name],
        }
        for name, ridge in ridges.items()
        for at in (low, ridge, high)
    ]
    x, y = "arithmetic_intensity", "attainable_flops_per_s"
    table = of_rows("roofs", "", rows, f"chip {x} {y} bytes_per_s")
    shows = (
        "A roof is the most that a chip can do at its bf16 peak: on its slope memory is the limit, "
        "on its flat part arithmetic."
    )
    if missing := [name for name, peak in peaks.items() if not peak]:
        shows += f" No roof: {', '.join(missing)}, which have no bf16 peak."
    hover = ("bytes_per_s",)
    return [lines("roofs", "Rooflines at bf16", table, x, y, "chip", shows, hover=hover)]
