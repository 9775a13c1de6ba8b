"""A row of the measurement format, read into what the physics takes.

A row is one measured metric of one configuration. Its rules, applied here and printed with each
prediction: tp x pp x dp = n_chips (`tp` counts cores on trn1 and inf2); `dp` is attention
data-parallel for a sparse model and replicas for a dense one; empty `ep` is 1; an empty
`weight_dtype` is the checkpoint's own; an empty `kv_dtype` is fp8 for TensorRT-LLM with an fp8 or
4-bit checkpoint, otherwise bf16.

Three more come from how a row was measured, where its notes say so. InferenceX draws the lengths of
each request uniformly from 0.8 to 1 of the nominal ones (`--random-range-ratio 0.8` of its
scripts), so that a nominal length stands for a mean of 0.9 of it, and starts SGLang on Blackwell
with long stream and polling intervals. A mean length that is no whole number says the same of any
row; whole lengths are taken as equal ones. TensorRT-LLM's performance overview ran sparse models
with attention data-parallel over all the chips that it lists as tensor parallelism, and queued as
many requests as its table "Input Length | Output Length | num_requests" says. Requests of MLPerf's
server scenario arrive at random (`requests_per_s`, or the notes): an open loop, which no burst
starts. Where `concurrency` says how many were in flight in the mean, that counts, not the rate,
which near capacity says little of the load.

How the server of a measured row was launched, where that is known, in fields of its backend.

The row itself may say so (SETTINGS, optional columns of the format). For InferenceX its scripts do
(github:SemiAnalysisAI/InferenceX, benchmarks/, read 2026-11-23): `launch.csv` has what they say, a
field and its value in a row with the source. Its other cells are patterns of whole values, an empty
one fits all, and the first row of a field that fits counts. Beside its rows:

- The 8-bit cache of Llama-3-70B under vLLM is so on Hopper too, but there it is widened before it
  is read and shortens no step (docs.vllm.ai, v0.11.2, quantized KV cache): its time is that of 16
  bits, and what memory admits is told too small.
- Until its pull request 480 (opened 2026-01-17, merged ten days later by its own words) the client
  sent no requests to warm the server up, since then twice as many as it keeps in flight. SGLang
  builds some kernels when a shape first comes (its pull request 4858: 1,187 tokens/s in a first
  run, 11,200 later). The first burst then takes COLD_S longer: ten times the mean less the median
  time to first token is 3.5 to 4.0 s in 4 runs of DeepSeek-R1 on MI300X at 4 to 16 requests of
  1,024 tokens (github:gminneci/mantile, run_20720630953/agg_bmk.json; 8.6 to 11.8 s at 8,192), and
  an empty cache costs another server 2.7 s (github:lightseekorg/tokenspeed, pull request 921); 3 s
  for all is assumed. vLLM and TensorRT-LLM run their shapes before they serve.
- TensorRT-LLM with attention data-parallel holds prompts back until every rank has one or
  `poll_steps` have passed. DeepSeek-R1 streams every 10 steps; that the first token waits for them
  is inferred from the rows: on H200 it is 9 to 12 steps late from 4 to 32 requests in flight.
- DeepSeek-R1 drafts with its module in the scripts dsr1_*_trt_mtp_slurm.sh: three tokens, with
  attention data-parallel one. The rows do not name their script, but these ran by themselves
  (perf-changelog.yaml): with pull request 392, merged in the week before 2026-01-14, on
  1.1.0rc2.post2, which the others had left by the end of 2025; and on 1.2.0rc6.post3 (632, 642),
  where the others stayed on 1.2.0rc6.post2 (594, 620).
- Prompts of Llama-3-70B under TensorRT-LLM wait for others below TP 8 alone.

Of MLPerf's server rows two things are inferred:

- DeepSeek-R1 under TensorRT-LLM is as late there as in InferenceX, whose scripts have the 10 steps:
  with that number first tokens of B200 and GB200, of four submitters, are off by 34% and 17%,
  without it by 82% and 77%.
- vLLM on AMD runs 10 decode steps between two looks. No source of another campaign has such rows,
  and no submission's documents say it; vLLM had such a setting between 0.6 and 0.9 (pull request
  7000), and ROCm's images of then were started with 10. A first token takes 6 to 7 steps in all, at
  36 requests a chip as at 450. Without it these rows are off by 70%, with it by 36%.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.data import rows_beside
from dse.errors import InputError
from dse.physics.workload import POISSON, SERVING
from dse.schema.backend import TUNED, TUNINGS, Backend
from dse.schema.dtypes import ALIASES, BITS, DTYPES
from dse.schema.model import Model
from dse.schema.model_catalog import load_models, resolve_model
from dse.space.batches import DRAFT_AXIS

LOAD = ("prompt_tokens", "output_tokens", "concurrency", "requests_per_s")
NUMBERS = ("n_chips", "tp", "pp", "ep", "dp", *LOAD)
LARGEST_LOAD, LARGEST_COUNT = 100_000_000, 100_000
TEXTS = (
    "model",
    "chip",
    "weight_dtype",
    "kv_dtype",
    "engine",
    "serving",
    "metric",
    "speculative",
    "tuning",
    "date",
    "notes",
)
NEEDED = ("model", "chip", "serving", "metric", "prompt_tokens", "output_tokens")
RATES = ("output_tokens_per_s", "input_tokens_per_s", "total_tokens_per_s")
TIMES = ("ttft_s", "tpot_s", "prefill_s", "decode_step_s", "e2e_s")
EVERY_EXPERT = "optimum-habana"  # what `_with_every_expert` describes
INFERENCEX_DB = "InferenceX DB"
ATTENTION_DP = "enable_attention_dp true for MoE models"
OVERVIEW = "offline max throughput"  # TensorRT-LLM's performance overview
# Its requests by prompt and output tokens, the same in v0.17, v1.0 and v1.2.
QUEUED = {
    (128, 128): 30000, (128, 4096): 1500, (1000, 2000): 1500, (2048, 2048): 1500,
    (5000, 500): 1500, (8192, 1024): 1500, (1024, 8192): 1500, (20000, 2000): 1000,
    (32768, 1024): 1000, (1024, 32768): 1000,
}  # fmt: skip
OTHERWISE_QUEUED = 3000.0  # 128/2048, 500/2000, 1000/1000, 1024/1024, 2048/128
# A benchmark with Poisson arrivals, where its rate has no column.
ARRIVALS = re.compile(r"Poisson arrivals at ([0-9.]+)/s")
RANGE_RATIO = 0.8
# The backend whose sign the lower-cased name of an engine holds.
SIGNS = {
    "sglang": "sglang",
    "trtllm": "trtllm",
    "tensorrt": "trtllm",
    "neuron": "neuron",
    "llama.cpp": "llama-cpp",
    "ollama": "llama-cpp",
    "mlx": "llama-cpp",
}
# Chips whose `tp` counts cores.
CORES_PER_CHIP = {"trn1": 2.0, "inf2": 2.0}
SETTINGS = ("chunk_tokens", "max_running_requests", "poll_steps")
# What the notes of a campaign's rows begin with, or hold.
CAMPAIGNS = {
    "inferencex": re.compile(r".*(InferenceX DB|InferenceMAX run)"),
    "mlperf": re.compile("MLPerf Inference"),
}
NOMINAL = (1024.0, 8192.0)  # prompts of InferenceX, and outputs
LAUNCH = rows_beside(__file__, "launch.csv")
FACTS = tuple(LAUNCH[0])[:-3]  # its columns before field, value, source
WARMED_SINCE = "2026-01-27"
COLD_S = 3.0
# Releases of the scripts that draft, and the first day on which they ran on each.
DRAFTED = {"trtllm 1.1.0rc2.post2": "2026-01-14", "trtllm 1.2.0rc6.post3": "2026-02-01"}
EARLY = "early_launch"
MEASURED = re.compile(r"measured=(\d{4}-\d\d-\d\d)")


@dataclass(frozen=True, slots=True)
class Row:
    """One covered row. `deployment` holds the axes of `dse.space.batches.DEPLOYMENT_AXES`, and that
    of drafts where its server drafts;
    `length_spread`: lengths are uniform within their mean (1 +- it); `queued`:
    requests of an offline run, 0 where the row does not say; `launch`: fields of the backend that
    its server was started with; `requests_per_s` arrive at random, 0
    where there are no arrivals or the row has the requests in flight; `assumed` says what the row
    left open."""

    model: Model
    chip: str
    weight_dtype: str | None
    kv_dtype: str
    deployment: dict[str, float]
    prompt: float
    output: float
    length_spread: float
    queued: float
    requests_per_s: float
    serving: str
    backend: str
    metric: str
    assumed: str
    tuning: str = TUNED
    launch: tuple[tuple[str, float], ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What two rows of a serving and backend share that measure the same configuration."""
        return (
            *(self.model.id, self.model.source, self.chip, self.weight_dtype, self.kv_dtype),
            *(*self.deployment.values(), self.prompt, self.output, self.length_spread, self.queued),
            *(self.requests_per_s, self.launch),
        )

    @property
    def open_loop(self) -> bool:
        """Whether requests arrive at random and so many are in flight in the mean."""
        return self.serving == POISSON and not self.requests_per_s


def read_row(cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]) -> Row:
    """The row of `cells`, which has a text for each of NUMBERS and TEXTS; `models` remembers the
    models of earlier rows. Raises InputError with the reason why a row is not covered."""
    model = model_of(cells["model"], models)
    if cells["chip"] not in catalog.chips:
        raise InputError(f"no chip {cells['chip']!r}")
    metric = cells["metric"]
    serving = serving_of(cells["serving"], cells["requests_per_s"], cells["notes"])
    if serving not in (*SERVING, POISSON):
        raise InputError(f"serving {serving!r} is not modelled")
    if metric not in TIMES and metric not in RATES:
        raise InputError(f"metric {metric!r} is not modelled")
    if serving == "offline" and metric == "ttft_s":
        raise InputError("time to first token has no meaning offline")
    tuning = cells["tuning"] or TUNED
    if tuning not in TUNINGS:
        raise InputError(f"tuning {tuning!r} is not known")
    if cells["speculative"] == "on":
        raise InputError("speculative decoding, and the row does not say how many drafts pass")
    sparse = bool(model.experts)
    tp, pp, dp = (number(cells, axis, 1.0) for axis in ("tp", "pp", "dp"))
    tp = max(tp / CORES_PER_CHIP.get(cells["chip"], 1.0), 1.0)
    ep = number(cells, "ep", 1.0)
    backend, assumed = backend_of(cells["engine"])
    if sparse and EVERY_EXPERT in cells["engine"]:
        model = _with_every_expert(model)
        assumed.append("every expert computes every token")
    if sparse and ATTENTION_DP in cells["notes"] and not cells["dp"]:
        tp, dp, ep = 1.0, tp, tp
        assumed.append(f"attention data-parallel over {dp:g} chips, experts too")
    chips = number(cells, "n_chips", tp * pp * dp)
    replicas = chips / (tp * pp * dp)
    if replicas < 1.0 or replicas % 1.0:
        raise InputError("tp x pp x dp does not divide n_chips")
    catalog.require(cells["chip"], tp * pp * (dp if sparse else 1.0))
    weight = _dtype(cells["weight_dtype"], "weight_dtype") if cells["weight_dtype"] else None
    if weight is None:
        assumed.append("weights as in the published checkpoint")
    if cells["kv_dtype"]:
        kv = _dtype(cells["kv_dtype"], "kv_dtype")
    else:
        narrowest = weight or min(model.weight_dtypes.values(), key=BITS.__getitem__)
        # gpt-oss on Hopper: 16 bits in InferenceX's scripts and in TensorRT-LLM's overview, both.
        hopper = catalog.chips[cells["chip"]].family == "hopper"
        narrow = narrowest not in ("bf16", "int8") and not (hopper and narrowest == "mxfp4")
        kv = "fp8" if backend == "trtllm" and narrow else "bf16"
        assumed.append(f"KV cache {kv}")
    for axis, degree in (("dp", dp), ("ep", ep)):
        if sparse and not cells[axis] and degree == 1.0:
            assumed.append(f"{axis} 1")
    prompt, output = number(cells, "prompt_tokens"), number(cells, "output_tokens", 1.0)
    spread, concurrency, arriving, queued = 0.0, 1.0, 0.0, 0.0
    if OVERVIEW in cells["notes"]:
        queued = float(QUEUED.get((round(prompt), round(output)), OTHERWISE_QUEUED))
    if serving == POISSON and not cells["concurrency"]:
        arriving = number(cells, "requests_per_s")
    elif serving != "offline":
        concurrency = number(cells, "concurrency")
    if serving == "continuous":
        prompt, output, spread = _lengths(prompt, output, cells["notes"], assumed)
        blackwell = catalog.chips[cells["chip"]].family == "blackwell"
        if backend == "sglang" and INFERENCEX_DB in cells["notes"] and blackwell:
            backend = "sglang-interval-30"
    return Row(
        model=model,
        chip=cells["chip"],
        weight_dtype=weight,
        kv_dtype=kv,
        deployment={
            "tensor_parallel": tp,
            "pipeline_parallel": pp,
            "data_parallel": dp if sparse else 1.0,
            "expert_parallel": ep,
            "replicas": replicas if sparse else replicas * dp,
            "concurrency": concurrency,
        },
        prompt=prompt,
        output=output,
        length_spread=spread,
        queued=queued,
        requests_per_s=arriving,
        serving=serving,
        backend=backend,
        metric=metric,
        assumed="; ".join(assumed),
        tuning=tuning,
    )


def serving_of(serving: str, requests_per_s: str, notes: str) -> str:
    """The serving of a row: of a loop whose requests arrive at random, POISSON."""
    if serving == "continuous" and (requests_per_s or ARRIVALS.search(notes)):
        return POISSON
    return serving


def _with_every_expert(model: Model) -> Model:
    """The model as optimum-habana runs it: in static shapes, each expert computes all tokens, with
    weight 0 where it is not chosen (`gaudi_mixtral_block_sparse_moe_forward`)."""
    blocks = tuple(
        replace(block, sizes={**block.sizes, "experts_per_token": block.sizes["experts"]})
        if "experts" in block.sizes
        else block
        for block in model.blocks
    )
    return replace(model, blocks=blocks)


def _lengths(
    prompt: float, output: float, notes: str, assumed: list[str]
) -> tuple[float, float, float]:
    """(mean prompt, mean output, spread) of a closed loop's requests."""
    spread = (1.0 - RANGE_RATIO) / (1.0 + RANGE_RATIO)
    if prompt % 1.0 or output % 1.0:
        return prompt, output, spread
    if INFERENCEX_DB not in notes:
        return prompt, output, 0.0
    assumed.append("lengths drawn from 0.8 to 1 of the nominal")
    mean = (1.0 + RANGE_RATIO) / 2.0
    return prompt * mean, output * mean, spread


def backend_of(engine: str) -> tuple[str, list[str]]:
    """The backend of the software that a row names, and what had to be assumed for it."""
    text = engine.lower()
    if "vllm" in text:
        return ("vllm-2023" if "2023" in text else "vllm"), []
    if named := next((backend for sign, backend in SIGNS.items() if sign in text), ""):
        return named, []
    return "generic", [f"backend generic for {engine or 'an unnamed one'}"]


def interval_metric(metric: str) -> str:
    """The metric of `dse.physics.intervals` that a metric of the format has its interval from."""
    return "output_tokens_per_s" if metric in RATES else metric


def number(cells: Mapping[str, str], name: str, default: float | None = None) -> float:
    """A positive number: of LOAD, up to LARGEST_LOAD; else a count, whole and up to LARGEST_COUNT.
    Raises InputError where the cell holds none, or nothing without a default."""
    text = cells[name]
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} is {'empty' if not text else 'not a positive number'}")
    most = LARGEST_LOAD if name in LOAD else LARGEST_COUNT
    if value > most:
        raise InputError(f"{name} is above {most:,}")
    if name not in LOAD and value % 1.0:
        raise InputError(f"{name} is not a whole number")
    return value


def model_of(name: str, models: dict[str, Model | str]) -> Model:
    """The model of a row, remembered in `models`. Raises InputError where there is none."""
    if name not in models:
        known = name.lower() in load_models() or Path(name).exists()
        models[name] = resolve_model(name) if known else f"no model {name!r}"
    model = models[name]
    if isinstance(model, str):
        raise InputError(model)
    return model


def _dtype(text: str, name: str) -> str:
    value = ALIASES.get(text.lower(), text.lower())
    if value not in DTYPES:
        raise InputError(f"{name} {text!r} is not known")
    return value


def read_launched(
    cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]
) -> Row:
    """As `read_row`, with the launch of its server. Raises InputError for a setting that is no
    number of at least 1."""
    row = read_row(cells, catalog, models)
    said = {name: _number(name, cells[name]) for name in SETTINGS if cells[name]}
    campaign = next((name for name, of in CAMPAIGNS.items() if of.match(cells["notes"])), "")
    fields = _launch_fields(cells, row, campaign, catalog)
    cache = fields.pop("kv_dtype", "")
    known = {name: _launch_value(text, cells, row) for name, text in fields.items()}
    assumed = [row.assumed]
    if campaign == "inferencex":
        if row.backend.startswith("sglang") and cells["date"] < WARMED_SINCE:
            known["cold_s"] = COLD_S
        row = _as_its_script(cells, row, cache, assumed)
    assumed += [f"{name} {value:g}" for name, value in known.items() if name not in said]
    text = "; ".join(filter(None, assumed))
    return replace(row, launch=tuple(sorted((known | said).items())), assumed=text)


def _launch_fields(
    cells: Mapping[str, str], row: Row, campaign: str, catalog: Catalog
) -> dict[str, str]:
    """Of each field the value of the first row of launch.csv that fits."""
    facts = {
        "campaign": campaign,
        "serving": row.serving,
        "backend": row.backend,
        "engine": cells["engine"].lower(),
        "model": row.model.id,
        "chip": row.chip,
        "vendor": catalog.chips[row.chip].vendor,
        "weight_dtype": row.weight_dtype or "",
        **{name: f"{value:g}" for name, value in row.deployment.items()},
    }
    for name in ("prompt_tokens", "output_tokens"):
        facts[name] = f"{_nominal(cells, name):g}"
    found: dict[str, str] = {}
    for rule in LAUNCH:
        if all(re.fullmatch(rule[name], facts[name]) for name in FACTS if rule[name]):
            found.setdefault(rule["field"], rule["value"])
    return found


def _launch_value(text: str, cells: Mapping[str, str], row: Row) -> float:
    """The number of a value of launch.csv: `>=N` is the prompt, the requests in flight and 64
    tokens, in whole 64, and N at least."""
    if not text.startswith(">="):
        return float(text)
    asked = _nominal(cells, "prompt_tokens") + row.deployment["concurrency"] + 64.0
    return max(math.ceil(asked / 64.0) * 64.0, float(text.removeprefix(">=")))


def _nominal(cells: Mapping[str, str], name: str) -> float:
    return NOMINAL[number(cells, name, 1.0) > NOMINAL[0]]


def _as_its_script(cells: Mapping[str, str], row: Row, cache: str, assumed: list[str]) -> Row:
    """With the cache and the drafts of InferenceX's script; what is filled in joins `assumed`."""
    if cache and not cells["kv_dtype"] and cache != row.kv_dtype:
        assumed.append(f"by its script KV cache {cache}")
        row = replace(row, kv_dtype=cache)
    if cells["speculative"] != "off" and _drafts(cells, row):
        drafted = 3.0 if row.deployment["data_parallel"] == 1.0 else 1.0
        assumed.append(f"by its script {drafted:g} drafted")
        row = replace(row, deployment=row.deployment | {DRAFT_AXIS: drafted})
    return row


def _drafts(cells: Mapping[str, str], row: Row) -> bool:
    """Whether one of InferenceX's scripts with multi-token prediction ran it."""
    first, day = DRAFTED.get(cells["engine"].lower()), MEASURED.search(cells["notes"])
    return bool(row.model.id == "deepseek-v3" and first and day and day[1] >= first)


def launched(backend: Backend, rows: Sequence[Row]) -> Backend:
    """The backend as the rows' servers were launched: fields that differ have shape (rows,)."""
    said = [dict(row.launch) for row in rows]
    names = {name for one in said for name in one}
    early = backend.early_launch
    fields: dict[str, Any] = {
        name: np.array([one.get(name, getattr(backend, name)) for one in said])
        for name in sorted(names - {EARLY})
    }
    if EARLY in names and early is not None:
        on = np.array([one.get(EARLY, 1.0) for one in said]) > 0.0
        fields[EARLY] = replace(early, remaining=np.where(on, early.remaining, 1.0))
    return replace(backend, **fields) if fields else backend


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 1.0 or math.isinf(value):
        raise InputError(f"{name} {text!r} is not a number of at least 1")
    return value
