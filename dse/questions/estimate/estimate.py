"""`dse.estimate`: one point from a model, a chip, a deployment and a workload.

A point of a study is evaluated again from what the study wrote of it; pools of their own for
prefill and decode are estimated one by one and put together (`dse.questions.estimate.again`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from dse import units
from dse.answer.answer import Answer, Block, Table
from dse.answer.frames import columns_of, frame, of_rows
from dse.answer.numbers import dollars, label, show
from dse.catalog import Catalog, load_catalog, with_own_chips
from dse.economics.prices import evidence_words, price_tables
from dse.economics.tco import with_basis
from dse.errors import InputError, of_field
from dse.files import full_path
from dse.options import CHIP, Opt, Tokens
from dse.problem.describe import limits_of, quality_words, violations
from dse.problem.mix import held, loads_of, mix_of
from dse.problem.models import own_law_words
from dse.problem.words import (
    MIX,
    average_load_words,
    deployment_words,
    heading,
    known_words,
    violation_words,
)
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS
from dse.questions.estimate.again import estimate_again, pools
from dse.questions.estimate.point import Estimate
from dse.questions.estimate.point import estimate as estimate_point
from dse.questions.estimate.where import (
    breakdown,
    energy_breakdown,
    energy_table,
    memory_table,
    operator_table,
    where_figures,
)
from dse.record import record
from dse.schema.axes import DEGREES
from dse.schema.constants import find_tier
from dse.schema.costs import costs_of
from dse.schema.derive import derive
from dse.schema.dtypes import known_dtypes
from dse.schema.efficiency import load_efficiency
from dse.schema.loss_runs import LossRuns, load_loss_runs, runs_again
from dse.schema.metrics import EVERY
from dse.schema.model import Model, trained_on
from dse.schema.model_catalog import load_model
from dse.schema.plausible import FAR
from dse.schema.reader import Field, Listed, Number, Place, Raw, Text
from dse.schema.reader import Table as Fields
from dse.schema.system import Rack, load_rack, resolve_rack
from dse.schema.traffic import Demand, read_demand
from dse.schema.workloads import DEGREE, DETAILS, FIELDS, PREFILL_FIELDS, check_details
from dse.space.batches import DOMAIN_AXIS, DRAFT_AXIS, EXPERT_AXES
from dse.study.folder import read_study, study_folder

MOST_JITTER_S = 1.0
MOST_TOKENS = 100_000_000
SHOWN_POINTS = 5  # that beat one, in words
TOKENS = ("prompt_tokens", "output_tokens")
WEIGHTED = re.compile(r"([^=]{1,40})=([0-9]{1,9}(?:\.[0-9]{1,17})?):([0-9]{1,9})/([0-9]{1,9})")


class Finished(Protocol):
    """A study, as `dse.run` returned it."""

    @property
    def folder(self) -> Path: ...


class Weighted:
    """One workload of several: NAME=WEIGHT:PROMPT/OUTPUT, or a mapping that says the same."""

    def read(self, written: Any, at: Place) -> Mapping[str, Any] | None:
        if isinstance(written, Mapping):
            return written
        found = WEIGHTED.fullmatch(str(written))
        name, weight, *tokens = found.groups() if found else ("", "0")
        if not (float(weight) > 0 and all(1 <= int(count) <= MOST_TOKENS for count in tokens)):
            accepted = f"chat=0.7:1000/250; a weight above 0, 1 to {MOST_TOKENS:,} tokens"
            return at.refuse(written, accepted)
        lengths = dict(zip(TOKENS, map(int, tokens), strict=True))
        return {"name": name, "weight": float(weight), **lengths}


OFFLOAD_FIELDS = (
    Field("weights_offloaded", Number(0, 1), None),
    Field("kv_offloaded", Number(0, 1), None),
    Field("offload_tier", Text(), None),
)
POOL_FIELDS = (
    *PREFILL_FIELDS,
    Field("prefill_workers", DEGREE, 1),
    Field("decode_workers", DEGREE, 1),
)
# What `--set` takes beside figures of the chip.
SETTINGS = Fields(
    *(one for one in FIELDS if one.name not in ("weight_dtype", "kv_dtype", "backend")),
    Field("requests_per_second", Number(above=0, most=1e9), None),
    Field("workloads", Listed(Weighted(), one=True), ()),
    Field("scale_up_domain", DEGREE, None),
    Field("rack", Text(), None),
    Field("routing_skew", Number(0, 10), None),
    *OFFLOAD_FIELDS,
    Field("jitter", Text(), None),
    Field("power_cap", Text(), None),
    Field("price_basis", Text(), "rental_3yr"),
    Field("average_load", Text(), None),
    Field("peak_over_average", Text(), None),
    Field("training_tokens", Text(), None),
    Field("law", Text(), None),
    Field("loss_runs", Raw(), None),
    *POOL_FIELDS,
)
# What is asked of a point beside the workloads, prices and law that a study says.
OF_POINT = {
    *(*DEGREES, "replicas", "weight_dtype", "kv_dtype", "concurrency", "settings"),
    *(*EXPERT_AXES, DOMAIN_AXIS, "rack", "power_cap", "training_tokens", "detail", "why_not"),
    *(one.name for one in OFFLOAD_FIELDS),
}
SUBJECT = Opt(
    "Model: catalog id (dse catalog models list), or the path of a config.json. With a POINT: the "
    "folder of a study.",
    flag="model",
    positional=True,
)
POINT = Opt("Number in front.csv, or start, cheapest, fastest, best, knee.", positional=True)
Serving = Literal["continuous", "static", "offline", "poisson", "disaggregated"]
Dtype = Annotated[
    str | None,
    Opt(
        "bf16, fp8, fp8_block (128 x 128), int8, int4, nvfp4, mxfp4, q4_0, q4_k_m or q8_0 "
        "(default: the model's)."
    ),
]
KvDtype = Annotated[str | None, Opt("Format of the KV cache (default: the checkpoint's, or bf16).")]
Backend = Annotated[str | None, Opt("Serving software (default: the chip's own, or current).")]
# What does not go with two pools, and why.
NOT_OF_POOLS = {
    "law": "it predicts no loss",
    "loss_runs": "it predicts no loss",
    "settings": "it takes the file of `dse catalog chips derive`",
    "replicas": "it has prefill_workers and decode_workers",
    "workloads": "one closed loop",
    "requests_per_second": "one closed loop",
    "average_load": "two pools",
    "peak_over_average": "two pools",
    "detail": "two pools",
}


@record
class PointAnswer(Answer):
    """The answer of one point. Every key of its document is an attribute: `e.tpot_s`,
    `e.provenance`, `e.feasible`. `point` has the arrays behind it, of pools those of decode."""

    point: Estimate | None = None

    def __getattr__(self, name: str) -> Any:
        document = self.__dict__.get("document", {})
        if name in document:
            return document[name]
        raise AttributeError(f"an estimate has no {name!r}")

    def interval(self, metric: str) -> tuple[float, float] | None:
        """(low, high) of a metric, 80%; None for one that has no interval."""
        found = self.document["intervals"].get(metric)
        return None if found is None else (found[0], found[1])


def estimate(
    model: Annotated[str | Path | Mapping[str, Any] | Model | Finished | None, SUBJECT] = None,
    chip: Annotated[str | int | None, CHIP] = None,
    point: Annotated[str | int | None, POINT] = None,
    *,
    tp: Annotated[int, Opt("Tensor parallelism.", least=1, most=100_000)] = 1,
    pp: Annotated[int, Opt("Pipeline stages.", least=1, most=100_000)] = 1,
    dp: Annotated[int, Opt("Attention data parallelism.", least=1, most=100_000)] = 1,
    ep: Annotated[int, Opt("Expert parallelism.", least=1, most=100_000)] = 1,
    replicas: Annotated[int, Opt("Independent instances.", least=1, most=100_000)] = 1,
    weight_dtype: Dtype = None,
    kv_dtype: KvDtype = None,
    prompt_tokens: Tokens = 2048,
    output_tokens: Tokens = 512,
    concurrency: Tokens = 32,
    serving: Annotated[
        Serving,
        Opt(
            "continuous (a closed loop), static (one batch), offline (all requests queued), "
            "poisson (random arrivals) or disaggregated (two pools; the other options are those "
            "of decode)."
        ),
    ] = "continuous",
    backend: Backend = None,
    why_not: Annotated[
        str | Path | None, Opt("Why the front of this study lacks the point.", metavar="STUDY")
    ] = None,
    settings: Sequence[str] | Mapping[str, str] = (),
    detail: bool = False,
    catalog: Catalog | None = None,
    **fields: Any,
) -> PointAnswer:
    """Predict one point: latency, throughput, memory, cost, energy and quality.

        e = dse.estimate("llama-3-70b", "h100_sxm", tp=8, concurrency=32)
        e.tpot_s, e.interval("tpot_s"), e.provenance["tpot_s"]
        dse.estimate(study, "start").tpot_s  # a point of a study again

    `model` is a catalog id, the path of a config.json, or what such a file says; `chip` an id of
    the catalog (the shipped one by default) or the path of a chip file. In their place stand a
    study (what `dse.run` returned, or its folder) and a point of it: its number in front.csv, or
    start, cheapest, fastest, best, knee; beside them `detail` and `law` may be given. `settings`
    change figures of the chip: {"hbm_bandwidth": "2x"}, or a sequence of "hbm_bandwidth=2x".
    `fields` are those of SETTINGS; each of `workloads` has a name, a weight, prompt_tokens and
    output_tokens, in place of the lengths.

    With `serving="disaggregated"`, `chip` and the degrees are those of the decode pool, and those
    of the prefill pool begin with `prefill_`. `detail` adds where time, memory, money and energy
    go. With `why_not` the answer is what of the limits, rules or front of that study refuses the
    point, under the study's workload, prices and quality law.

    A point that is not feasible is an answer: `e.feasible` is False and `e.violations` says why.
    Raises InputError for what cannot be read.
    """
    given = locals()
    flags = {name: given[name] for name in DEFAULTS if name in given} | SETTINGS.of(fields)
    catalog = catalog or load_catalog()
    folder = study_folder(model) if point is None else Path(str(getattr(model, "folder", model)))
    if folder is not None:
        number = chip if point is None else point
        if number is None:
            raise InputError("which point?", field="POINT", accepted="dse estimate STUDY POINT")
        for name, default in DEFAULTS.items():
            if flags[name] != default and name not in ("detail", "law"):
                said = "a point of a study is given"
                raise InputError(said, field=option(name), accepted="detail, law")
        found = estimate_again(folder, str(number), catalog, keep=True, law=flags["law"])
        return point_answer(found, detail=detail and found.prefill is None)
    flags |= {"model": model, "chip": chip}
    if why_not is not None:
        return why_not_on_front(Path(why_not), flags, catalog)
    check_load(flags)
    if serving != "disaggregated":
        return point_answer(point_of(catalog, flags, keep=True), detail=detail)
    flags["serving"] = "continuous"
    first = {axis: flags[f"prefill_{axis}"] or 1 for axis in ("tp", "dp", "ep")}
    first["pp"] = flags["prefill_pp"] or pp
    first |= {"chip": flags["prefill_chip"] or chip, "replicas": flags["prefill_workers"]}
    decode = point_of(catalog, flags | {"replicas": flags["decode_workers"]}, keep=True)
    return point_answer(replace(decode, prefill=point_of(catalog, flags | first)))


# What an argument of `estimate` is that is not given.
DEFAULTS: Mapping[str, Any] = {
    **{
        name: one.default
        for name, one in signature(estimate).parameters.items()
        if one.kind is Parameter.KEYWORD_ONLY and name != "catalog"
    },
    **SETTINGS.of({}),
}


def why_not_on_front(folder: Path, flags: Mapping[str, Any], catalog: Catalog) -> PointAnswer:
    """Why the front of the study in `folder` lacks the point of `flags`: a limit or rule that it
    breaks, or the points that are at least as good. Raises InputError for what the study says."""
    study, items = read_study(folder)
    loads = loads_of(study)
    own = OF_POINT if held(loads) else OF_POINT - {"concurrency"}
    if flags[DOMAIN_AXIS] is not None and "rack" in study:
        own = own - {"rack"}
    for name, default in DEFAULTS.items():
        if name not in own and flags[name] != default:
            said = f"{option(name)} is that of {folder}"
            raise InputError(said, accepted="the point without it")
    asked = {key: study.get(key) for key in ("price_basis", "costs", "unique_tokens")}
    asked |= {"law": study.get("quality_law")}
    if runs := study.get("loss_runs"):
        asked["loss_runs"] = runs_again(runs)
    if "rack" not in own:
        asked["rack"] = study["rack"]["named"]
    found = point_of(catalog.over(study), {**flags, **asked}, loads=loads)
    signs = {
        row["metric"]: 1.0 if row["direction"] == "minimize" else -1.0
        for row in study["objectives"]
    }
    mine = found.as_json(tuple(signs))
    reasons = [violation_words(row) for row in violations(found.metrics, 0, limits_of(study))]
    rivals = [] if reasons else items
    same = [item for item in rivals if all(mine[m] == item["metrics"][m] for m in signs)]
    better = [
        item
        for item in ([] if same else rivals)
        if all(
            mine[m] is None or sign * item["metrics"][m] <= sign * mine[m]
            for m, sign in signs.items()
        )
    ]
    if same:
        reasons = [f"it is on the front: point {same[0]['point']} has the same values"]
    for item in better[:SHOWN_POINTS]:
        values = ", ".join(
            f"{label(m).short} {show(m, item['metrics'][m])} (here {show(m, mine[m])})"
            for m in signs
        )
        words = deployment_words(item["deployment"], held(loads))
        reasons.append(
            f"point {item['point']} is at least as good in every objective: {values}; {words}"
        )
    if len(better) > SHOWN_POINTS:
        reasons.append(f"and {len(better) - SHOWN_POINTS} more points of the front beat it")
    if not reasons:
        reasons = ["feasible and beaten by no point of the front: the search did not see it"]
    return PointAnswer(
        question="estimate",
        title=f"Why the front of {folder} lacks this point",
        headline=reasons[0],
        sentences=reasons[1:],
        document={
            "on_front": bool(same),
            "reasons": reasons,
            "dominated_by": [item["point"] for item in better],
        },
        point=found,
    )


def option(name: str) -> str:
    """How the command line writes an argument."""
    if name in SETTINGS.names:
        return f"--set {name}"
    return "--set NAME=VALUE" if name == "settings" else f"--{name.replace('_', '-')}"


def check_load(flags: Mapping[str, Any]) -> None:
    """Raises InputError where arguments of the workload contradict each other."""
    refused: dict[str, str] = {}
    if flags["serving"] == "disaggregated":
        refused |= {name: f"disaggregated: {why}" for name, why in NOT_OF_POOLS.items()}
    else:
        one_pool = "one pool: it takes --serving disaggregated"
        refused |= {field.name: one_pool for field in POOL_FIELDS}
    if flags["serving"] == "poisson":
        refused["concurrency"] = "poisson: requests in flight follow from the rate"
    if flags["workloads"]:
        refused |= dict.fromkeys(TOKENS, "workloads, which have their own")
    for name, why in refused.items():
        if flags[name] != DEFAULTS[name]:
            raise InputError(f"{option(name)} does not go with {why}", accepted="one of the two")


def check_needed(model: Any, chip: Any) -> None:
    """Raises InputError where either is missing."""
    for name, value in (("model", model), ("chip", chip)):
        if not value:
            listed = f"an id that `dse catalog {name}s list` prints"
            raise InputError(f"--{name} is missing", accepted=listed)


def point_of(
    catalog: Catalog,
    flags: Mapping[str, Any],
    *,
    loads: list[dict[str, Any]] | None = None,
    keep: bool = False,
) -> Estimate:
    """The estimate that `flags` (the arguments of `estimate`) ask for, under `loads` where they are
    given (dse.problem.mix). Raises InputError."""
    flags = dict(flags)
    check_needed(flags["model"], flags["chip"])
    known_dtypes(flags)
    flags[DRAFT_AXIS] = flags[DRAFT_AXIS] or None
    catalog, chip = catalog.with_chip(flags["chip"])
    if flags["prefill_chip"]:
        place = option("prefill_chip")
        catalog, flags["prefill_chip"] = catalog.with_chip(flags["prefill_chip"], place)
    else:
        _refuse_unused(catalog, chip)
    if settings := flags["settings"]:
        if isinstance(settings, Mapping):
            settings = [f"{name}={value}" for name, value in settings.items()]
        hypothetical = derive(catalog, chip, settings)
        catalog, chip = with_own_chips(catalog, [hypothetical]), hypothetical.chip.id
    costs = flags.get("costs")
    catalog = with_basis(catalog, flags["price_basis"], costs_of(costs) if costs else None)
    model = load_model(flags["model"])
    if flags["training_tokens"]:
        model = trained_on(model, flags["training_tokens"], option("training_tokens"))
    deployment = {name: flags[flag] for flag, name in DEGREES.items()}
    deployment["replicas"] = flags["replicas"]
    deployment["concurrency"] = 1 if flags["serving"] == "poisson" else flags["concurrency"]
    deployment |= expert_axes(model, flags)
    if by_published(flags):
        deployment[DRAFT_AXIS] = published_drafts(model, flags[DRAFT_AXIS])
    deployment |= offload_of(flags, catalog, chip)
    backend_default = flags["backend"] is None and not loads
    flags["backend"] = flags["backend"] or catalog.chip(chip).backend
    if flags[DOMAIN_AXIS] is not None:
        deployment[DOMAIN_AXIS] = flags[DOMAIN_AXIS]
    if flags["redundant_experts"] and flags["ep"] == 1:
        raise InputError(
            "copies of experts without expert parallelism",
            field=option("redundant_experts"),
            accepted="--ep above 1 (of two pools, both)",
        )
    if (runs := flags["loss_runs"]) is not None and not isinstance(runs, LossRuns):
        runs = load_loss_runs(runs)
    jitter = flags["jitter"]
    return estimate_point(
        catalog,
        model,
        chip,
        mix_of(loads or _loads(flags), catalog.backends),
        deployment,
        weight_dtype=flags["weight_dtype"],
        kv_dtype=flags["kv_dtype"],
        price_basis=flags["price_basis"],
        power_cap_w=_power_cap_w(flags["power_cap"], catalog, chip),
        keep=keep,
        jitter=None if jitter is None else read_jitter(jitter, option("jitter")),
        backend_default=backend_default,
        rack=_rack(flags),
        law=flags["law"] or DEFAULT,
        runs=runs,
        unique_tokens=flags.get("unique_tokens") or UNIQUE_TOKENS,
        demand=_demand(flags["average_load"], flags["peak_over_average"]),
    )


def expert_axes(model: Model, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The axes of experts that are given. Raises InputError for a model without experts."""
    given = {name: flags[name] for name in EXPERT_AXES if flags[name] is not None}
    if given and not model.experts:
        field = option(next(iter(given)))
        raise InputError(f"{model.name} has no experts", field=field, accepted="no such field")
    return given


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


def read_jitter(written: str, field: str) -> float:
    """Mean seconds of delay of a member of a collective. Raises InputError."""
    mean_s = units.parse(written, "s", field=field)
    if mean_s > MOST_JITTER_S:
        raise InputError(f"read {written!r}", field=field, accepted="at most 1 s, such as 10 us")
    return mean_s


def _power_cap_w(written: str | None, catalog: Catalog, chip: str) -> float | None:
    """Watts of a cap, None without one. Raises InputError for one that the chip cannot have: none
    without a rated power, not above that, and not at or below what it draws with nothing to do."""
    if not written:
        return None
    field, spec = option("power_cap"), catalog.chip(chip)
    cap_w = units.parse(written, "W", field=field)
    if spec.tdp_w is None:
        raise InputError(f"{chip} has no tdp to cap", field=field, accepted="no such field")
    idle_w = catalog.energy.idle_w(spec)
    if idle_w < cap_w <= spec.tdp_w:
        return cap_w
    limit, watts = ("rated", spec.tdp_w) if cap_w > idle_w else ("idle", idle_w)
    raise InputError(
        f"read {cap_w:g} W: its {limit} power is {watts:.0f} W ({chip})",
        field=field,
        accepted=f"above {idle_w:.0f} W and up to {spec.tdp_w:.0f} W",
    )


def _rack(flags: Mapping[str, Any]) -> Rack | None:
    if not flags["rack"]:
        return None
    if flags[DOMAIN_AXIS] is None:
        accepted = f"{option(DOMAIN_AXIS)}=N, too"
        raise InputError("a rack without a domain", field=option("rack"), accepted=accepted)
    return load_rack(resolve_rack(flags["rack"]))


def _demand(average: str | None, peak_over_average: str | None) -> Demand | None:
    """The demand that the flags describe, None without them."""
    if average is None and peak_over_average is None:
        return None
    named = {"average": "average_load", "peak_over_average": "peak_over_average"}
    with of_field({key: option(name) for key, name in named.items()}):
        return read_demand(average, 1.0 if peak_over_average is None else peak_over_average)


def offload_of(flags: Mapping[str, Any], catalog: Catalog, chip: str) -> dict[str, Any]:
    """Shares in a memory tier, and its name, where anything is put there."""
    shares = {name: flags[name] or 0.0 for name in ("weights_offloaded", "kv_offloaded")}
    asked = flags["offload_tier"]
    if any(flags[name] is not None for name in shares):
        return shares | {"offload_tier": find_tier(catalog.chip(chip), catalog.tiers, asked)}
    if asked is not None:
        raise InputError(
            f"nothing is put into {asked!r}",
            field=option("offload_tier"),
            accepted="also weights_offloaded or kv_offloaded",
        )
    return {}


def by_published(flags: Mapping[str, Any]) -> bool:
    """Whether drafts are accepted as published of the model."""
    return flags[DRAFT_AXIS] is not None and flags["acceptance"] is None


def published_drafts(model: Model, drafted: int) -> int:
    """The tokens drafted. Raises InputError where nothing is published of what is accepted."""
    if not model.drafts:
        raise InputError(
            f"no figure for {model.name}: what share of its drafted tokens is accepted",
            field="acceptance",
            accepted=f"{option('acceptance')}, 0 to 1",
        )
    return drafted


def _loads(flags: Mapping[str, Any]) -> list[dict[str, Any]]:
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
        message = f"read the names {', '.join(names)}"
        raise InputError(message, field=option("workloads"), accepted="different names")
    total = math.fsum(load["weight"] for load in given)
    loads = [common | load | {"weight": load["weight"] / total} for load in given]
    for load in loads:
        if "requests_per_second" in details:
            load["requests_per_second"] = details["requests_per_second"] * load["weight"]
    return loads


# The answer.

# The first metrics of a table, those beside the picture.
FIRST = (
    "ttft_s",
    "tpot_s",
    "output_tokens_per_s",
    "usd_per_million_total_tokens",
    "joules_per_output_token",
    "running_requests",
    "memory_bytes_per_chip",
)
WORKLOAD_COLUMNS = ("name", "weight", "chip_seconds_share", "ttft_s", "tpot_s")
WORKLOAD_USD = tuple(f"usd_per_million_{kind}_tokens" for kind in ("input", "output", "total"))
# Not worth a line, and shown where requests arrive at random.
NOT_SHOWN = ("e2e_s", "chips", "chip_usd_per_hour", "overtraining_ratio")
OF_ARRIVALS = ("ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "utilisation")
ARRIVAL_COLUMNS = (*WORKLOAD_COLUMNS[:4], "ttft_p99_s", "utilisation", "tpot_s", WORKLOAD_USD[2])


def point_answer(found: Estimate, *, detail: bool = False) -> PointAnswer:
    """The answer of one point that kept its entries; with a `prefill`, of both pools together.
    `detail` adds where time, memory, money and energy go."""
    split = found.prefill is not None
    point = pools(found.prefill, found) if found.prefill is not None else found.as_json()
    document, words = dict(point), _lead(point)
    where, metrics = breakdown(found.metrics, 0), metric_frame(point, found)
    blocks: list[Block] = [*where_figures(where), metrics]
    if not split and point["workload"] is None:
        loads = point["workloads"]
        keys = (*WORKLOAD_COLUMNS, *WORKLOAD_USD) if held(loads) else ARRIVAL_COLUMNS
        blocks.append(of_rows("workloads", "Each workload of the mix", loads, " ".join(keys), MIX))
    if detail:
        energy = energy_breakdown(found.metrics, 0)
        document |= {**where, "energy": energy}
        blocks += [operator_table(where), memory_table(where), energy_table(energy)]
    if "price" in point and not split:
        blocks += price_tables(point["price"])
    if "at_average_load" in point and not split:
        words.append(average_load_words(point["at_average_load"]))
    words += quality_words(point)
    words += own_law_words(point) if point.get("loss_runs") else []
    title = f"{point['model']}, prefill and decode on pools of their own"
    if not split:
        chips, chip = point["deployment"]["chips"], point["deployment"]["chip"]
        title = f"{point['model']} on {chips:,} x {chip}"
    return PointAnswer(
        question="estimate",
        title=title,
        asked=heading(point),
        headline=words[0],
        sentences=words[1:],
        blocks=blocks,
        certainty=(known_words(point),),
        rests=point["assumed"],
        document=document,
        data=(metrics,),
        names=found.names,
        point=found,
    )


def _lead(point: Mapping[str, Any]) -> list[str]:
    """The answer in one sentence, or the rules that the point breaks; then the rest."""
    bound = [f"Bound by {point['bottleneck']}."]
    slips = [text for text in point["assumed"] if FAR in text]
    bound += [f"Before you believe it, check {text}." for text in slips]
    if not point["feasible"]:
        broken = [f"Infeasible: {violation_words(row)}." for row in point["violations"]]
        return [*broken, *bound]
    usd = point["usd_per_million_total_tokens"]
    cost = ""
    if usd is not None:
        cost = f", {show('usd_per_million_total_tokens', usd)} per million tokens"
        bound += evidence_words(point["price_evidence"])
    return [
        f"Feasible. {show('tpot_s', point['tpot_s'])} per output token, "
        f"{show('ttft_s', point['ttft_s'])} to the first token, "
        f"{show('output_tokens_per_s', point['output_tokens_per_s'])} output tokens per second"
        f"{cost}.",
        *bound,
    ]


def metric_frame(point: Mapping[str, Any], found: Estimate) -> Table:
    """The metrics of a document that are worth a line, in SI and as people read them: value, 80%
    interval and how it is known."""
    pools = "prefill_pool" in point
    named = [
        metric
        for metric in dict.fromkeys((*FIRST, *EVERY))
        if metric in point
        and metric not in NOT_SHOWN
        and not ((pools or metric in OF_ARRIVALS or metric in FIRST) and point[metric] is None)
    ]
    rows = []
    for metric in named:
        ends = point["intervals"].get(metric, ())
        low, high = ends or (None, None)
        rows.append(
            {
                "metric": metric,
                "value": point[metric],
                "low": low,
                "high": high,
                "known": point["provenance"].get(metric, ""),
                "predicted_metric": EVERY[metric].title,
                "predicted_value": show(metric, point[metric]),
                "interval": " .. ".join(show(metric, end) for end in ends),
            }
        )
    usd = float(found.machines.usd_per_chip_hour[found.batch.chip[0]])
    notes = [f"A chip-hour costs {dollars(usd)} ({point['price_basis']})."] * math.isfinite(usd)
    shown = ("predicted_metric", "predicted_value", "interval", "known")
    caption = "What is predicted"
    table = frame("metrics", caption, columns_of(rows), *notes, shown=shown, first=shown[:3])
    right = [replace(c, right=c.key in shown[1:3] or c.right) for c in table.columns]
    return replace(table, columns=right)
