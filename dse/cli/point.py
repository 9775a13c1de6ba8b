"""The flags that describe one point, and the estimate that they ask for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import (
    DEGREE,
    LOAD,
    Between,
    F,
    Whole,
    efficiency_option,
    price_options,
    read_catalog,
    refuse,
)

if TYPE_CHECKING:
    from dse.catalog import Catalog


class Weighted(click.ParamType):
    """One workload of several: NAME=WEIGHT:PROMPT/OUTPUT."""

    name = "NAME=WEIGHT:PROMPT/OUTPUT"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        found = _WEIGHTED.fullmatch(value)
        name, weight, *tokens = found.groups() if found else ("", "0")
        if not (float(weight) > 0 and all(1 <= int(count) <= LOAD.most for count in tokens)):
            accepted = f"chat=0.7:1000/250; a weight above 0, 1 to {LOAD.most:,} tokens"
            self.fail(f"read {value!r} (accepted: {accepted})", param, ctx)
        lengths = dict(zip(TOKENS, map(int, tokens), strict=True))
        return {"name": name, "weight": float(weight), **lengths}


_WEIGHTED = re.compile(r"([^=]{1,40})=([0-9]{1,9}(?:\.[0-9]{1,17})?):([0-9]{1,9})/([0-9]{1,9})")


TOKENS = ("prompt_tokens", "output_tokens")


_POINT_OPTIONS = (
    click.option("--model", help="Catalog id, or the path of a config.json."),
    click.option("--chip", help="Chip id (dse hardware list), or the path of a chip file."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A hypothetical chip, --chip with one figure changed: hbm_bandwidth=2x, "
        "capacity=+20%, link=900GB/s (dse hardware derive).",
    ),
    click.option("--tp", type=DEGREE, default=1, help="Tensor parallelism."),
    click.option("--pp", type=DEGREE, default=1, help="Pipeline stages."),
    click.option("--dp", type=DEGREE, default=1, help="Attention data parallelism."),
    click.option("--ep", type=DEGREE, default=1, help="Expert parallelism."),
    click.option("--replicas", type=DEGREE, default=1, help="Independent instances."),
    click.option(
        "--domain", type=DEGREE, help="Chips of a hypothetical scale-up domain, behind switches."
    ),
    click.option("--rack", help="A rack that bounds it (dse hardware rack), or a rack file."),
    click.option(
        "--redundant-experts",
        type=Whole(0, 100_000),
        help="Copies of busy experts, a layer, over all ranks of expert parallelism.",
    ),
    click.option(
        "--routing-skew",
        type=Between(0.0, 10.0),
        help="Spread of how often experts are chosen: standard deviation over mean; 0 is uniform.",
    ),
    click.option(
        "--weight-dtype",
        help="bf16, fp8, fp8_block (128 x 128), int8, int4, nvfp4, mxfp4; else the model's.",
    ),
    click.option("--kv-dtype", help="Format of the KV cache; bf16 unless the checkpoint says."),
    click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length."),
    click.option("--output-tokens", type=LOAD, default=512, help="Output length."),
    click.option(
        "--workload",
        "workloads",
        type=Weighted(),
        multiple=True,
        help="In place of the lengths, once for each of several: chat=0.7:1000/250 is a share of "
        "0.7 of the requests, 1,000 prompt and 250 output tokens.",
    ),
    click.option("--concurrency", type=LOAD, default=32, help="Requests in flight, all chips."),
    click.option(
        "--serving",
        metavar="KIND",
        type=click.Choice(["continuous", "static", "offline", "poisson", "disaggregated"]),
        default="continuous",
        help="continuous batching in a closed loop, static (one batch), offline (all queued), "
        "poisson (arrivals at random) or disaggregated (estimate alone).",
    ),
    click.option(
        "--requests-per-second",
        type=Between(1e-9, 1e9),
        help="Rate of Poisson arrivals, of all workloads together.",
    ),
    click.option("--draft-tokens", type=Whole(1, 64), help="Tokens drafted a step (speculative)."),
    click.option(
        "--acceptance", type=Between(0.0, 1.0), help="Chance that a drafted token is accepted."
    ),
    click.option(
        "--draft-share",
        type=Between(0.0, 10.0),
        help="A drafted token's time over a decode step's; else an MTP module of one layer drafts.",
    ),
    click.option(
        "--prefix-hit-rate", type=Between(0.0, 0.999), help="Share of prompt tokens in the cache."
    ),
    click.option(
        "--network-overlap",
        type=Between(0.0, 1.0),
        help="Share of the shorter of network and device time that is hidden behind the other.",
    ),
    click.option(
        "--jitter", metavar="TIME", help="Mean delay of each chip in a collective, such as 10us."
    ),
    click.option(
        "--jitter-distribution", metavar="NAME", help="exponential, normal or pareto delays."
    ),
    click.option(
        "--weights-offload",
        type=Between(0.0, 1.0),
        help="Share of the weights that lies in a memory tier behind the device memory.",
    ),
    click.option("--kv-offload", type=Between(0.0, 1.0), help="The same of the KV cache."),
    click.option(
        "--offload-tier",
        metavar="TIER",
        help="Where they lie: host (DRAM; the default), flash, or a second memory of the chip.",
    ),
    click.option(
        "--backend",
        help="Serving software (hardware/backends); generic unless the chip names its own.",
    ),
    click.option("--power-cap", help="Watts that a chip may draw, such as 500W; else as rated."),
    click.option(
        "--price-basis",
        default="rental_3yr",
        help="Basis of hardware/prices.csv, or owned_tco, which is computed.",
    ),
    click.option(
        "--average-load",
        metavar="TOKENS/TIME",
        help="Also price an average demand of so many tokens, input and output: 1B/day.",
    ),
    click.option(
        "--peak-over-average",
        metavar="X",
        help="Also price a demand whose peak, which the deployment is sized for, is so many times "
        "its average.",
    ),
    click.option("--training-tokens", help="Tokens the model was trained on, such as 15T."),
    click.option(
        "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
    ),
)


POINT_FLAGS = (
    "model", "chip", "settings",
    "tp", "pp", "dp", "ep", "replicas", "domain", "rack", "redundant_experts", "routing_skew",
    "weight_dtype", "kv_dtype",
    "prompt_tokens", "output_tokens", "workloads", "concurrency", "serving", "backend",
    "requests_per_second", "draft_tokens", "acceptance", "draft_share", "prefix_hit_rate",
    "network_overlap", "power_cap", "jitter", "jitter_distribution",
    "price_basis", "average_load", "peak_over_average", "training_tokens", "chip_files",
    "weights_offload", "kv_offload", "offload_tier",
)  # fmt: skip


def point_options(function: F) -> F:
    """The flags that describe one point."""
    for option in reversed((*_POINT_OPTIONS, efficiency_option)):
        function = option(function)
    return price_options(function)


_POOL_OPTIONS = (
    click.option("--prefill-chip", help="Chip of the prefill pool; else that of --chip."),
    click.option("--prefill-tp", type=DEGREE, default=1, help="Its tensor parallelism."),
    click.option("--prefill-dp", type=DEGREE, default=1, help="Its attention data parallelism."),
    click.option("--prefill-ep", type=DEGREE, default=1, help="Its expert parallelism."),
    click.option("--prefill-workers", type=DEGREE, default=1, help="Its workers."),
    click.option("--decode-workers", type=DEGREE, default=1, help="Workers of the decode pool."),
)


POOL_FLAGS = (
    "prefill_chip", "prefill_tp", "prefill_dp", "prefill_ep", "prefill_workers", "decode_workers",
)  # fmt: skip


def pool_options(function: F) -> F:
    """The flags of --serving disaggregated; --chip, --tp, --dp and --ep are the decode pool's."""
    for option in reversed(_POOL_OPTIONS):
        function = option(function)
    return function


def _refuse_unused(catalog: Catalog, chip: str) -> None:
    """Raises InputError where none of the efficiency files of the command has laws of the chip."""
    from dse.errors import InputError
    from dse.schema.efficiency import load_efficiency

    given = catalog.source.efficiency
    laws = catalog.efficiencies[catalog.chip(chip).efficiency]
    if given and not any(Path(file).resolve() == Path(laws.file).resolve() for file in given):
        ids = ", ".join(load_efficiency(file).id for file in given)
        raise InputError(
            f"laws of {ids}, and the chip is {chip}",
            file=given[0],
            field="--efficiency-file",
            accepted=f"laws of {chip} or of a chip that lends it its own",
        )


def jitter_of(jitter: str | None, distribution: str | None) -> tuple[float, str] | None:
    """(seconds, distribution) of --jitter and --jitter-distribution, None where neither is given.
    Raises InputError for a distribution that does not exist, or without a mean."""
    from dse import units
    from dse.errors import InputError
    from dse.schema.loader import did_you_mean
    from dse.schema.system import DISTRIBUTIONS

    if distribution is not None and distribution not in DISTRIBUTIONS:
        raise InputError(
            f"unknown distribution {distribution!r}{did_you_mean(distribution, DISTRIBUTIONS)}",
            field="--jitter-distribution",
            accepted=", ".join(DISTRIBUTIONS),
        )
    if jitter is None:
        if distribution is not None:
            raise InputError("--jitter is missing", accepted="a mean delay, such as --jitter 10us")
        return None
    return units.parse(jitter, "s", field="--jitter"), distribution or DISTRIBUTIONS[0]


def estimate_flags(
    flags: dict[str, Any],
    *,
    loads: list[dict[str, Any]] | None = None,
    keep: bool = False,
    study: dict[str, Any] | None = None,
):
    """The estimate that the flags of `point_options` ask for, under `loads` where they are given
    (dse.problem.loads), with what a finished study was made with beneath the flags."""
    from dse import units
    from dse.catalog import with_own_chips
    from dse.economics.tco import with_basis
    from dse.errors import InputError
    from dse.problem.loads import mix_of
    from dse.quality.laws import DEFAULT
    from dse.questions.estimate.energy import check_power_cap
    from dse.questions.estimate.point import estimate
    from dse.schema.costs import costs_of
    from dse.schema.derive import derive
    from dse.schema.model_catalog import resolve_model
    from dse.schema.rack import load_rack, resolve_rack
    from dse.space.batches import DOMAIN_AXIS, EXPERT_AXES

    for needed, listed in (("model", "models"), ("chip", "hardware")):
        if not flags[needed]:
            raise InputError(
                f"--{needed} is missing", accepted=f"an id that `dse {listed} list` prints"
            )
    known_dtypes(flags)
    catalog = read_catalog(flags["chip_files"])
    if study is not None:
        catalog = catalog.over(study)
    catalog, chip = catalog.with_chip(flags["chip"])
    if not flags.get("prefill_chip"):
        _refuse_unused(catalog, chip)
    if flags["settings"]:
        hypothetical = derive(catalog, chip, flags["settings"])
        catalog, chip = with_own_chips(catalog, [hypothetical]), hypothetical.chip.id
    costs = flags.get("costs")
    catalog = with_basis(catalog, flags["price_basis"], costs_of(costs) if costs else None)
    model = resolve_model(flags["model"])
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
            if all(block.kind != "moe" for block in model.blocks):
                flag = f"--{name.replace('_', '-')}"
                raise InputError(
                    f"{model.name} has no experts", field=flag, accepted="no such flag"
                )
            deployment[name] = flags[name]
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
    return estimate(
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
        jitter=jitter_of(flags["jitter"], flags["jitter_distribution"]),
        backend_default=backend_default,
        rack=load_rack(resolve_rack(flags["rack"])) if flags["rack"] else None,
        law=flags.get("law") or DEFAULT,
        demand=_demand(flags["average_load"], flags["peak_over_average"]),
    )


def _demand(average: str | None, peak_over_average: str | None) -> Any:
    """The demand that the flags describe, None without them."""
    from dse.errors import InputError
    from dse.schema.load import read_demand

    if average is None and peak_over_average is None:
        return None
    try:
        return read_demand(average, 1.0 if peak_over_average is None else peak_over_average)
    except InputError as error:
        flag = {"average": "--average-load", "peak_over_average": "--peak-over-average"}
        raise InputError(
            error.message, field=flag[str(error.field)], accepted=error.accepted
        ) from None


def trained_on(model: Any, text: str) -> Any:
    """The model with the tokens of --training-tokens. Raises InputError for too few or too many."""
    from dataclasses import replace

    from dse import units

    field = "--training-tokens"
    tokens = units.parse(text, "tokens", field=field)
    return replace(model, training_tokens=units.check_training_tokens(tokens, text, field=field))


def known_dtypes(flags: dict[str, Any]) -> None:
    """Puts the formats of the flags in their own spelling. Raises InputError for an unknown one."""
    from dse.errors import InputError
    from dse.schema.dtypes import ALIASES, DTYPES

    for name in ("weight_dtype", "kv_dtype"):
        value = flags[name]
        if value is not None:
            value = ALIASES.get(value.lower(), value.lower())
            if value not in DTYPES:
                raise InputError(
                    f"unknown dtype {flags[name]!r}",
                    field=f"--{name.replace('_', '-')}",
                    accepted=", ".join(DTYPES),
                )
            flags[name] = value


def offload_of(flags: dict[str, Any], catalog: Any, chip: str) -> dict[str, Any]:
    """Shares in a memory tier, and its name, where anything is put there."""
    from dse.errors import InputError
    from dse.schema.tiers import find_tier

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


def _loads(flags: dict[str, Any]) -> list[dict[str, Any]]:
    """The workloads of the flags, weights scaled to a sum of 1."""
    import math

    from dse.errors import InputError
    from dse.schema.workloads import DETAILS, check_details

    if flags["serving"] == "disaggregated":
        raise InputError(
            "pools of their own for prefill and decode are estimated alone",
            field="--serving",
            accepted="dse estimate --serving disaggregated, or another kind of serving",
        )
    details = {name: flags[name] for name in DETAILS if flags[name] is not None}
    check_details(flags["serving"], details)
    if flags["serving"] == "poisson":
        refuse(["concurrency"], "--serving poisson: requests in flight follow from the rate")
    common = {"serving": flags["serving"], "backend": flags["backend"], **details}
    given = flags["workloads"]
    if not given:
        return [common | {name: flags[name] for name in TOKENS}]
    refuse(TOKENS, "--workload")
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
