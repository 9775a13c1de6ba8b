"""A model on chips as a space: what is given is fixed, the other deployments are looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from dse.catalog import Catalog, load_catalog
from dse.errors import InputError, of_field
from dse.files import full_path
from dse.problem.objective import TOTAL as COST
from dse.schema.axes import DEGREES, POOL_AXES
from dse.schema.catalog import is_chip_file
from dse.schema.dtypes import ALIASES
from dse.schema.metrics import METRICS, parse_constraint
from dse.schema.model_catalog import resolve_model
from dse.schema.plan import CHOICES
from dse.schema.reader import each
from dse.schema.study import load_study
from dse.schema.workloads import NO_EXPERTS, OPTIONS, SERVED, Choices, full, prefill_of

# The deployments of a model that are looked at where nothing is said of them.
DENSE = {
    "tensor_parallel": [1, 2, 4, 8],
    "concurrency": {"from": 1, "to": 1024, "powers_of": 2},
}
SPARSE = {
    "tensor_parallel": [1, 2, 4, 8],
    "data_parallel": [1, 2, 4, 8, 16, 32, 64],
    "expert_parallel": {"ratio_of": "tensor_parallel * data_parallel", "values": ["1/72", 1]},
    "concurrency": {"from": 1, "to": 8192, "powers_of": 2},
}
MOST_CHIPS = 72
POOL_CHIPS = [8, 24, MOST_CHIPS]  # of prefill and decode on pools of their own together, at most
BUSY = [60, 80, 100]  # percent of the time that prefill workers are, at most
LIMITS = ("ttft_s <= 2 s", "tpot_s <= 50 ms")
# Axes and sections of a space, as flags.
FLAGS = {
    **{axis: f"--set {flag}" for flag, axis in DEGREES.items()},
    "constraints": "--limit",
    "objectives": "--objective",
    "chip": "--chip",
    "price_basis": "--price-basis",
}


def space_of_model(
    model: str | Path | None,
    chips: Sequence[str],
    *,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: int | None = None,
    replicas: int | None = None,
    concurrency: int | None = None,
    prompt_tokens: int = 2048,
    output_tokens: int = 512,
    requests_per_second: float | None = None,
    price_basis: str = "rental_3yr",
    limits: Sequence[str] = (),
    objective: str | None = None,
    catalog: Catalog | None = None,
    **deployed: Unpack[Choices],
) -> dict[str, Any]:
    """A space of the deployments of a model on one chip or several, for `dse.whatif` and
    `dse.run`.

        dse.whatif(dse.space_of_model("llama-3-70b", ["h100_sxm", "mi300x"], tp=8))

    `model` is a catalog id or the path of a config.json, `chips` are ids or paths of chip files.
    Degrees and `concurrency` that are None are looked for; formats, drafts and copies of experts
    are one or several to choose from, formats else the checkpoint's; of LIMITS those hold whose
    metric no one of `limits` has. With `disaggregated`, prefill and decode on pools of their own
    stand beside an instance that does both. Raises InputError for what no space can say.
    """
    flags = full(deployed, Choices)
    for name, listed, given in (("model", "models", model), ("chip", "chips", chips)):
        if not given:
            ids = f"ids that `dse catalog {listed} list` prints"
            raise InputError(
                f"--{name} is missing", accepted=f"a STUDY, or --model and --chip: {ids}"
            )
    resolved = resolve_model(str(model))
    catalog, named = (catalog or load_catalog()).with_chips(chips)
    for one in named:
        catalog.require(one)
    if len(set(named)) < len(named):
        raise InputError(f"read {', '.join(named)}", field="--chip", accepted="each chip once")
    sparse = any(block.kind == "moe" for block in resolved.blocks)
    own = resolved.weight_dtypes["experts" if sparse else "mlp"]
    given = {
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "data_parallel": dp,
        "expert_parallel": ep,
        "replicas": 1 if replicas is None else replicas,
        **{axis: _one(flags[axis]) for axis in CHOICES},
        "concurrency": concurrency if requests_per_second is None else 1,
    }
    given["weight_dtype"] = given["weight_dtype"] or ("fp8" if own == "fp8_block" else own)
    given["kv_dtype"] = given["kv_dtype"] or resolved.kv_dtype or "bf16"
    axes = {**(SPARSE if sparse else DENSE)}
    axes |= {axis: value for axis, value in given.items() if value is not None}
    where, prefill = {"chip": [_place(one) for one in chips]}, prefill_of(flags, sparse)
    if not sparse and (ep or 1) > 1:
        raise InputError(NO_EXPERTS, field="--set ep", accepted="1")
    if flags["disaggregated"]:
        if requests_per_second is not None or axes["replicas"] != 1:
            option = "replicas" if requests_per_second is None else "requests_per_second"
            accepted = "a closed loop, of one instance beside the pools"
            raise InputError("with disaggregated", field=f"--set {option}", accepted=accepted)
        axes |= _pools({**(SPARSE if sparse else DENSE)}, axes, prefill)
    workload: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "serving": "continuous",
        "backend": flags["backend"] or "current",
    }
    workload |= {one.name: flags[one.name] for one in SERVED if flags[one.name] is not None}
    if requests_per_second is not None:
        workload |= {"serving": "poisson", "requests_per_second": requests_per_second}
    with of_field("--limit"):
        limited = {parse_constraint(text).metric for text in limits}
    free = len(named) > 1 or any(isinstance(value, (list, dict)) for value in axes.values())
    path = Path(str(model))
    space = {
        "name": "whatif",
        "title": f"{resolved.name} on {', '.join(named)}",
        "description": "what the flags leave open of the deployment is looked for" if free else "",
        "workload": workload,
        "price_basis": price_basis,
        "model": full_path(path) if path.exists() else str(model),
        "deployment": where | axes,
        "objectives": _objectives(objective),
        "constraints": [
            *limits,
            *(one for one in LIMITS if one.split()[0] not in limited),
            *([f"chips <= {MOST_CHIPS}"] if sparse and dp is None else []),
        ],
    }
    try:
        study = load_study(space, catalog)
    except InputError as error:
        raise _as_flags(error) from None
    if study.left_out:
        raise InputError(
            next(iter(study.why_left_out.values())),
            field="--chip",
            accepted="another --chip or --price-basis",
        )
    return space


def _place(chip: str) -> str:
    """A chip file by its whole path."""
    return full_path(chip) if is_chip_file(chip) else chip


def _pools(
    free: Mapping[str, Any], axes: Mapping[str, Any], prefill: Mapping[str, Any]
) -> dict[str, Any]:
    """Workers of prefill and decode beside an instance with these `axes`: decode as that instance,
    prefill with its stages, formats and copies, and with `free` degrees unless they are given."""
    own = {**prefill, "busy_percent": BUSY}
    if "chip" in prefill:
        own["chip"] = _place(prefill["chip"])
    first = {**axes, **free, **own}
    workers = {"prefill": first, "decode": axes}
    return {"pool_chips": POOL_CHIPS} | {
        pool: {name: one[name] for name in POOL_AXES[pool] if name in one}
        for pool, one in workers.items()
    }


def _one(given: Any) -> Any:
    """Several values as a list, one as it is."""
    if isinstance(given, str):
        return ALIASES.get(given.lower(), given.lower())
    values = [_one(value) for value in given] if isinstance(given, Sequence) else [given]
    return values[0] if len(values) == 1 else values or None


def _objectives(objective: str | None) -> dict[str, str]:
    if objective and objective not in METRICS:
        raise InputError(
            f"unknown metric {objective!r}", field="--objective", accepted=", ".join(METRICS)
        )
    return {name: METRICS[name].direction for name in (objective or COST, COST, "tpot_s")}


def _as_flags(error: InputError) -> InputError:
    """A mistake of the space that was made of flags, as one of the flags."""
    first = each(error)[0]
    section, _, name = (first.field or "").partition(".")
    name = re.split(r"(?<!prefill)[.\[]", (name or section).removeprefix("decode."))[0]
    flag = OPTIONS.get(name, FLAGS.get(name, f"--set {name}"))
    return InputError(first.message, field=flag, accepted=first.accepted)
