"""The workload of a space file, or several with weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.specs.axis_reader import Mistakes
from dse.specs.catalog import Catalog
from dse.specs.loader import Document, did_you_mean, load_yaml, reject, validate

# What a backend is called where none is meant in particular.
CURRENT_BACKEND = "generic"


Serving = Literal["continuous", "static", "offline", "poisson"]
# What a workload may say besides, and None where it does not.
DETAILS = ("requests_per_second", "draft_tokens", "acceptance", "draft_share", "prefix_hit_rate")


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """Tokens of one request, how requests arrive, and the id of the serving backend. Of several
    workloads, each has a name, and `weight` is its share of the requests: they sum to 1. `details`
    holds what was written of DETAILS."""

    prompt_tokens: int
    output_tokens: int
    serving: Serving
    backend: str
    name: str = ""
    weight: float = 1.0
    details: Mapping[str, float] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """As study.json holds it (`dse.study.loads`)."""
        plain = asdict(self)
        return {**plain, **plain.pop("details")}


def check_details(serving: str, details: Mapping[str, float]) -> None:
    """Raises InputError where details lack each other or the arrivals that they are for."""
    if (serving == "poisson") != ("requests_per_second" in details):
        rate = details.get("requests_per_second", "missing")
        raise InputError(
            f"serving is {serving}, requests_per_second {rate}",
            field="requests_per_second",
            accepted="both serving poisson and a rate, or neither",
        )
    drafts = {"draft_tokens", "acceptance", "draft_share"} & set(details)
    if drafts and not drafts >= {"draft_tokens", "acceptance"}:
        raise InputError(
            f"read {', '.join(sorted(drafts))} alone",
            field="draft_tokens",
            accepted="draft_tokens and acceptance together; draft_share with them",
        )


class WorkloadFile(BaseModel):
    """`workload` of a space file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    prompt_tokens: int = Field(gt=0, le=10**8, strict=True)
    output_tokens: int = Field(gt=0, le=10**8, strict=True)
    serving: Serving
    backend: str = "current"
    requests_per_second: float | None = Field(default=None, gt=0, le=1e9)
    draft_tokens: int | None = Field(default=None, ge=1, le=64, strict=True)
    acceptance: float | None = Field(default=None, ge=0, le=1)
    draft_share: float | None = Field(default=None, ge=0, le=10)
    prefix_hit_rate: float | None = Field(default=None, ge=0, lt=1)

    def details(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in DETAILS if getattr(self, name) is not None}


class WeightedFile(WorkloadFile):
    """One of its `workloads`."""

    name: str = Field(min_length=1, max_length=40)
    weight: float = Field(gt=0, allow_inf_nan=False, strict=True)
    constraints: Any = ()


def _named_workload(written: Any) -> Any:
    """The content of a shipped workload where its name is written."""
    if not isinstance(written, str):
        return written
    folder = search_spaces_dir() / "workloads"
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if written not in known:
        message = f"unknown workload{did_you_mean(written, known)}"
        raise reject(message, ", ".join([*known, "or prompt_tokens, output_tokens, serving"]))
    return validate(WorkloadFile, load_yaml(known[written]))


NamedWorkload = Annotated[WorkloadFile, BeforeValidator(_named_workload)]


def read_workloads(
    files: Sequence[WorkloadFile] | None,
    document: Document,
    catalog: Catalog,
    mistakes: Mistakes,
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
    weights = [file.weight if isinstance(file, WeightedFile) else 1.0 for file in files]
    total = math.fsum(weights)
    specs: list[WorkloadSpec] = []
    for k, file in enumerate(files):
        several = isinstance(file, WeightedFile)
        name, path = (file.name, ("workloads", k)) if several else ("", ("workload",))
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
        lengths, details = (file.prompt_tokens, file.output_tokens), file.details()
        try:
            check_details(file.serving, details)
        except InputError as error:
            mistakes.add((*path, str(error.field)), error.message, str(error.accepted))
        deployment = document.data.get("deployment")
        held = deployment.get("concurrency") if isinstance(deployment, Mapping) else None
        if file.serving == "poisson" and held != 1:
            message = "requests arrive at a rate: their number in flight follows"
            mistakes.add(("deployment", "concurrency"), message, "concurrency: 1")
        weight = weights[k] / total
        specs.append(WorkloadSpec(*lengths, file.serving, backend, name, weight, details))
    return tuple(specs)


def workload_content(workloads: Sequence[WorkloadSpec]) -> dict[str, Any]:
    """What of the workloads decides a result: not their names."""
    rows = []
    for w in workloads:
        details = [dict(w.details)] if w.details else []
        rows.append([w.prompt_tokens, w.output_tokens, w.serving, w.backend, *details])
    if len(workloads) == 1:
        return {"workload": rows[0]}
    return {"workloads": [[w.weight, *row] for w, row in zip(workloads, rows, strict=True)]}
