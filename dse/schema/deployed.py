"""What a call says of how a model is deployed and served: the arguments that `dse.estimate`,
`dse.fleet`, `dse.scale` and `dse.space_of_model` share, under the names of a space and a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from dse.errors import InputError
from dse.schema.reader import Field, Listed, Text, Whole
from dse.schema.workloads import SERVED


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
    *(Field(f"prefill_{degree}", DEGREE, None) for degree in ("tp", "pp", "dp", "ep")),
)

NO_EXPERTS = "the model has no experts"
_PREFILL = {
    "prefill_chip": "chip",
    "prefill_tp": "tensor_parallel",
    "prefill_pp": "pipeline_parallel",
    "prefill_dp": "data_parallel",
    "prefill_ep": "expert_parallel",
}
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
