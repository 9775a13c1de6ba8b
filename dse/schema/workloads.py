"""The workload of a space file, or several with weights; and how one deployment serves, alike in
every verb."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, get_args

from dse.errors import InputError
from dse.schema.axes import DEGREES
from dse.schema.backend import TUNINGS
from dse.schema.catalog import Catalog
from dse.schema.loader import Document, did_you_mean
from dse.schema.model_catalog import resolve_model
from dse.schema.reader import (
    Field,
    Listed,
    Mistakes,
    Number,
    Raw,
    Schema,
    Text,
    Whole,
    Word,
    field,
    gathered,
)

# What a backend is called where none is meant in particular.
CURRENT_BACKEND = "generic"


Serving = Literal["continuous", "static", "offline", "poisson"]
# How requests are served, said alike of a workload of a space and of a class of a plan.
SERVED = (
    Field("acceptance", Number(0, 1), None, meaning="of a drafted token"),
    Field("prefix_hit_rate", Number(0, below=1), None, meaning="share of the prompt cached"),
    Field("network_overlap", Number(0, 1), None, meaning="collectives behind arithmetic"),
    Field("max_running_requests", Whole(1, 10**6), None, meaning="at once on an attention rank"),
    Field("tuning", Word(TUNINGS), None, meaning="how the serving software was launched"),
)
_DETAILS = (
    Field("requests_per_second", Number(above=0, most=1e9), None, meaning="of serving poisson"),
    Field("draft_tokens", Whole(1, 64), None, meaning="drafted for one step"),
    *SERVED,
)
# What a workload may say besides, and None where it does not.
DETAILS = tuple(one.name for one in _DETAILS)


class WorkloadSpec(Schema, kw_only=True):
    """What a study's requests are: tokens of one, how they arrive, and the id of the serving
    backend; how much of them comes in all is its `schema.traffic.Demand`. Of several
    workloads, each has a name, and `weight` is its share of the requests: they sum to 1, and are
    those of the rates where requests arrive at random. `details`
    holds what was written of DETAILS."""

    title: str = field(Text(), default="")
    prompt_tokens: int = field(Whole(above=0, most=10**8))
    output_tokens: int = field(Whole(above=0, most=10**8))
    serving: Serving = field(Word(get_args(Serving)))
    backend: str = field(Text(), default="current")
    details: Mapping[str, Any] = gathered(*_DETAILS, default={})
    name: str = ""
    weight: float | None = 1.0
    constraints: Any = ()

    def row(self) -> dict[str, Any]:
        """As study.json holds it (`dse.problem.mix`)."""
        names = ("prompt_tokens", "output_tokens", "serving", "backend", "name", "weight")
        return {name: getattr(self, name) for name in names} | dict(self.details)


class WeightedWorkload(WorkloadSpec, kw_only=True):
    """One of several. Where requests arrive at a rate, it gives the weight."""

    name: str = field(Text(1, 40))
    weight: float | None = field(Number(1e-9, 1e9), default=None)
    constraints: Any = field(Raw(), default=())


# Metrics of requests that arrive at random.
_OF_ARRIVALS = ("ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "utilisation")


def has_metric(serving: str, metric: str) -> bool:
    """Whether the metric means something where requests are served so."""
    if metric in _OF_ARRIVALS:
        return serving == "poisson"
    return serving != "offline" or metric != "ttft_s"


def check_details(serving: str, details: Mapping[str, Any], *, drafting: bool = False) -> None:
    """Raises InputError where details lack each other or the arrivals that they are for;
    `drafting` where the deployment says how many tokens are drafted."""
    if (serving == "poisson") != ("requests_per_second" in details):
        rate = details.get("requests_per_second", "missing")
        raise InputError(
            f"serving is {serving}, requests_per_second {rate}",
            field="requests_per_second",
            accepted="both serving poisson and a rate, or neither",
        )
    drafts = {"draft_tokens", "acceptance"} & set(details)
    if drafting and "draft_tokens" in drafts:
        raise InputError(
            "the deployment says it, too",
            field="draft_tokens",
            accepted="draft_tokens in the workload or in the deployment",
        )
    if len(drafts) == 1 and not drafting:
        raise InputError(
            f"read {drafts.pop()} alone",
            field="draft_tokens",
            accepted="draft_tokens and acceptance together",
        )


def is_open(document: Document) -> bool:
    """Whether the workloads of a space name no serving software."""
    several = document.data.get("workloads")
    loads = several if isinstance(several, list) else [document.data.get("workload")]
    written = [load.get("backend", "current") for load in loads if isinstance(load, Mapping)]
    return all(one == "current" for one in written)


def read_workloads(
    files: Sequence[WorkloadSpec] | None, document: Document, catalog: Catalog, mistakes: Mistakes
) -> tuple[WorkloadSpec, ...]:
    """The workloads of a space, weights scaled to a sum of 1. What is wrong goes to `mistakes`;
    `files` is None where the file could not be read as a whole."""
    both = "workload" in document.data and "workloads" in document.data
    if both or files == []:
        accepted = "one of workload: {...} and workloads: [{name: chat, weight: 0.7, ...}, ...]"
        said = "both workload and workloads" if both else "no workload"
        mistakes.add(("workloads",), said, accepted)
    if both or not files:
        return ()
    weights = _shares(files, mistakes)
    written = document.data.get("deployment")
    deployment = written if isinstance(written, Mapping) else {}
    parts = (deployment, deployment.get("decode"))
    drafting = any("draft_tokens" in part for part in parts if isinstance(part, Mapping))
    specs: list[WorkloadSpec] = []
    for k, file in enumerate(files):
        name, path = file.name, ("workloads", k) if file.name else ("workload",)
        backend = CURRENT_BACKEND if file.backend == "current" else file.backend
        if backend not in catalog.backends:
            known = sorted([*catalog.backends, "current"])
            message = f"unknown backend {backend!r}{did_you_mean(backend, known)}"
            mistakes.add((*path, "backend"), message, ", ".join(known))
        elif specs and backend != specs[0].backend:
            message = f"{name!r} has backend {backend}, {specs[0].name!r} {specs[0].backend}"
            mistakes.add((*path, "backend"), message, "one backend: one deployment serves them all")
        if name in (spec.name for spec in specs):
            mistakes.add((*path, "name"), f"{name!r} is the name of two workloads", "two names")
        try:
            check_details(file.serving, file.details, drafting=drafting)
        except InputError as error:
            mistakes.add((*path, str(error.field)), error.message, str(error.accepted))
        held = deployment.get("concurrency")
        if file.serving == "poisson" and held != 1:
            message = "requests arrive at a rate: their number in flight follows"
            mistakes.add(("deployment", "concurrency"), message, "concurrency: 1")
        specs.append(replace(file, backend=backend, weight=weights[k]))
    return tuple(specs)


def check_acceptance(
    workloads: Sequence[WorkloadSpec], model: str | None, mistakes: Mistakes
) -> None:
    """Of a space with draft_tokens as an axis: what share of them is accepted must be known."""
    told = all("acceptance" in load.details for load in workloads)
    if not told and (model is None or not resolve_model(model).drafts):
        message = "no figure for the model: what share of drafted tokens is accepted"
        mistakes.add(("deployment", "draft_tokens"), message, "acceptance in the workload")


def _shares(files: Sequence[WorkloadSpec], mistakes: Mistakes) -> list[float]:
    """The share of the requests of each: its rate over that of all where they arrive at random,
    else its weight over the sum. Weights beside rates must agree with them."""
    several = [file for file in files if file.name]
    if not several:
        return [1.0]
    poisson = [file.serving == "poisson" for file in several]
    if any(poisson) and not all(poisson):
        k = poisson.index(False)
        message = f"{several[k].name!r} is {several[k].serving}, another workload poisson"
        mistakes.add(("workloads", k, "serving"), message, "poisson for all workloads or for none")
    written = [file.weight or 0.0 for file in several]
    if not all(poisson):
        for k, weight in enumerate(written):
            if not weight:
                accepted = "its share of the requests, such as 0.7"
                mistakes.add(("workloads", k, "weight"), "missing", accepted)
        return _over_their_sum(written)
    shares = _over_their_sum([file.details.get("requests_per_second", 0.0) for file in several])
    for k, (weight, share) in enumerate(zip(_over_their_sum(written), shares, strict=True)):
        if any(written) and not math.isclose(weight, share, rel_tol=1e-3):
            message = f"weight is {weight:.4g} of all, its rate {share:.4g} of the requests"
            accepted = "no weight: it follows from requests_per_second"
            mistakes.add(("workloads", k, "weight"), message, accepted)
    return shares


def _over_their_sum(parts: Sequence[float]) -> list[float]:
    total = math.fsum(parts) or 1.0
    return [part / total for part in parts]


def workload_content(workloads: Sequence[WorkloadSpec]) -> dict[str, Any]:
    """What of the workloads decides a result: not their names."""
    rows = []
    for w in workloads:
        details = [dict(w.details)] if w.details else []
        rows.append([w.prompt_tokens, w.output_tokens, w.serving, w.backend, *details])
    if len(workloads) == 1:
        return {"workload": rows[0]}
    return {"workloads": [[w.weight, *row] for w, row in zip(workloads, rows, strict=True)]}


def load_words(load: Mapping[str, Any]) -> str:
    """`1,024 prompt and 512 output tokens, continuous serving`."""
    return (
        f"{load['prompt_tokens']:,.0f} prompt and {load['output_tokens']:,.0f} output tokens, "
        f"{_arrivals(load)}{_savings(load)}"
    )


def _arrivals(load: Mapping[str, Any]) -> str:
    if "requests_per_second" in load:
        return f"{load['requests_per_second']:g} requests a second at random"
    return f"{load['serving']} serving"


def _savings(load: Mapping[str, Any]) -> str:
    """Drafts and cached prefixes, where there are any."""
    words = ""
    if "draft_tokens" in load:
        words += f", {load['draft_tokens']:g} drafted tokens accepted at {load['acceptance']:g}"
    if "prefix_hit_rate" in load:
        words += f", {load['prefix_hit_rate']:.0%} of prompts cached"
    if "network_overlap" in load:
        words += f", {load['network_overlap']:.0%} of network overlapped"
    if "tuning" in load:
        words += f", a {load['tuning']} launch"
    return words


def mix_words(loads: Sequence[Mapping[str, Any]]) -> str:
    """`70% chat (1,000 prompt and 250 output tokens, continuous serving), ..., by requests`."""
    parts = [f"{load['weight'] * 100:.3g}% {load['name']} ({load_words(load)})" for load in loads]
    return f"{', '.join(parts)}, by requests"


# What a call says of how a model is deployed and served: the arguments that `dse.estimate`,
# `dse.fleet`, `dse.scale` and `dse.space_of_model` share, under the names of a space and a plan.


class _Software(TypedDict, total=False):
    acceptance: float | None
    prefix_hit_rate: float | None
    network_overlap: float | None
    max_running_requests: int | None
    tuning: str | None
    backend: str | None


class Served(_Software, total=False):
    """Of one deployment. What is None is as `dse estimate --help` says."""

    weight_dtype: str | None
    kv_dtype: str | None
    draft_tokens: int | None
    redundant_experts: int | None


class _Pooled(TypedDict, total=False):
    disaggregated: bool | None
    prefill_chip: str | None
    prefill_tp: int | None
    prefill_pp: int | None
    prefill_dp: int | None
    prefill_ep: int | None


class ServedOrPooled(Served, _Pooled, total=False):
    """The same with `disaggregated`, prefill and decode on pools of their own, too; what of a
    worker of prefill is None is looked for."""


class Choices(_Software, _Pooled, total=False):
    """The same where formats, drafts and copies of experts may be several, to choose from."""

    weight_dtype: str | Sequence[str] | None
    kv_dtype: str | Sequence[str] | None
    draft_tokens: int | Sequence[int] | None
    redundant_experts: int | Sequence[int] | None


def full(given: Mapping[str, Any], of: type) -> dict[str, Any]:
    """Every argument of `of`, None where it is not given. Raises TypeError for one that it has
    not, as Python does."""
    names = of.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    return dict.fromkeys(names) | dict(given)


DEGREE = Whole(1, 100_000)
# What `--set` takes of one deployment, where options leave it out. None: as the software does.
FIELDS = (
    Field("weight_dtype", Text(), None),
    Field("kv_dtype", Text(), None),
    Field("draft_tokens", Whole(0, 64), None),
    Field("redundant_experts", Whole(0, 100_000), None),
    *SERVED,
    Field("backend", Text(), None),
)
# The same where formats, drafts and copies of experts may be several, to choose from.
CHOICE_FIELDS = (
    *(Field(one.name, Listed(one.kind, one=True), None) for one in FIELDS[:4]),
    *FIELDS[4:],
)
# The same of the prefill workers, on a pool of their own.
PREFILL_FIELDS = (
    Field("prefill_chip", Text(), None),
    *(Field(f"prefill_{degree}", DEGREE, None) for degree in DEGREES),
)

NO_EXPERTS = "the model has no experts"
_PREFILL = {f"prefill_{flag}": axis for flag, axis in {"chip": "chip", **DEGREES}.items()}
# Lines of a space or a plan that is made from arguments, as options.
OPTIONS = {f"prefill.{axis}": f"--{flag.replace('_', '-')}" for flag, axis in _PREFILL.items()}


def prefill_of(flags: Mapping[str, Any], experts: bool = True) -> dict[str, Any]:
    """The axes of a prefill worker that are given. Raises InputError for one where prefill and
    decode are not `disaggregated`, and for expert parallelism of a model without `experts`."""
    given = [flag for flag in _PREFILL if flags[flag] is not None]
    if given and not flags["disaggregated"]:
        option = OPTIONS[f"prefill.{_PREFILL[given[0]]}"]
        raise InputError("given for one pool", field=option, accepted="also --disaggregated")
    if not experts and (flags["prefill_ep"] or 1) > 1:
        raise InputError(NO_EXPERTS, field="--prefill-ep", accepted="no such flag")
    return {_PREFILL[flag]: flags[flag] for flag in given}
