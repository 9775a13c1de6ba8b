"""The flags that describe one point, and the estimate that they ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import click

from dse.cli.options import (
    DEGREE,
    LOAD,
    Between,
    F,
    chip_files_option,
    chip_option,
    degree_options,
    deployed_options,
    efficiency_option,
    model_option,
    options,
    prefill_options,
    price_options,
    refuse,
)


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
    model_option,
    chip_option,
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A hypothetical chip, one figure changed: hbm_bandwidth=2x, capacity=+20%, "
        "link=900GB/s (dse catalog chips derive); topology=through_host: cards without "
        "peer-to-peer.",
    ),
    *degree_options,
    click.option("--replicas", type=DEGREE, default=1, help="Independent instances."),
    click.option(
        "--domain", "scale_up_domain", type=DEGREE, help="Chips of a hypothetical scale-up domain."
    ),
    click.option("--rack", help="That bounds it (dse catalog racks list), or a file."),
    click.option(
        "--routing-skew",
        type=Between(0.0, 10.0),
        help="Deviation over mean of how often experts are chosen.",
    ),
    *deployed_options(),
    click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length."),
    click.option("--output-tokens", type=LOAD, default=512, help="Output length."),
    click.option(
        "--workload",
        "workloads",
        type=Weighted(),
        multiple=True,
        help="One of several, in place of the lengths: chat=0.7:1000/250 is a share of 0.7 of the "
        "requests, 1,000 prompt and 250 output tokens.",
    ),
    click.option("--concurrency", type=LOAD, default=32, help="Requests in flight, all chips."),
    click.option(
        "--serving",
        metavar="KIND",
        type=click.Choice(["continuous", "static", "offline", "poisson", "disaggregated"]),
        default="continuous",
        help="continuous (a closed loop), static (one batch), offline (all queued), poisson "
        "(arrivals at random) or disaggregated (two pools).",
    ),
    click.option(
        "--requests-per-second",
        type=Between(1e-9, 1e9),
        help="Of Poisson arrivals, of all workloads.",
    ),
    click.option("--jitter", metavar="TIME", help="Mean delay of a chip in a collective: 10us."),
    click.option(
        "--weights-offload",
        "weights_offloaded",
        type=Between(0.0, 1.0),
        help="Share of the weights in a slower memory tier.",
    ),
    click.option(
        "--kv-offload", "kv_offloaded", type=Between(0.0, 1.0), help="The same of the KV cache."
    ),
    click.option(
        "--offload-tier",
        metavar="TIER",
        help="host (the default), flash, or a second memory.",
    ),
    click.option("--power-cap", help="Of a chip, such as 500W; else as rated."),
    click.option(
        "--price-basis",
        default="rental_3yr",
        help="Of hardware/prices.csv, or owned_tco.",
    ),
    click.option(
        "--average-load",
        metavar="TOKENS/TIME",
        help="Also price this average demand: 1B/day.",
    ),
    click.option(
        "--peak-over-average",
        metavar="X",
        help="Also price a demand whose peak is X times its mean.",
    ),
    click.option("--training-tokens", help="Of the model, such as 15T."),
    chip_files_option,
)


def _names(options: Iterable[Callable[[Any], Any]]) -> tuple[str, ...]:
    """The names of the parameters that options make."""

    def holder() -> None: ...

    for option in options:
        option(holder)
    return tuple(str(param.name) for param in getattr(holder, "__click_params__", ()))


POINT_FLAGS = _names(_POINT_OPTIONS)


def point_options(function: F, prices: Callable[[F], F] = price_options) -> F:
    """The flags that describe one point, and those of its prices."""
    return prices(options((*_POINT_OPTIONS, efficiency_option))(function))


_POOL_OPTIONS = (
    *prefill_options,
    click.option("--prefill-workers", type=DEGREE, default=1, help="Its workers."),
    click.option("--decode-workers", type=DEGREE, default=1, help="Workers of the decode pool."),
)


POOL_FLAGS = _names(_POOL_OPTIONS)


# The flags of --serving disaggregated; --chip, --tp, --dp and --ep are the decode pool's.
pool_options = options(_POOL_OPTIONS)


# Titles of the help of a point's options.
POINT_SECTIONS = {
    "Deployment": (
        *("tp", "pp", "dp", "ep", "replicas", "concurrency", "redundant_experts"),
        *("weight_dtype", "kv_dtype", "draft_tokens", "domain", "rack", "routing_skew"),
        *("weights_offload", "kv_offload", "offload_tier", "power_cap"),
    ),
    "Workload": (*TOKENS, "workloads", "serving", "requests_per_second", "prefix_hit_rate"),
    "Serving software": (
        *("backend", "tuning", "max_running_requests", "network_overlap", "acceptance"),
        *("jitter"),
    ),
    "Pools of --serving disaggregated (the others are those of decode)": POOL_FLAGS,
    "Prices": (*("price_basis", "prices", "as_of", "costs", "average_load", "peak_over_average"),),
}
# The same of a verb that has no more to say of them.
OF_POINT = {
    "A point, as in dse estimate --help": {*POINT_FLAGS, *POOL_FLAGS} - {"model", "chip"},
}
# What does not go with two pools, and why.
_NOT_OF_POOLS = {
    "law": "it predicts no loss",
    "loss_runs": "it predicts no loss",
    "settings": "it takes the file of `dse catalog chips derive`",
    "replicas": "it has --prefill-workers and --decode-workers",
    "workloads": "one closed loop",
    "requests_per_second": "one closed loop",
    "average_load": "two pools",
    "peak_over_average": "two pools",
    "detail": "two pools",
}


def check_load(flags: dict[str, Any], *, pools: bool = False) -> None:
    """Raises InputError where the flags of the workload contradict each other; `pools` of a verb
    with the flags of two."""
    if pools and flags["serving"] == "disaggregated":
        for name, reason in _NOT_OF_POOLS.items():
            refuse([name], f"--serving disaggregated: {reason}")
    elif pools:
        refuse(POOL_FLAGS, "one pool: it takes --serving disaggregated")
    if flags["serving"] == "poisson":
        refuse(["concurrency"], "--serving poisson: requests in flight follow from the rate")
    if flags["workloads"]:
        refuse(TOKENS, "--workload")
