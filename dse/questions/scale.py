"""`dse.scale`: how large one instance should be, and what stops it.

The ceiling is the smallest size past which the lowest time per output token of one user falls by
less than 5% per doubling of the chips, to any larger size (at least twice as large) that was looked
at. Larger sizes may leave chips idle: the time at a size is the lowest of all sizes up to it.

An expert layer outgrows its domain where dispatch and combine, its two all-to-alls, leave it; the
slowdown compares with a domain that holds the whole group, all else equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dse import units
from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import columns_of, document, frame, lines, stacked
from dse.answer.numbers import dollars, plain, share, time
from dse.blocks.operators import Role
from dse.catalog import Catalog, load_catalog
from dse.economics.tco import with_basis
from dse.errors import InputError, NothingFeasible
from dse.options import CHIP, MODEL, Opt, Tokens
from dse.physics.machines import Machines, with_jitter
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.problem.instances import (
    DIVIDED,
    MEMORY,
    RATE,
    USD,
    Instances,
    Progress,
    Subject,
    batch_at,
    best_instances,
    best_pairs,
    decode_pool,
    division,
    prefill_pool,
    replication,
    subject_of,
    with_degrees,
)
from dse.problem.mix import Share, alone, load_row, one_load, served
from dse.questions.estimate.estimate import (
    check_needed,
    expert_axes,
    published_drafts,
    read_jitter,
)
from dse.questions.estimate.point import assumptions
from dse.schema.backend import KINDS, find_backend
from dse.schema.dtypes import known_dtypes
from dse.schema.metrics import Limit
from dse.schema.model import Model
from dse.schema.model_catalog import load_model
from dse.schema.reader import Field, Number, Text, Whole
from dse.schema.reader import Table as Fields
from dse.schema.workloads import FIELDS, PREFILL_FIELDS, ServedOrPooled, full, prefill_of
from dse.space.candidates import Floats
from dse.space.deployments import (
    Deployments,
    sizes_up_to,
    with_redundant_experts,
)

GAIN_PER_DOUBLING = 0.05  # below it, more chips are not worth their price to one user
JITTERS_S = (0.0, 1e-6, 3e-6, 10e-6, 30e-6, 100e-6, 300e-6)
# What `--set` takes.
SETTINGS = Fields(
    *FIELDS,
    *PREFILL_FIELDS,
    Field("routing_skew", Number(0, 10), None),
    Field("requests_per_chip", Whole(1, 100_000), 32),
    Field("price_basis", Text(), "rental_3yr"),
)
# Columns of a point, beyond its chip and chips, and those of the loads within the limits.
POINT = (*DIVIDED, "division", "concurrency", "tpot_s", "tpot_s.low", "tpot_s.high", "ttft_s")
POINT = (*POINT, "output_tokens_per_s", RATE, USD, "network_share", "bound", "bottleneck")
POINT = (*POINT, "memory_bytes_per_chip", "widest", "known")
SIZES = ("chips", "tpot_s", "division", "bound", "network_share", f"{RATE}.at_limits")
SIZES = (*SIZES, f"{USD}.at_limits", "division.at_limits", "concurrency.at_limits")
# How sentences of `assumptions` begin that concern no number here.
UNUSED = ("power is the chip's rated power",)


def scale(
    model: Annotated[str | Path | Mapping[str, Any] | Model | None, MODEL] = None,
    chip: Annotated[str | None, CHIP] = None,
    *,
    against: Annotated[str | None, Opt("Second chip, compared with the first.")] = None,
    chips_up_to: Annotated[int, Opt("Largest instance to look at.", least=1, most=4096)] = 512,
    demand: Annotated[
        int | None,
        Opt("Chips in total, for replicas (default: --chips-up-to).", least=1, most=10_000_000),
    ] = None,
    prompt_tokens: Tokens = 2048,
    output_tokens: Tokens = 512,
    tpot_limit: Annotated[str, Opt("Longest time per output token.", metavar="TIME")] = "50ms",
    ttft_limit: Annotated[str, Opt("Longest time to first token.", metavar="TIME")] = "2s",
    disaggregated: Annotated[bool, Opt("Also prefill and decode on separate pools.")] = False,
    jitter: Annotated[
        str | None, Opt("Mean delay of a chip in a collective, such as 10us.", metavar="TIME")
    ] = None,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Answer:
    """How large one instance should be on a chip, and what stops it.

    For every size of an instance: the lowest time per output token of one user, and the lowest cost
    within the limits, over all legal divisions.

        dse.scale("llama-3-70b", "h100_sxm", chips_up_to=64).to_html("scale.html")

    `model` is a catalog id, the path of a config.json, or what such a file says. `fields` are
    SETTINGS. Raises InputError for what cannot be read, NothingFeasible where the model fits no
    size.
    """
    check_needed(model, chip)
    assert model is not None
    extra = {name: fields.pop(name, None) for name in ("routing_skew", "requests_per_chip")}
    basis = fields.pop("price_basis", None) or "rental_3yr"
    flags = full({**fields, "disaggregated": disaggregated or None}, ServedOrPooled)
    known_dtypes(flags)
    found = load_model(model)
    degrees = prefill_of(flags, bool(found.experts))
    limits = {"tpot_s": _limit(tpot_limit, "tpot"), "ttft_s": _limit(ttft_limit, "ttft")}
    delay_s = 0.0 if jitter is None else read_jitter(jitter, "--jitter")
    catalog, chips = (catalog or load_catalog()).with_chips(filter(None, (chip, against)))
    if len(set(chips)) < len(chips):
        raise InputError(f"read {chips[1]!r} twice", field="--against", accepted="another chip")
    prefill_chip = ""
    if "chip" in degrees:
        catalog, prefill_chip = catalog.with_chip(degrees["chip"], "--set prefill_chip")
    catalog = with_basis(catalog, basis)
    expert_axes(found, flags | extra)
    if flags["draft_tokens"] and flags["acceptance"] is None:
        published_drafts(found, flags["draft_tokens"])

    def subject(name: str) -> Subject:
        made = subject_of(
            catalog,
            found,
            name,
            Workload.of(
                prompt_tokens,
                output_tokens,
                "continuous",
                find_backend(catalog.backends, flags["backend"] or catalog.chip(name).backend),
                prefix_hit_rate=flags["prefix_hit_rate"] or 0.0,
                **served(flags),
            ),
            weight_dtype=flags["weight_dtype"],
            kv_dtype=flags["kv_dtype"],
            price_basis=basis,
            deployment={
                "routing_skew": extra["routing_skew"],
                "draft_tokens": flags["draft_tokens"] or None,
            },
            redundant_experts=() if (copies := flags["redundant_experts"]) is None else (copies,),
        )
        return replace(made, machines=with_jitter(made.machines, delay_s)) if delay_s else made

    most, requests = demand or chips_up_to, extra["requests_per_chip"] or 32
    answers = [
        _OneChip(subject(name), chips_up_to, most, limits, requests, progress) for name in chips
    ]
    frames = [
        _of_chips(answers),
        _stacked(
            "sizes",
            f"One instance by its size, up to {_chips(chips_up_to)}: one user, and within limits",
            answers,
            shown=SIZES,
            notes=[note for one in answers for note in one.notes()],
        ),
        _stacked("replication", f"{_chips(most)} in total", answers, "replicas", REPLICAS),
        _stacked("experts", f"Experts over more chips, {requests} requests per chip", answers),
        _stacked("jitter", "Largest useful collective by jitter, one user", answers),
    ]
    if disaggregated:
        for one in answers:
            first = subject(prefill_chip or one.subject.chip)
            one.pools = _pools(first, one, degrees)
        frames.insert(3, _stacked("pools", "Prefill and decode on separate pools", answers))
    frames = [one for one in frames if one.rows]
    load = one_load([load_row(Share("", 1.0, answers[0].subject.workload))])
    assert load is not None
    sentences = [one.headline() for one in answers]
    sentences += [text for one in answers for text in one.sentences()]
    assumed = list(dict.fromkeys(text for one in answers for text in one.assumed()))
    facts = {
        "model": found.name,
        "workload": load,
        "price_basis": basis,
        "limits": limits,
        "chips_up_to": chips_up_to,
        "demand_chips": most,
        "requests_per_chip": requests,
        "answer": sentences,
        "assumed": assumed,
    }
    return Answer(
        question="scale",
        title=f"Scale up or scale out: {found.name}",
        asked=(
            f"{found.name}, {prompt_tokens:,} prompt and {output_tokens:,} output tokens, backend "
            f"{load['backend']}; limits: {time(limits['tpot_s'])} per token and "
            f"{time(limits['ttft_s'])} to the first; prices: {basis}"
        ),
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*_pictures(frames[1], answers), *frames),
        rests=assumed,
        document=document(facts, frames),
        data=(frames[1],),
        names=catalog.names,
    )


def _limit(written: str, name: str) -> float:
    seconds = units.parse(written, "s", field=f"--{name}-limit")
    if seconds == 0.0:
        message = f"read {written!r}"
        raise InputError(message, field=f"--{name}-limit", accepted="a time above 0")
    return seconds


class _OneChip:
    """Every question for one chip: tables of `dse.space.deployments` under keys of the vocabulary.
    `at` is the ceiling, or the fastest size where none shows, and `best` the size past which
    replication wins (None where no size keeps the limits). Raises NothingFeasible where the model
    fits no size."""

    def __init__(
        self,
        subject: Subject,
        chips_up_to: int,
        demand: int,
        limits: Mapping[str, float],
        requests_per_chip: int,
        progress: Progress,
    ) -> None:
        self.subject, self.demand, self.limits = subject, demand, limits
        kept = {f"{name.removesuffix('_s')}_limit_s": value for name, value in limits.items()}

        def instances(machines: Machines | None = None, **more: Any) -> Instances:
            return best_instances(
                subject, chips_up_to=chips_up_to, machines=machines, **kept, **more
            )

        self.instances = instances(progress=progress)
        self.ceiling = ceiling(self.instances.alone)
        self.at = self.ceiling["ceiling_chips"] or self.ceiling["fastest_chips"]
        self.replicas, self.best = replication(subject, self.instances.within, demand)
        self.experts = experts(subject, chips_up_to, requests_per_chip)
        rows = []
        for jitter_s in JITTERS_S:
            progress(f"{subject.chip}: jitter of {1e6 * jitter_s:g} us")
            machines = with_jitter(subject.machines, jitter_s)
            limit = ceiling(instances(machines, single_only=True).alone)
            rows.append({"jitter_s": jitter_s, **limit})
        self.jitter = columns_of(rows)
        self.pools: Mapping[str, Any] = {}

    @property
    def sizes(self) -> dict[str, Any]:
        """Every size: one user, and within the limits the most tokens per chip."""
        found, sizes = self.instances, self.instances.sizes
        columns: dict[str, Any] = {
            "chips": sizes,
            "crosses_domain": [size > self.subject.domain for size in sizes],
            "choices": [found.choices.get(size, 0) for size in sizes],
            "reason": [found.why_not.get(n) or found.why_late.get(n) for n in sizes],
        }
        for suffix, table in (("", found.alone), (".at_limits", found.within)):
            place = {chips: row for row, chips in enumerate(table.chips.tolist())}
            rows = [place.get(size) for size in sizes] if place else [None] * len(sizes)
            for key in POINT:
                cells = table[key].tolist() if place else []
                columns[key + suffix] = [None if k is None else cells[k] for k in rows]
        return columns

    @property
    def interval(self) -> tuple[float, float]:
        """The 80% interval of one user's time per token at the ceiling."""
        table = self.instances.alone
        k = int(np.flatnonzero(table.chips == self.at)[0])
        return float(table["tpot_s.low"][k]), float(table["tpot_s.high"][k])

    def row(self, chips: int) -> Mapping[str, Any]:
        """The replicas of one size; nothing where there are none."""
        rows = np.flatnonzero(np.asarray(self.replicas.get("chips", ())) == chips)
        return {key: values[rows[0]] for key, values in self.replicas.items()} if len(rows) else {}

    def notes(self) -> list[str]:
        """Where the scale-up domain ends, why the largest size that does not run fails, and what
        the size with the most output a chip leaves idle."""
        chip, reasons = self.subject.chip, self.instances.why_not
        notes = [f"Sizes above {self.subject.domain} leave the scale-up domain of {chip}."]
        if reasons:
            notes.append(f"{_chips(max(reasons))} of {chip}: {reasons[max(reasons)]}.")
        within = self.instances.within
        if self.best is not None:
            most = int(within.chips[np.argmax(within[RATE])])
            if idle := self.demand % most if self.best < most <= self.demand else 0:
                notes.append(
                    f"An instance of {most} gives most a chip, but {idle} of {self.demand} chips, "
                    "paid for, would be idle."
                )
        return notes

    def headline(self) -> str:
        """How far to scale up, and what replicas then give."""
        top, model, chip = self.ceiling, self.subject.model.name, self.subject.chip
        gains = f"gains up to {_chips(self.at)} in one instance"
        if len(self.instances.alone) == 1:
            gains = f"runs on {_chips(self.at)}, the only size looked at that can"
        elif top["ceiling_chips"] == 1:
            gains = "gains nothing beyond 1 chip"
        elif top["ceiling_chips"] is None:
            gains = f"is served fastest by {_chips(self.at)}, no ceiling in sight"
        low, high = map(time, self.interval)
        said = f"{model} on {chip}: one user {gains} ({time(top['tpot_s'])} per output token, "
        said += f"80% interval {low} to {high})"
        if self.best is None:
            return f"{said}; no instance keeps the limits."
        if self.best > self.demand:
            return f"{said}; replication wins from {self.best} chips on, beyond {self.demand}."
        if self.best == self.demand:
            return f"{said}; no size gives more tokens per chip within the limits than all chips."
        best = self.row(self.best)
        said += (
            f"; past {_chips(self.best)} replication wins: {self.demand} chips as "
            f"{best['replicas']} x {self.best} give {plain(best['output_tokens_per_s'])} output "
            "tokens/s"
        )
        whole = self.row(self.demand)
        if whole:
            factor = best["output_tokens_per_s"] / whole["output_tokens_per_s"]
            said += f", {plain(factor)} x one instance of {self.demand}"
        if math.isnan(best[USD]):
            return f"{said}."
        instead = f" instead of {dollars(whole[USD])}" if whole else ""
        return f"{said}, at {dollars(best[USD])}{instead} per million tokens."

    def sentences(self) -> list[str]:
        """What is behind it: why nothing keeps the limits, the all-to-all, the pools."""
        chip, found = self.subject.chip, []
        if self.best is None:
            last = int(self.instances.alone.chips[-1])
            found.append(
                f"No instance of {chip} keeps {time(self.limits['tpot_s'])} per token and "
                f"{time(self.limits['ttft_s'])} to the first: on {_chips(last)}, "
                f"{self.instances.why_late[last]}."
            )
        if self.pools:
            k = int(np.argmax(self.pools[RATE]))
            shares = zip(self.pools["chips"], self.pools["of_best"], strict=True)
            better = [n for n, of_best in shares if of_best > 1.0]
            found.append(
                f"Separate pools on {chip} are "
                f"{f'better from {min(better)} chips on' if better else 'never better here'}; the "
                f"best give {plain(self.pools[RATE][k])} output tokens/s per chip on "
                f"{self.pools['used_chips'][k]} chips."
            )
        domain = self.subject.domain
        across = [k for k, n in enumerate(self.experts.get("domains", ())) if n > 1]
        across = [k for k in across if self.experts["fits"][k]]
        if across:
            k = across[0]
            found.append(
                f"Experts outgrow the domain of {domain} {chip}: over "
                f"{self.experts['expert_parallel'][k]} chips their all-to-all takes "
                f"{plain(self.experts['slowdown'][k])} x as long as in one domain, "
                f"{share(self.experts['all_to_all_share'][k])} of the step."
            )
        return found

    def assumed(self) -> list[str]:
        """What the rows rest on beyond sourced figures, a sentence each."""
        subject, tables = self.subject, (self.instances.alone, self.instances.within)
        rows = [(t, k) for t in tables for k in range(len(t))]
        widest, k = max(rows, key=lambda at: int(at[0].group[at[1]]))
        deployment = {
            "chip": subject.chip,
            "tensor_parallel": int(widest["tensor_parallel"][k]),
            "data_parallel": int(widest["data_parallel"][k]),
            **({} if subject.one.routing_skew is None else {"routing_skew": True}),
        }
        worst = max(KINDS.index(t["known"][k]) for t, k in rows)
        known = assumptions(
            *(subject.catalog, subject.model, deployment, alone(subject.workload)),
            *(worst, subject.price_basis),
        )
        return [
            *(text for text in known if not text.startswith(UNUSED)),
            "jitter is an input: no public percentiles of collective times were found",
            "the backend's cap on running requests, a setting, is lifted for instances of any size",
            "one request on an instance with attention data parallelism is counted with idle ranks "
            "that take part in its steps as if busy",
        ]


def ceiling(table: Deployments) -> dict[str, Any]:
    """Where more chips stop helping one user, from `Instances.alone`: the ceiling (None where the
    sizes end before one shows) and its time, the fastest size, the smallest that runs, what bounds
    the fastest, the chips that meet in the collectives of a layer at the lowest time up to the
    ceiling."""
    chips, tpot_s = table.chips, table["tpot_s"]
    lowest = np.minimum.accumulate(tpot_s)
    with np.errstate(divide="ignore"):
        doublings = np.log2(chips[None, :] / chips[:, None])
    larger = chips[None, :] >= 2 * chips[:, None]
    flat = lowest[None, :] / lowest[:, None] > (1.0 - GAIN_PER_DOUBLING) ** doublings
    ends = np.flatnonzero(larger.any(axis=1) & (flat | ~larger).all(axis=1))
    at = int(ends[0]) if len(ends) else None
    best = int(np.argmin(tpot_s))
    used = best if at is None else int(np.argmin(tpot_s[: at + 1]))
    return {
        "ceiling_chips": None if at is None else int(chips[at]),
        "tpot_s": float(lowest[best if at is None else at]),
        "fastest_chips": int(chips[best]),
        "tpot_s.fastest": float(tpot_s[best]),
        "smallest_chips": int(chips[0]),
        "tpot_s.smallest": float(tpot_s[0]),
        "bound": table["bound"][best],
        "network_share": float(table["network_share"][best]),
        "group_chips": int(table["tensor_parallel"][used] * table["data_parallel"][used]),
        "speedup": float(tpot_s[0] / tpot_s[best]),
    }


REPLICAS = ("replicas", "chips", "idle_chips", "concurrency", "output_tokens_per_s", "of_best")
REPLICAS = (*REPLICAS, USD, "tpot_s", "ttft_s")


def experts(subject: Subject, chips_up_to: int, requests_per_chip: int) -> Mapping[str, Any]:
    """One decode step for each expert parallelism up to `chips_up_to` chips, each an attention rank
    with `requests_per_chip` requests at context prompt + output / 2, with the copies of busy
    experts that make the step shorter; what the all-to-alls and the step would take in a domain
    that holds the group. Nothing for a model without experts."""
    if not subject.experts:
        return {}
    sizes = sizes_up_to(subject.domain, chips_up_to)
    linked = [size for size in sizes if subject.catalog.refusal(subject.chip, size) is None]
    groups = Deployments.of(expert_parallel=linked)
    groups = groups.with_columns(data_parallel=groups["expert_parallel"])
    groups = with_redundant_experts(groups, subject.experts)
    static = replace(subject, workload=replace(subject.workload, serving="static"))
    batch = batch_at(static, groups, groups.chips * requests_per_chip)
    here, undivided = (
        evaluate(batch, static.workload, machines, keep=True)
        for machines in (subject.machines, one_domain(subject.machines))
    )
    exchange = (Role.DISPATCH, Role.COMBINE)
    moved, moved_inside = (operators_s(metrics, exchange) for metrics in (here, undivided))
    step, fits = here.values["decode_step_s"], here.violations[MEMORY] <= 0.0
    order = np.lexsort((step, ~fits, groups["expert_parallel"]))
    rows = order[np.unique(groups["expert_parallel"][order], return_index=True)[1]]
    with np.errstate(divide="ignore", invalid="ignore"):
        slowdown = np.where(moved_inside > 0.0, moved / moved_inside, np.nan)
    columns = {
        "expert_parallel": groups["expert_parallel"],
        "redundant_experts": groups["redundant_experts"],
        "domains": -(-groups["expert_parallel"] // subject.domain),
        "decode_step_s": step,
        "experts_s": operators_s(here, (Role.EXPERTS,)),
        "all_to_all_s": moved,
        "all_to_all_share": moved / step,
        "slowdown": slowdown,
        "all_to_all_one_domain_s": moved_inside,
        "decode_step_one_domain_s": undivided.values["decode_step_s"],
        RATE: requests_per_chip / step,
        "fits": fits,
    }
    return {key: values[rows] for key, values in columns.items()}


def operators_s(metrics: Metrics, roles: Sequence[Role]) -> Floats:
    """(n,) seconds of the operators of these roles in one decode step; evaluated with `keep`."""
    total = np.zeros(len(metrics.provenance))
    for entry in metrics.performance.detail.decode_ledger.entries or ():
        if entry.role in roles:
            total = total + entry.seconds
    return total


def one_domain(machines: Machines) -> Machines:
    """The same chips in a scale-up domain that holds any group, whose collectives are those of the
    largest group of the real one (only their share of bytes grows)."""
    fabric = machines.fabric
    endless = np.full_like(fabric.domain, np.inf)
    return replace(machines, fabric=replace(fabric, domain=endless, networks=()))


def _pools(first: Subject, one: _OneChip, degrees: Mapping[str, Any]) -> Mapping[str, Any]:
    """The best pair of pools within the limits for each size that two pools fit, prefill workers on
    `first` with these degrees; `of_best` is output per chip over that of the best single pool.
    Raises NothingFeasible where no two workers keep the limits."""
    limits = [Limit(key, "<=", one.limits[key], key[:4]) for key in ("ttft_s", "tpot_s")]
    second, within = one.subject, one.instances.within
    chips = list(one.instances.sizes)
    before = prefill_pool(first, with_degrees(first.divided(chips), degrees), limits)
    after = decode_pool(second, second.divided(chips), limits)
    rows = []
    for size, pair in zip(chips, best_pairs(before, after, chips, limits), strict=True):
        if pair is None:
            continue
        rate = pair["output_tokens_per_s"] / pair["chips"]
        single = max(within[RATE][within.chips <= size], default=0.0) if len(within) else 0.0
        before_row, after_row = (np.array([pair[pool]]) for pool in ("prefill", "decode"))
        rows.append(
            {
                "chips": size,
                "used_chips": pair["chips"],
                "prefill_workers": pair["prefill_workers"],
                "prefill_division": division(before.table.take(before_row))[0],
                "decode_workers": pair["decode_workers"],
                "decode_division": division(after.table.take(after_row))[0],
                **{key: pair[key] for key in ("concurrency", "tpot_s", "ttft_s", USD)},
                RATE: rate,
                "of_best": rate / single if single else math.nan,
            }
        )
    if not rows:
        raise NothingFeasible(
            f"no prefill worker on {first.chip} and decode worker on {second.chip} keep the limits "
            f"together on {chips[-1]} chips or fewer; other degrees, limits or --chips-up-to may"
        )
    return columns_of(rows)


def _stacked(
    name: str,
    caption: str,
    answers: Sequence[_OneChip],
    attribute: str = "",
    shown: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Table:
    """The rows of every chip under each other."""
    parts = [(one.subject.chip, getattr(one, attribute or name)) for one in answers]
    columns = stacked("chip", parts)
    shown = shown or [key for key in columns if key != "chip"]
    shown = (*(("chip",) if len(answers) > 1 else ()), *shown)
    on_console = name in ("sizes", "pools", "replication")
    return frame(name, caption, columns, *notes, shown=shown, on_console=on_console)


def _of_chips(answers: Sequence[_OneChip]) -> Table:
    """How far to scale up each chip."""
    rows = [
        {"chip": one.subject.chip, **one.ceiling, "scale_up_chips": one.subject.domain}
        | {"replica_chips": one.best, USD: one.row(one.best or 0).get(USD)}
        for one in answers
    ]
    shown = ("chip", "ceiling_chips", "tpot_s", "replica_chips", USD)
    return frame("chips", "How far to scale up", columns_of(rows), shown=shown, first=shown)


def _pictures(sizes: Table, answers: Sequence[_OneChip]) -> list[Figure]:
    """Latency of one user by size, and cost within the limits."""
    ends = [one.subject.domain for one in answers]
    note = "A dashed line ends the scale-up domain, a ring marks the ceiling."
    latency = lines(
        *("latency", "Latency of one user", sizes, "chips", "tpot_s", "chip"),
        f"Time per output token of one user by the chips of one instance. {note}",
        at=ends,
        hover=("division", "bound", "network_share"),
        interval=len(answers) == 1,
    )
    tops = [(one.ceiling["ceiling_chips"], one.ceiling["tpot_s"]) for one in answers]
    tops = [(chips, 1e3 * seconds) for chips, seconds in tops if chips]
    ring = {"symbol": "circle-open", "size": 20, "color": "ink", "line": {"width": 2}}
    ceilings = {"type": "scatter", "mode": "markers", "name": "ceiling", "marker": ring}
    ceilings |= dict(zip(("x", "y"), map(list, zip(*tops, strict=True)), strict=False))
    if tops:
        latency.plotly["data"].append(ceilings)
    if all(value is None for value in sizes[f"{USD}.at_limits"]):
        return [latency]
    cost = lines(
        *("cost", "Cost within the limits", sizes, "chips", f"{USD}.at_limits", "chip"),
        "The lowest cost within the limits by the chips of one instance.",
        at=ends,
        hover=("division.at_limits", "concurrency.at_limits"),
    )
    return [latency, cost]


def _chips(count: int) -> str:
    return "1 chip" if count == 1 else f"{count} chips"
