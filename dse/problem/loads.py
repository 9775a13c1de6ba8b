"""Workloads as study.json and the command line hold them: {prompt_tokens, output_tokens, serving,
backend}, of several also {name, weight}, and what else was given of
`dse.schema.workloads.DETAILS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.physics.speculative import Speculation
from dse.physics.workload import POISSON, Workload
from dse.problem.evaluate import Member
from dse.problem.mix import Mix, Share
from dse.schema.backend import TUNED, Backend, find_backend

SPECULATION = ("draft_tokens", "acceptance")


def loads_of(study: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The workloads of study.json: `workload` where there is one, else `workloads`."""
    return [study["workload"]] if study["workload"] else study["workloads"]


def one_load(loads: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What stands under `workload`: null where there are several."""
    if len(loads) > 1:
        return None
    return {key: value for key, value in loads[0].items() if key not in ("name", "weight")}


def held(loads: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the requests in flight are held at `concurrency`: not where they arrive at random."""
    return all(load["serving"] != POISSON for load in loads)


def mix_of(loads: Sequence[Mapping[str, Any]], backends: Mapping[str, Backend]) -> Mix:
    """Raises InputError for a backend that does not exist."""
    return tuple(
        Share(
            load.get("name", ""),
            load.get("weight", 1.0),
            Workload.of(
                load["prompt_tokens"],
                load["output_tokens"],
                load["serving"],
                find_backend(backends, load["backend"]),
                requests_per_second=load.get("requests_per_second", 0.0),
                prefix_hit_rate=load.get("prefix_hit_rate", 0.0),
                **served(load, load.get("draft_tokens")),
            ),
        )
        for load in loads
    )


def served(load: Mapping[str, Any], draft_tokens: int | None = None) -> dict[str, Any]:
    """What `dse.schema.workloads.SERVED` says of a workload, as `Workload.of` takes it; how many
    tokens are drafted is an axis of the deployment."""
    return {
        "speculation": _speculation({**load, "draft_tokens": draft_tokens}),
        "network_overlap": load.get("network_overlap"),
        "max_running_requests": load.get("max_running_requests"),
        "tuning": load.get("tuning") or TUNED,
    }


def _speculation(load: Mapping[str, Any]) -> Speculation | None:
    found = Speculation(*(load.get(name) for name in SPECULATION))
    return None if found == Speculation() else found


def _details(load: Workload) -> dict[str, Any]:
    """The inverse: what differs from a plain workload."""
    found: dict[str, Any] = {}
    if load.requests_per_s[0]:
        found["requests_per_second"] = float(load.requests_per_s[0])
    if load.speculation is not None:
        given = {name: getattr(load.speculation, name) for name in SPECULATION}
        found |= {name: value for name, value in given.items() if value is not None}
    if load.prefix_hit_rate:
        found["prefix_hit_rate"] = load.prefix_hit_rate
    if load.network_overlap is not None:
        found["network_overlap"] = load.network_overlap
    if load.max_running_requests is not None:
        found["max_running_requests"] = whole(load.max_running_requests)
    if load.tuning != TUNED:
        found["tuning"] = load.tuning
    return found


def load_row(share: Share | Member) -> dict[str, Any]:
    """The inverse of `mix_of`, for one workload."""
    load = share.workload
    return {
        "name": share.name,
        "weight": share.weight,
        "prompt_tokens": whole(load.prompt_tokens[0]),
        "output_tokens": whole(load.output_tokens[0]),
        "serving": load.serving,
        "backend": load.backend.id,
        **_details(load),
    }


def whole(value: float) -> float | int:
    """A whole number without its point."""
    return int(value) if float(value).is_integer() else float(value)
