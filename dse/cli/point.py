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
    chip_option,
    deployed_options,
    efficiency_option,
    model_option,
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
        help="A hypothetical chip, --chip with one figure changed: hbm_bandwidth=2x, "
        "capacity=+20%, link=900GB/s (dse catalog chips derive). topology=through_host: PCIe cards "
        "without peer-to-peer.",
    ),
    click.option("--tp", type=DEGREE, default=1, help="Tensor parallelism."),
    click.option("--pp", type=DEGREE, default=1, help="Pipeline stages."),
    click.option("--dp", type=DEGREE, default=1, help="Attention data parallelism."),
    click.option("--ep", type=DEGREE, default=1, help="Expert parallelism."),
    click.option("--replicas", type=DEGREE, default=1, help="Independent instances."),
    click.option(
        "--domain", type=DEGREE, help="Chips of a hypothetical scale-up domain, behind switches."
    ),
    click.option("--rack", help="A rack that bounds it (dse catalog racks list), or a rack file."),
    click.option(
        "--routing-skew",
        type=Between(0.0, 10.0),
        help="Spread of how often experts are chosen: standard deviation over mean; 0 is uniform.",
    ),
    *deployed_options(),
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


def _names(options: Iterable[Callable[[Any], Any]]) -> tuple[str, ...]:
    """The names of the parameters that options make."""

    def holder() -> None: ...

    for option in options:
        option(holder)
    return tuple(str(param.name) for param in getattr(holder, "__click_params__", ()))


POINT_FLAGS = _names(_POINT_OPTIONS)


def point_options(function: F, prices: Callable[[F], F] = price_options) -> F:
    """The flags that describe one point, and those of its prices."""
    for option in reversed((*_POINT_OPTIONS, efficiency_option)):
        function = option(function)
    return prices(function)


_POOL_OPTIONS = (
    click.option("--prefill-chip", help="Chip of the prefill pool; else that of --chip."),
    click.option("--prefill-tp", type=DEGREE, default=1, help="Its tensor parallelism."),
    click.option(
        "--prefill-pp", type=DEGREE, default=None, help="Its pipeline stages.  [default: --pp]"
    ),
    click.option("--prefill-dp", type=DEGREE, default=1, help="Its attention data parallelism."),
    click.option("--prefill-ep", type=DEGREE, default=1, help="Its expert parallelism."),
    click.option("--prefill-workers", type=DEGREE, default=1, help="Its workers."),
    click.option("--decode-workers", type=DEGREE, default=1, help="Workers of the decode pool."),
)


POOL_FLAGS = _names(_POOL_OPTIONS)


def pool_options(function: F) -> F:
    """The flags of --serving disaggregated; --chip, --tp, --dp and --ep are the decode pool's."""
    for option in reversed(_POOL_OPTIONS):
        function = option(function)
    return function


def check_load(flags: dict[str, Any]) -> None:
    """Raises InputError where the flags of the workload contradict each other."""
    if flags["serving"] == "poisson":
        refuse(["concurrency"], "--serving poisson: requests in flight follow from the rate")
    if flags["workloads"]:
        refuse(TOKENS, "--workload")
