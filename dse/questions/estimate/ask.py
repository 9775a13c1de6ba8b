"""`dse.estimate`: one point from a model, a chip, a deployment and a workload."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from dse import units
from dse.answer.answer import Answer
from dse.catalog import Catalog, load_catalog, with_own_chips
from dse.economics.tco import with_basis
from dse.errors import InputError
from dse.files import full_path
from dse.physics.workload import Workload
from dse.problem.mix import mix_of
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS, find_law
from dse.questions.estimate.energy import check_power_cap
from dse.questions.estimate.point import Estimate
from dse.questions.estimate.point import estimate as estimate_point
from dse.questions.estimate.present import PointAnswer, point_answer, pools_answer
from dse.schema.backend import find_backend
from dse.schema.costs import costs_of
from dse.schema.dtypes import known_dtypes
from dse.schema.efficiency import load_efficiency
from dse.schema.model import Model, trained_on
from dse.schema.model_catalog import load_model
from dse.schema.tiers import find_tier
from dse.schema.traffic import Demand, read_demand
from dse.schema.workloads import DETAILS, Served, check_details, full
from dse.space.batches import DOMAIN_AXIS, DRAFT_AXIS, EXPERT_AXES
from dse.study.folder import study_folder

if TYPE_CHECKING:
    from dse.problem.own_law import OwnLaw
    from dse.schema.loss_runs import LossRuns
    from dse.study.result import Study

MOST_CHIPS = 16_384  # of the largest instance that `fewest_chips` tries
MOST_JITTER_S = 1.0
TOKENS = ("prompt_tokens", "output_tokens")


def estimate(
    model: str | Path | Mapping[str, Any] | Model | Study,
    chip: str | int,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    replicas: int = 1,
    prompt_tokens: int = 2048,
    output_tokens: int = 512,
    concurrency: int = 32,
    workloads: Sequence[Mapping[str, Any]] = (),
    serving: str = "continuous",
    requests_per_second: float | None = None,
    settings: Sequence[str] = (),
    domain: int | None = None,
    rack: str | None = None,
    routing_skew: float | None = None,
    weights_offload: float | None = None,
    kv_offload: float | None = None,
    offload_tier: str | None = None,
    jitter: str | None = None,
    power_cap: str | None = None,
    price_basis: str = "rental_3yr",
    average_load: str | None = None,
    peak_over_average: str | None = None,
    training_tokens: str | None = None,
    law: str | None = None,
    loss_runs: str | Path | None = None,
    prefill_chip: str | None = None,
    prefill_tp: int | None = None,
    prefill_pp: int | None = None,
    prefill_dp: int | None = None,
    prefill_ep: int | None = None,
    prefill_workers: int = 1,
    decode_workers: int = 1,
    detail: bool = False,
    catalog: Catalog | None = None,
    **deployed: Unpack[Served],
) -> PointAnswer:
    """Predicts one point: latency, throughput, memory, cost, energy and quality.

        e = dse.estimate("llama-3-70b", "h100_sxm", tp=8, concurrency=32)
        e.tpot_s, e.interval("tpot_s"), e.provenance["tpot_s"]
        dse.estimate(study, "start").tpot_s  # a point of a study again

    `model` is a catalog id, the path of a config.json, or what such a file says; `chip` an id of
    the catalog (the shipped one by default) or the path of a chip file. In their place stand a
    study (what `dse.run` returned, or its folder) and a point of it: its number in front.csv, or
    start, cheapest, fastest, best, knee; beside them `detail` and `law` may be given. The other
    arguments are the options of `dse estimate` and mean the same; `settings` are those of --set,
    and each of `workloads` has a name, a weight, prompt_tokens and output_tokens, in place of the
    lengths.

    With `serving="disaggregated"`, `chip` and the degrees are those of the decode pool, and those
    of the prefill pool begin with `prefill_`. `detail` adds where time, memory, money and energy
    go.

    A point that is not feasible is an answer: `e.feasible` is False and `e.violations` says why.
    Raises InputError for what cannot be read.
    """
    given = locals()
    flags = {name: given[name] for name in DEFAULTS if name in given} | full(deployed, Served)
    flags |= {"model": model, "chip": chip}
    catalog = catalog or load_catalog()
    folder = study_folder(model)
    if folder is not None:
        from dse.questions.estimate.again import estimate_again

        _refuse_beside_study(flags)
        found = estimate_again(folder, str(chip), catalog, keep=True, law=law)
        if found.prefill is not None:
            return pools_answer(found)
        return point_answer(found, detail=detail)
    if serving == "disaggregated":
        return pools_answer(_pools(catalog, flags))
    found = point_of(catalog, flags, keep=True)
    return point_answer(found, detail=detail)


# What an argument of `estimate` is that is not given.
DEFAULTS: Mapping[str, Any] = {
    **{
        name: one.default
        for name, one in signature(estimate).parameters.items()
        if one.kind is Parameter.KEYWORD_ONLY and name != "catalog"
    },
    **full({}, Served),
}


def _refuse_beside_study(flags: Mapping[str, Any]) -> None:
    """Raises InputError for what a point of a study says by itself."""
    taken = ("detail", "law")
    for name, default in DEFAULTS.items():
        if name not in taken and flags[name] != default:
            raise InputError("a point of a study is given", field=name, accepted=", ".join(taken))


def _pools(catalog: Catalog, flags: dict[str, Any]) -> Estimate:
    """The decode pool with its `prefill`."""
    flags = flags | {"serving": "continuous"}
    first = {axis: flags[f"prefill_{axis}"] or 1 for axis in ("tp", "dp", "ep")}
    first["pp"] = flags["prefill_pp"] or flags["pp"]
    first |= {"chip": flags["prefill_chip"] or flags["chip"], "replicas": flags["prefill_workers"]}
    decode = point_of(catalog, flags | {"replicas": flags["decode_workers"]}, keep=True)
    return replace(decode, prefill=point_of(catalog, flags | first))


def fewest_chips(
    model: str | Path | Mapping[str, Any] | Model,
    chip: str,
    *,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    prompt_tokens: int = 2048,
    output_tokens: int = 512,
    concurrency: int = 32,
    weights_offload: float | None = None,
    kv_offload: float | None = None,
    offload_tier: str | None = None,
    backend: str | None = None,
    most_chips: int = MOST_CHIPS,
    catalog: Catalog | None = None,
) -> Answer:
    """The fewest chips that hold a model with `concurrency` requests, and what more of them bring.

        dse.fewest_chips("llama-3-70b", "groq_lpu_v1", weight_dtype="int8").document["fewest"]

    All splits of one instance of at most `most_chips` are tried. The other arguments are those of
    `estimate`. Raises InputError for what cannot be read.
    """
    flags = dict(locals())
    from dse.questions.estimate.fit import fit, fit_answer

    _needed(flags)
    known_dtypes(flags)
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    served = find_backend(catalog.backends, backend or catalog.chip(chip).backend)
    document = fit(
        catalog,
        load_model(model),
        chip,
        Workload.of(prompt_tokens, output_tokens, "continuous", served),
        concurrency=concurrency,
        most_chips=most_chips,
        weight_dtype=flags["weight_dtype"],
        kv_dtype=flags["kv_dtype"],
        offload=offload_of(flags, catalog, chip),
    )
    return replace(fit_answer(document), names=catalog.names)


def _needed(flags: Mapping[str, Any]) -> None:
    for needed in ("model", "chip"):
        if not flags[needed]:
            listed = f"an id that `dse catalog {needed}s list` prints"
            raise InputError(f"--{needed} is missing", accepted=listed)


def _refuse_unused(catalog: Catalog, chip: str) -> None:
    """Raises InputError where none of the efficiency files of the command has laws of the chip."""
    given = catalog.source.efficiency
    laws = catalog.efficiencies[catalog.chip(chip).efficiency]
    if given and full_path(laws.file) not in map(full_path, given):
        ids = ", ".join(load_efficiency(file).id for file in given)
        raise InputError(
            f"laws of {ids}, and the chip is {chip}",
            file=given[0],
            field="--efficiency-file",
            accepted=f"laws of {chip} or of a chip that lends it its own",
        )


def jitter_of(jitter: str | None) -> float | None:
    """Mean seconds of --jitter, None where it is not given."""
    if jitter is None:
        return None
    mean_s = units.parse(jitter, "s", field="--jitter")
    if mean_s > MOST_JITTER_S:
        raise InputError(
            f"read {jitter!r}", field="--jitter", accepted="at most 1 s, such as 10 us"
        )
    return mean_s


def point_of(
    catalog: Catalog,
    flags: dict[str, Any],
    *,
    loads: list[dict[str, Any]] | None = None,
    keep: bool = False,
) -> Estimate:
    """The estimate that `flags` (the arguments of `estimate`) ask for, under `loads` where they are
    given (dse.problem.mix)."""
    _needed(flags)
    known_dtypes(flags)
    flags[DRAFT_AXIS] = flags[DRAFT_AXIS] or None
    catalog, chip = catalog.with_chip(flags["chip"])
    if flags.get("prefill_chip"):
        catalog, flags["prefill_chip"] = catalog.with_chip(flags["prefill_chip"], "--prefill-chip")
    else:
        _refuse_unused(catalog, chip)
    if flags["settings"]:
        from dse.schema.derive import derive

        hypothetical = derive(catalog, chip, flags["settings"])
        catalog, chip = with_own_chips(catalog, [hypothetical]), hypothetical.chip.id
    costs = flags.get("costs")
    catalog = with_basis(catalog, flags["price_basis"], costs_of(costs) if costs else None)
    model = load_model(flags["model"])
    if flags["training_tokens"]:
        model = trained_on(model, flags["training_tokens"])
    cap_w = None
    if flags["power_cap"]:
        cap_w = units.parse(flags["power_cap"], "W", field="--power-cap")
        check_power_cap(catalog, chip, cap_w)
    deployment = {
        "tensor_parallel": flags["tp"],
        "pipeline_parallel": flags["pp"],
        "data_parallel": flags["dp"],
        "expert_parallel": flags["ep"],
        "replicas": flags["replicas"],
        "concurrency": 1 if flags["serving"] == "poisson" else flags["concurrency"],
    }
    for name in EXPERT_AXES:
        if flags[name] is not None:
            if not model.experts:
                flag = f"--{name.replace('_', '-')}"
                raise InputError(
                    f"{model.name} has no experts", field=flag, accepted="no such flag"
                )
            deployment[name] = flags[name]
    if by_published(flags):
        deployment[DRAFT_AXIS] = published_drafts(model, flags[DRAFT_AXIS])
    deployment |= offload_of(flags, catalog, chip)
    backend_default = flags["backend"] is None and not loads
    flags["backend"] = flags["backend"] or catalog.chip(chip).backend
    if flags["domain"] is not None:
        deployment[DOMAIN_AXIS] = flags["domain"]
    elif flags["rack"]:
        raise InputError("a rack without a domain", field="--rack", accepted="--domain N, too")
    if flags["redundant_experts"] and flags["ep"] == 1:
        raise InputError(
            "copies of experts without expert parallelism",
            field="--redundant-experts",
            accepted="--ep above 1 (of two pools, both)",
        )
    law, own, rack = flags.get("law") or DEFAULT, None, None
    if flags.get("loss_runs") is not None:
        own = _own_law(find_law(law).name, flags["loss_runs"])
    if flags["rack"]:
        from dse.schema.system import load_rack, resolve_rack

        rack = load_rack(resolve_rack(flags["rack"]))
    found = estimate_point(
        catalog,
        model,
        chip,
        mix_of(loads or _loads(flags), catalog.backends),
        deployment,
        weight_dtype=flags["weight_dtype"],
        kv_dtype=flags["kv_dtype"],
        price_basis=flags["price_basis"],
        power_cap_w=cap_w,
        keep=keep,
        jitter=jitter_of(flags["jitter"]),
        backend_default=backend_default,
        rack=rack,
        law=law if own is None else own.law,
        unique_tokens=flags.get("unique_tokens") or UNIQUE_TOKENS,
        demand=_demand(flags["average_load"], flags["peak_over_average"]),
    )
    if own is None:
        return found
    from dse.problem.own_law import describe_own_law

    return replace(found, own_law=describe_own_law(own))


def _own_law(name: str, runs: str | Path | LossRuns) -> OwnLaw:
    from dse.problem.own_law import own_law
    from dse.schema.loss_runs import LossRuns, load_loss_runs

    return own_law(name, runs if isinstance(runs, LossRuns) else load_loss_runs(runs))


def _demand(average: str | None, peak_over_average: str | None) -> Demand | None:
    """The demand that the flags describe, None without them."""
    if average is None and peak_over_average is None:
        return None
    try:
        return read_demand(average, 1.0 if peak_over_average is None else peak_over_average)
    except InputError as error:
        flag = {"average": "--average-load", "peak_over_average": "--peak-over-average"}
        raise InputError(
            error.message, field=flag[str(error.field)], accepted=error.accepted
        ) from None


def offload_of(flags: dict[str, Any], catalog: Catalog, chip: str) -> dict[str, Any]:
    """Shares in a memory tier, and its name, where anything is put there."""
    shares = {
        "weights_offloaded": flags["weights_offload"] or 0.0,
        "kv_offloaded": flags["kv_offload"] or 0.0,
    }
    asked = flags["offload_tier"]
    if flags["weights_offload"] is None and flags["kv_offload"] is None:
        if asked is not None:
            raise InputError(
                f"nothing is put into {asked!r}",
                field="--offload-tier",
                accepted="also --weights-offload or --kv-offload",
            )
        return {}
    return shares | {"offload_tier": find_tier(catalog.chip(chip), catalog.tiers, asked)}


def by_published(flags: Mapping[str, Any]) -> bool:
    """Whether drafts are accepted as published of the model."""
    return flags[DRAFT_AXIS] is not None and flags["acceptance"] is None


def published_drafts(model: Model, drafted: int) -> int:
    """The tokens drafted. Raises InputError where nothing is published of what is accepted."""
    if not model.drafts:
        raise InputError(
            f"no figure for {model.name}: what share of its drafted tokens is accepted",
            field="acceptance",
            accepted="--acceptance, 0 to 1",
        )
    return drafted


def _loads(flags: dict[str, Any]) -> list[dict[str, Any]]:
    """The workloads of the flags, weights scaled to a sum of 1."""

    if flags["serving"] == "disaggregated":
        raise InputError(
            "pools of their own for prefill and decode are estimated alone",
            field="--serving",
            accepted="dse estimate --serving disaggregated, or another kind of serving",
        )
    details = {name: flags[name] for name in DETAILS if flags[name] is not None}
    drafting = by_published(flags)
    if drafting:
        del details[DRAFT_AXIS]
    check_details(flags["serving"], details, drafting=drafting)
    common = {"serving": flags["serving"], "backend": flags["backend"], **details}
    given = flags["workloads"]
    if not given:
        return [common | {name: flags[name] for name in TOKENS}]
    names = [load["name"] for load in given]
    if len(set(names)) < len(names):
        raise InputError(
            f"read the names {', '.join(names)}", field="--workload", accepted="different names"
        )
    total = math.fsum(load["weight"] for load in given)
    loads = [common | load | {"weight": load["weight"] / total} for load in given]
    for load in loads:
        if "requests_per_second" in details:
            load["requests_per_second"] = details["requests_per_second"] * load["weight"]
    return loads
