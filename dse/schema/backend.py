"""Serving software as an input: `hardware/backends/*.yaml`.

Kernel efficiency belongs to the chip; what the scheduler and the host add belongs here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dse import units
from dse.errors import InputError
from dse.schema.loader import load_yaml, validate

# What a collective library takes on a chip that has peers: assumed.
COMMUNICATION_BUFFERS = "0.4 GB"


@dataclass(frozen=True, slots=True)
class Backend:
    """One serving backend of one age.

    `host_s_per_step` runs beside the device (a step is the larger of the two); `gap_s_per_step`
    and `host_s_per_request` (for each running request) are serial time between two steps, but
    for a backend that is `overlapped`, whose work on requests runs beside the device too;
    `first_token_s` and `first_token_steps` decode steps are added once to the time to first token;
    `chunk_tokens` bounds the prompt tokens of one step; `max_running_requests` is its cap per
    instance. `scheduler` is "mixed"
    (prompts ride beside decodes) or "prefill_first" (they get steps of their own, before decodes).

    `memory_fraction` is what the backend takes, by `memory_rule` of the whole chip ("capacity"), of
    what weights and buffers leave ("free"), or of the chip for weights and cache alone ("static").
    It admits a request with the cache of its prompt and `reserved_output` of its output;
    without `window_cache`, layers with a window or chunks keep the whole length too. Collectives
    keep `communication_bytes` of a chip that has peers.
    """

    id: str
    title: str
    host_s_per_step: float
    gap_s_per_step: float
    host_s_per_request: float
    first_token_s: float
    first_token_steps: float
    overlapped: bool
    chunk_tokens: float
    memory_fraction: float
    memory_rule: str
    reserved_output: float
    window_cache: bool
    max_running_requests: float
    communication_bytes: float
    scheduler: str
    kind: str
    source: str
    date: str


class _BackendFile(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    id: str
    title: str
    host_per_step: str
    gap_per_step: str
    host_per_request: str
    first_token: str
    first_token_steps: float = Field(default=0.0, ge=0)
    overlapped: bool = False
    chunk_tokens: int = Field(gt=0)
    memory_fraction: float = Field(gt=0, le=1)
    memory_rule: Literal["capacity", "free", "static"]
    reserved_output: float = Field(ge=0, le=1)
    window_cache: bool = True
    max_running_requests: int = Field(gt=0)
    communication_buffers: str = COMMUNICATION_BUFFERS
    scheduler: Literal["mixed", "prefill_first"] = "mixed"
    kind: str
    source: str
    date: str


def load_backend(path: Path) -> Backend:
    """Raises InputError with the line and field of every mistake."""
    document = load_yaml(path)
    spec = validate(_BackendFile, document)
    seconds = {
        name: units.parse(getattr(spec, name), "s", field=name)
        for name in ("host_per_step", "gap_per_step", "host_per_request", "first_token")
    }
    return Backend(
        id=spec.id,
        title=spec.title,
        host_s_per_step=seconds["host_per_step"],
        gap_s_per_step=seconds["gap_per_step"],
        host_s_per_request=seconds["host_per_request"],
        first_token_s=seconds["first_token"],
        first_token_steps=spec.first_token_steps,
        overlapped=spec.overlapped,
        chunk_tokens=float(spec.chunk_tokens),
        memory_fraction=spec.memory_fraction,
        memory_rule=spec.memory_rule,
        reserved_output=spec.reserved_output,
        window_cache=spec.window_cache,
        max_running_requests=float(spec.max_running_requests),
        communication_bytes=units.parse(
            spec.communication_buffers, "bytes", field="communication_buffers"
        ),
        scheduler=spec.scheduler,
        kind=spec.kind,
        source=spec.source,
        date=spec.date,
    )


def load_backends(folder: Path) -> dict[str, Backend]:
    """Every backend file of a folder by id."""
    backends = (load_backend(path) for path in sorted(folder.glob("*.yaml")))
    return {backend.id: backend for backend in backends}


def find_backend(backends: Mapping[str, Backend], name: str) -> Backend:
    """By id. Raises InputError with the ids that exist."""
    if name in backends:
        return backends[name]
    near = difflib.get_close_matches(name, backends, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"unknown backend {name!r}{hint}", field="backend", accepted=", ".join(sorted(backends))
    )
