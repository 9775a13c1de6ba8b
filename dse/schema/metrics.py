"""The metrics that objectives and constraints may name, and how a limit on one is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dse import units
from dse.errors import InputError
from dse.schema.loader import did_you_mean

Direction = Literal["minimize", "maximize"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that an evaluation predicts.

    `dimension` is one of `dse.units`, or a unit that only metrics have: "tokens/s", "usd/Mtoken",
    "tokens/J", "J", "nats", "fraction", "days", "kWh", "chip-h". `direction` is the better one;
    `log` scales the metric by logarithm in the hypervolume, as cost, latency and energy are.
    """

    dimension: str
    direction: Direction
    log: bool
    meaning: str


METRICS: Mapping[str, Metric] = {
    "predicted_loss": Metric("nats", "minimize", False, "predicted pre-training loss per token"),
    "dense_equivalent_parameters": Metric(
        "count", "maximize", False, "size of the dense model of equal predicted quality"
    ),
    "usd_per_million_total_tokens": Metric(
        "usd/Mtoken", "minimize", True, "dollars per million tokens, input and output"
    ),
    "usd_per_million_input_tokens": Metric(
        "usd/Mtoken", "minimize", True, "dollars of prefill per million input tokens"
    ),
    "usd_per_million_output_tokens": Metric(
        "usd/Mtoken", "minimize", True, "dollars of decode per million output tokens"
    ),
    "usd_per_million_output_tokens_all_in": Metric(
        "usd/Mtoken", "minimize", True, "dollars in all per million output tokens"
    ),
    "tpot_s": Metric("s", "minimize", True, "time per output token, median"),
    "ttft_s": Metric("s", "minimize", True, "time to first token, median"),
    "ttft_mean_s": Metric("s", "minimize", True, "the same, mean, of Poisson arrivals"),
    "ttft_p90_s": Metric("s", "minimize", True, "its 90th percentile, of Poisson arrivals"),
    "ttft_p99_s": Metric("s", "minimize", True, "its 99th percentile, of Poisson arrivals"),
    "utilisation": Metric(
        "fraction", "minimize", False, "Poisson arrivals over the most that can be served"
    ),
    "e2e_s": Metric("s", "minimize", True, "time from request to last token, median"),
    "prefill_s": Metric("s", "minimize", True, "prefill of one prompt, or of a static batch"),
    "decode_step_s": Metric("s", "minimize", True, "one decode step at the running batch"),
    "latency_floor_s": Metric("s", "minimize", True, "roofline floor of a decode step"),
    "distance_to_floor": Metric("fraction", "minimize", False, "decode step over its floor"),
    "joules_per_output_token": Metric("J", "minimize", True, "energy per output token"),
    "tokens_per_joule": Metric("tokens/J", "maximize", True, "output tokens per joule"),
    "watts_per_chip": Metric("W", "minimize", True, "mean power of a chip while it serves"),
    "energy_data_movement_share": Metric(
        "fraction", "minimize", False, "share of the energy that moves data"
    ),
    "output_tokens_per_s": Metric("tokens/s", "maximize", False, "output rate of all chips"),
    "output_tokens_per_s_per_chip": Metric("tokens/s", "maximize", False, "output rate of a chip"),
    "output_tokens_per_s_per_user": Metric("tokens/s", "maximize", False, "1 / tpot_s"),
    "running_requests": Metric("count", "maximize", False, "requests that memory admits"),
    "training_days": Metric("days", "minimize", True, "days to train the model"),
    "training_usd": Metric("usd", "minimize", True, "dollars to train the model"),
    "training_kwh": Metric("kWh", "minimize", True, "energy to train the model"),
    "training_chip_hours": Metric("chip-h", "minimize", True, "chip-hours to train the model"),
    "training_mfu": Metric("fraction", "maximize", False, "share of peak arithmetic in training"),
    "lifetime_usd": Metric("usd", "minimize", True, "dollars to train and to serve the forecast"),
    "lifetime_serving_share": Metric(
        "fraction", "minimize", False, "share of these dollars that serving takes"
    ),
    "lifetime_flops": Metric("flop", "minimize", True, "FLOP of both, 6 N D + 2 N tokens served"),
    "lifetime_chip_hours": Metric("chip-h", "minimize", True, "chip-hours of both"),
    "memory_bytes_per_chip": Metric("bytes", "minimize", False, "memory used on a chip"),
    "memory_capacity_bytes_per_chip": Metric("bytes", "maximize", False, "memory of a chip"),
    "kv_bytes_per_token": Metric("bytes", "minimize", False, "cache of one token, whole model"),
    "mfu": Metric("fraction", "maximize", False, "share of peak arithmetic"),
    "mbu": Metric("fraction", "maximize", False, "share of peak memory bandwidth"),
    "total_parameters": Metric("count", "minimize", False, "parameters of the model"),
    "active_parameters": Metric("count", "minimize", False, "parameters that one token uses"),
    "training_tokens": Metric("tokens", "maximize", False, "tokens the model is trained on"),
    "training_flops": Metric(
        "flop", "minimize", True, "training compute: 6 x active parameters x training tokens"
    ),
    "num_attention_heads": Metric("count", "maximize", False, "query heads of an attention layer"),
    "num_key_value_heads": Metric(
        "count", "maximize", False, "KV heads of an attention layer, the fewest"
    ),
    "query_heads_per_kv_head": Metric(
        "count", "minimize", False, "query heads that share a KV head, the most; 1 with MLA"
    ),
    "full_attention_layers": Metric(
        "count", "maximize", False, "layers in which a token may attend to all before it"
    ),
    "full_attention_share": Metric("fraction", "maximize", False, "these over all layers"),
    "chips": Metric("count", "minimize", False, "chips of the deployment"),
    "chip_usd_per_hour": Metric("usd/h", "minimize", True, "price of one chip for one hour"),
}

# Units that only metrics have: what may follow the number, and its factor.
_UNITS: Mapping[str, Mapping[str, float]] = {
    "tokens/s": {"tokens/s": 1.0, "token/s": 1.0, "tok/s": 1.0},
    "usd/Mtoken": {
        "usd/Mtoken": 1.0, "USD/Mtoken": 1.0, "$/Mtoken": 1.0,
        "usd/Mtokens": 1.0, "USD/Mtokens": 1.0, "$/Mtokens": 1.0,
    },
    "tokens/J": {"tokens/J": 1.0, "token/J": 1.0},
    "J": {"J": 1.0, "mJ": 1e-3, "kJ": 1e3},
    "days": {"days": 1.0, "day": 1.0},
    "kWh": {"kWh": 1.0, "MWh": 1e3, "GWh": 1e6},
    "chip-h": {"chip-h": 1.0, "kchip-h": 1e3, "Mchip-h": 1e6},
    "nats": {"": 1.0, "nats": 1.0},
    "fraction": {"": 1.0, "%": 1e-2},
}  # fmt: skip
# Sizes of models are counts too: "70B" is read as it is for tokens.
_READ_AS = {"count": "tokens"}
_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_CONSTRAINT = re.compile(r"\s*([A-Za-z0-9_]+)\s*(<=|>=)\s*(.+?)\s*")


@dataclass(frozen=True, slots=True)
class Constraint:
    """`metric operator limit`, the limit in SI; `text` is what a person reads. `workload` names the
    one of several that it limits; empty: all."""

    metric: str
    operator: Literal["<=", ">="]
    limit: float
    text: str
    workload: str = ""


def metric(name: object) -> Metric:
    """Raises InputError with the nearest name for a metric that does not exist."""
    if isinstance(name, str) and name in METRICS:
        return METRICS[name]
    raise InputError(f"unknown metric {name!r}{did_you_mean(name, METRICS)}", accepted=_names())


def parse_constraint(text: object) -> Constraint:
    """`ttft_s <= 2 s` -> Constraint. Raises InputError: the form, the metric, the unit, a limit
    of zero (a constraint is scaled by its limit)."""
    match = _CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            f"read {text!r}: not `metric <= limit` or `metric >= limit`", accepted="ttft_s <= 2 s"
        )
    name, operator, limit = match[1], match[2], match[3]
    value = parse_limit(limit, metric(name).dimension)
    if value <= 0.0:
        raise InputError(f"read {text!r}: the limit is zero", accepted="a limit above zero")
    written = f"{name} {operator} {limit}"
    return Constraint(name, "<=" if operator == "<=" else ">=", value, written)


def parse_limit(text: str, dimension: str) -> float:
    """SI value of a limit on a metric of `dimension`. Raises InputError."""
    if dimension not in _UNITS:
        return units.parse(text, _READ_AS.get(dimension, dimension))
    known = _UNITS[dimension]
    number = _NUMBER.match(text)
    unit = text[number.end() :].strip() if number else text
    value = float(number[0]) if number else float("inf")
    if value == float("inf") or unit not in known:
        accepted = f"a finite number with {' or '.join(u or 'no unit' for u in known)}"
        raise InputError(f"read {text!r}: not a limit in {dimension}", accepted=accepted)
    return value * known[unit]


def _names() -> str:
    return ", ".join(METRICS)
