"""The tables of a report: what the chosen points are made of, what removed designs, the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dse.answer.answer import Column, Table
from dse.answer.labels import label
from dse.answer.numbers import show
from dse.answer.plots import operators_of
from dse.economics.prices import price_parts
from dse.problem.describe import pools_of
from dse.questions.study.chosen import Chosen, Json, StudyFolder
from dse.questions.study.figures import part_words
from dse.questions.study.words import capital, limits, span

TOKENS = ("input", "output", "total")
BY_WORKLOAD = ("ttft_s", "tpot_s", *(f"usd_per_million_{name}_tokens" for name in TOKENS))


def workloads(chosen: Chosen) -> Table:
    """Of a mix, a row for each workload."""
    return Table(
        f"workloads-of-{chosen.item['point']}",
        f"Each workload: {chosen.label}",
        (
            Column("name", "workload"),
            Column("weight", "share of requests", "share"),
            Column("chip_seconds_share", "share of the time", "share"),
            *(Column(metric, label(metric).text, metric) for metric in BY_WORKLOAD),
        ),
        chosen.item["workloads"],
        on_console=False,
    )


# What a pool is made of, and its title.
OF_A_POOL = {
    "chip": "chip",
    "chips": "chips",
    "replicas": "workers",
    "tensor_parallel": "tensor parallel",
    "pipeline_parallel": "pipeline parallel",
    "data_parallel": "attention data parallel",
    "expert_parallel": "expert parallel",
    "weight_dtype": "weights",
    "kv_dtype": "KV cache",
}


def pools(chosen: Chosen) -> list[Table]:
    """The two pools of a chosen point, a column each; nothing where one pool does both phases."""
    found = pools_of(chosen.item["deployment"])
    if found is None:
        return []
    prefill, decode = found
    flight = f"{round(decode['concurrency']):,}"
    return [
        Table.of(
            f"pools-of-{chosen.item['point']}",
            capital(chosen.under),
            list(OF_A_POOL),
            (
                Column("what", "of a pool", of=lambda name: OF_A_POOL[name]),
                Column("prefill", "prefill", right=True, of=lambda name: str(prefill[name])),
                Column("decode", "decode", right=True, of=lambda name: str(decode[name])),
            ),
            notes=(f"{flight} requests are in flight over both.",),
            on_console=False,
        )
    ]


def average_loads(folder: StudyFolder) -> list[Table]:
    """A row for each chosen point that was priced at an average load; none without a demand."""
    demand = folder.study.get("demand")
    found = [one for one in folder.chosen if one.item.get("at_average_load")]
    if not (demand and found):
        return []
    average = demand["average_tokens_per_s"]
    of = "" if average is None else f" of {average:,.0f} tokens a second, input and output together"

    def load(key: str):
        return lambda one: one.item["at_average_load"][key]

    return [
        Table.of(
            "load",
            f"Sized for a peak of {demand['peak_over_average']:g} times the average{of}, and paid "
            "around the clock: the prices of a token at average load. All other prices of this "
            "report are those of a busy deployment.",
            found,
            (
                Column("point", "point", of=lambda one: f"{one.label} ({one.item['point']})"),
                Column("busy_share", "busy", "share", of=load("busy_share")),
                Column("deployments", "deployments", "count", of=load("deployments")),
                Column("chips", "chips", "count", of=_chips_at_load),
                Column("usd_per_hour", "an hour", "dollars", of=load("usd_per_hour")),
                *(
                    Column(key, f"per million {name}", "dollars", of=load(key))
                    for name in TOKENS
                    for key in (f"usd_per_million_{name}_tokens",)
                ),
            ),
        )
    ]


def _chips_at_load(chosen: Chosen) -> int | None:
    load = chosen.item["at_average_load"]
    return None if load["deployments"] is None else load["chips"]


def tallies(folder: StudyFolder) -> Table:
    """Constraints by how many evaluated designs they ruled out, most first."""
    evaluations = max(1, folder.study["evaluations"])
    found = sorted(folder.study["constraint_tallies"], key=lambda row: -row["violated"])
    never = ", ".join(row["constraint"] for row in found if not row["violated"])
    return Table.of(
        "constraints",
        "",
        [row for row in found if row["violated"]],
        (
            Column("constraint", "constraint"),
            Column("meaning", "meaning", of=lambda row: row.get("meaning") or ""),
            Column("violated", "violated", "count"),
            Column("only", "alone", "count"),
            Column(
                "share",
                "share of evaluated",
                "share",
                bar=True,
                of=lambda row: min(1.0, row["violated"] / evaluations),
            ),
        ),
        notes=[f"Never violated: {never}."] if never else [],
    )


def times(chosen: Chosen) -> Table:
    """The operators of a chosen point, longest decode first."""
    return Table.of(
        f"time-of-{chosen.item['point']}",
        capital(chosen.under),
        sorted(chosen.detail["breakdown"], key=lambda row: -(row["decode_s"] or 0.0)),
        (
            Column("operator", "operator"),
            Column("prefill_s", "prefill of one prompt", "prefill_s"),
            Column("decode_s", "decode step", "decode_step_s"),
            Column("bounds", "bound", of=_bounds),
            Column("efficiency", "efficiency"),
        ),
    )


def _bounds(row: Json) -> str:
    """What bounds an operator: once, or `prefill / decode` where the two differ."""
    return " / ".join(dict.fromkeys((row.get("prefill_bound", row["bound"]), row["bound"])))


def roof(chosen: Chosen) -> Table:
    """Each operator in each phase, longest first."""
    return Table.of(
        f"roof-of-{chosen.item['point']}",
        capital(chosen.under),
        sorted(operators_of(chosen.detail), key=lambda o: (o.phase, -o.seconds)),
        (
            Column("name", "operator"),
            Column("phase", "phase"),
            Column("seconds", "time", "time"),
            Column("intensity", "FLOP per byte", "rate"),
            Column("achieved", "TFLOP/s", "rate", of=lambda o: 1e-12 * o.achieved),
            Column("attainable", "roof, TFLOP/s", "rate", of=lambda o: 1e-12 * o.attainable),
            Column("of_roof", "share of the roof", "share", of=lambda o: o.achieved / o.attainable),
        ),
    )


def memories(folder: StudyFolder) -> Table:
    """What one chip of each chosen point holds, part by part, what is free, and its capacity."""
    rows = []
    for chosen in folder.chosen:
        held = {row["part"]: row["bytes"] for row in chosen.detail["memory"]}
        capacity = chosen.detail["capacity_bytes"]
        free = max(0.0, capacity - sum(held.values()))
        rows.append({"point": chosen.under, **held, "free": free, "capacity": capacity})
    parts = dict.fromkeys(key for row in rows for key in row if key not in ("free", "capacity"))
    columns = [Column(part, part_words(part), "bytes") for part in (*parts, "free", "capacity")]
    return Table("memory", "", (Column("point", "point"), *columns[1:]), rows)


def floors(folder: StudyFolder) -> Table:
    """Floor, prediction and interval of each chosen point's decode step."""

    def interval(chosen: Chosen) -> str | None:
        return span("decode_step_s", chosen.step_interval) if chosen.step_interval else None

    def ratio(chosen: Chosen) -> float | None:
        floor = chosen.detail["floor_s"]
        return chosen.detail["decode_step_s"] / floor if floor else None

    kind = "decode_step_s"
    return Table.of(
        "floor",
        "",
        folder.chosen,
        (
            Column("point", "point", of=lambda one: one.under),
            Column("floor_s", "floor of the decode step", kind, of=lambda c: c.detail["floor_s"]),
            Column("predicted_s", "prediction", kind, of=lambda c: c.detail["decode_step_s"]),
            Column("interval", "80% interval", right=True, of=interval),
            Column("ratio", "prediction / floor", "ratio", of=ratio),
        ),
    )


def elsewhere(folder: StudyFolder, chosen: Chosen) -> Table:
    """The point on every chip: its own, then those that can do it by the first of `compared`, then
    those that cannot; below it the chips that could not be evaluated, by reason."""
    own, found = chosen.item["deployment"]["chip"], chosen.detail["elsewhere"]
    objectives = compared(folder, chosen)
    first = objectives[0]
    names = [objective["metric"] for objective in objectives]

    def order(row: Json) -> tuple[bool, bool, float]:
        value = row["metrics"].get(first["metric"])
        sign = 1.0 if first["direction"] == "minimize" else -1.0
        least = float("inf") if value is None else sign * value
        return row["chip"] != own, not row["feasible"], least

    def ratio(row: Json, name: str) -> float | None:
        value, here = row["metrics"].get(name), chosen.metrics.get(name)
        return value / here if value and here and row["chip"] != own else None

    def does_it(row: Json) -> str:
        said = ["its own chip" if row["chip"] == own else "yes"]
        if not row["feasible"]:
            said = [f"no: {row['why_not']}"]
        elif row["efficiency"] != "fitted":
            said.append(f"efficiencies {row['efficiency']}")
        said += [f"bound by {row['bottleneck']}"] * row["feasible"]
        return "; ".join([*said, *filter(None, [row.get("note")])])

    reasons: dict[str, list[str]] = {}
    for row in found:
        if not row["metrics"]:
            reason = row["why_not"].removeprefix(row["chip"]).lstrip(": ").removeprefix("has ")
            reasons.setdefault(reason, []).append(row["chip"])
    why_not = "; ".join(f"{reason}: {', '.join(chips)}" for reason, chips in reasons.items())
    return Table.of(
        f"elsewhere-of-{chosen.item['point']}",
        capital(chosen.label),
        sorted((row for row in found if row["metrics"]), key=order),
        (
            Column("chip", "chip"),
            Column("usd_per_chip_hour", "USD per chip-hour", "chip_usd_per_hour"),
            *(
                Column(m, label(m).text, m, of=lambda row, m=m: row["metrics"].get(m))
                for m in names
            ),
            *(
                Column(
                    f"{m}_ratio",
                    f"{label(m).short}, × its own",
                    "rate",
                    of=lambda row, m=m: ratio(row, m),
                )
                for m in names
                if label(m).kind != "nats"
            ),
            Column("verdict", "does it?", of=does_it),
        ),
        notes=[f"Not evaluated: {why_not}."] if why_not else [],
    )


def compared(folder: StudyFolder, chosen: Chosen) -> list[Json]:
    """The objectives that differ from chip to chip; all where none does."""
    found = [row["metrics"] for row in chosen.detail["elsewhere"] if row["metrics"]]
    differing = [
        objective
        for objective in folder.objectives
        if len({metrics.get(objective["metric"]) for metrics in found}) > 1
    ]
    return differing or folder.objectives


def certainty(folder: StudyFolder, chosen: Chosen) -> Table:
    """What the main numbers of a chosen point rest on, and its distance to each limit."""
    metrics = chosen.metrics
    intervals, provenance = metrics.get("intervals", {}), metrics.get("provenance", {})
    near = "; ".join(sentence for sentence, _ in limits(folder, chosen.item))

    def interval(name: str) -> str | None:
        return span(name, intervals[name]) if name in intervals else None

    return Table.of(
        f"certainty-of-{chosen.item['point']}",
        capital(chosen.label),
        list(dict.fromkeys((*folder.wanted, *intervals))),
        (
            Column("metric", "metric", of=lambda name: label(name).text),
            Column("value", "predicted", right=True, of=lambda m: show(m, metrics.get(m))),
            Column("interval", "80% interval", right=True, of=interval),
            Column("kind", "kind", of=lambda name: provenance.get(name, "not stated")),
        ),
        notes=[f"Limits: {near}."] if near else [],
    )


def prices(study: Json) -> Table:
    """What an hour of each chip costs, and where the price is from."""
    return Table.of(
        "prices",
        f"Prices on the basis {study['price']['basis']}",
        study["price"]["rows"],
        (
            Column("chip", "chip"),
            Column("usd_per_chip_hour", "USD per chip-hour", "chip_usd_per_hour"),
            *_words("date", "rule", "note", "source"),
        ),
    )


def owned(study: Json) -> list[Table]:
    """What an hour of each chip is made of, and the inputs; none where chips are rented."""
    found = study["price"].get("breakdowns") or []
    if not found:
        return []
    inputs = {
        (name, row["text"]): {**row, "input": name}
        for one in found
        for row in one["inputs"]
        for name in (f"{one['chip']} {row['name']}" if row["of"] == "chip" else row["name"],)
    }
    columns = [Column("input", "input"), Column("text", "value")]
    columns += _words("kind", "date", "note", "source")
    return [
        replace(price_parts(found, "What an hour of a chip costs, by parts"), name="price-parts"),
        Table.of("price-inputs", "What it rests on", inputs.values(), columns),
    ]


def sources(study: Json) -> Table:
    """Every figure of a chip that the study used."""
    columns = _words("figure", "kind", "date", "source")
    return Table.of("sources", "Figures", study["sources"], columns)


def _words(*keys: str) -> list[Column]:
    """Columns of words that a row may lack."""
    return [Column(key, key, of=lambda row, key=key: row.get(key) or "") for key in keys]


def _trials(study: Mapping) -> str:
    """`3,355: 2,000 sample, 1,000 refused, 355 front`."""
    stages = [f"{count:,} {stage}" for stage, count in study.get("trials_by_stage", {}).items()]
    return f"{study['trials']:,}{': ' if stages else ''}{', '.join(stages)}"


def run_facts(study: Mapping) -> list[tuple[str, str]]:
    """What ran: space, engine, seed, versions, digest."""
    facts = [
        ("space", f"{study['space']}, {study['size']:,} designs"),
        ("engine", " – ".join(str(study[k]) for k in ("engine", "why_engine") if study.get(k))),
        ("evaluations", f"{study['evaluations']:,}"),
        ("trials recorded", _trials(study)),
        ("seed", str(study["seed"])),
        ("data digest", study["data_digest"]),
    ]
    if study.get("hypervolume") is not None:
        reference = ", ".join(f"{value:g}" for value in study.get("reference_point") or ())
        facts.append(("hypervolume", f"{study['hypervolume']:.6g}, reference point ({reference})"))
    if study.get("seconds"):
        times = ", ".join(f"{name} {value:.3g} s" for name, value in study["seconds"].items())
        facts.append(("time", times))
    facts.append(("versions", ", ".join(f"{k} {v}" for k, v in study["versions"].items())))
    return facts
