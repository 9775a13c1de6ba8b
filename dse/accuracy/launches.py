"""How the server of a measured row was launched, where that is known, in fields of its backend.

The row itself may say so (SETTINGS, optional columns of the format). For InferenceX its scripts do
(github:SemiAnalysisAI/InferenceX, benchmarks/, read 2026-11-23):

- SGLang on Blackwell looks for new requests every 10 decode steps below 16 requests in flight and
  every 30 from there on (dsr1_fp8_b200.sh, dsr1_fp4_b200.sh, qwen3.5_fp8_b200.sh:
  SCHEDULER_RECV_INTERVAL), with an 8-bit cache but for weights of 16 bits (the same). A step takes
  32,768 tokens, for DeepSeek-R1 in fp4 or at TP 4 16,384 and fewer (the same scripts and
  dsr1_fp8_h200.sh: CHUNKED_PREFILL_SIZE). On MI300X it takes 131,072 tokens and schedules every 4
  decode steps (dsr1_fp8_mi300x.sh: num-continuous-decode-steps).
- vLLM schedules a step while the last one runs (async-scheduling: true in all its scripts, and by
  default from 0.14 on: vllm-project/vllm pull request 31998, deepjavalibrary/djl issue 3833). Its
  cache is 8-bit for Llama-3-70B (70b_fp8_b200_docker.sh and its kin) and, from vLLM 0.11.2 on, for
  gpt-oss on B200 (perf-changelog.yaml, pull request 273). So it is on Hopper for Llama-3-70B, but
  there it is widened before it is read and shortens no step (docs.vllm.ai, v0.11.2, quantized KV
  cache): its time is that of 16 bits, and what memory admits is told too small.
- Until its pull request 480 (opened 2026-01-17, merged ten days later by its own words) the client
  sent no requests to warm the server up, since then twice as many as it keeps in flight. SGLang
  builds some kernels when a shape first comes (its pull request 4858: 1,187 tokens/s in a first
  run, 11,200 later). The first burst then takes COLD_S longer: ten times the mean less the median
  time to first token is 3.5 to 4.0 s in 4 runs of DeepSeek-R1 on MI300X at 4 to 16 requests of
  1,024 tokens (github:gminneci/mantile, run_20720630953/agg_bmk.json; 8.6 to 11.8 s at 8,192), and
  an empty cache costs another server 2.7 s (github:lightseekorg/tokenspeed, pull request 921); 3 s
  for all is assumed. vLLM and TensorRT-LLM run their shapes before they serve.
- TensorRT-LLM takes the prompt, the requests in flight and 64 tokens a step for DeepSeek-R1, in
  whole 64 (dsr1_fp8_h200_trt_slurm.sh: MAX_NUM_TOKENS), and from release 1.2 on 8,192 at least
  (dsr1_fp4_b200_trt.sh); for gpt-oss 20,000 (gptoss_fp4_h200_trt_slurm.sh). With attention
  data-parallel it holds prompts back until every rank has one or 60 steps have passed (the same
  scripts: enable_balance, timeout_iters). DeepSeek-R1 streams every 10 steps (stream_interval);
  that the first token waits for them is inferred from the rows: on H200 it is 9 to 12 steps late
  from 4 to 32 requests in flight. Programmatic dependent launch is on by default from release 1.2
  on (NVIDIA/TensorRT-LLM issue 16330); before, the scripts of gpt-oss turn it on and those of
  DeepSeek-R1 do not.
- DeepSeek-R1 drafts with its module in the scripts dsr1_*_trt_mtp_slurm.sh: three tokens, with
  attention data-parallel one. The rows do not name their script, but these ran by themselves
  (perf-changelog.yaml): with pull request 392, merged in the week before 2026-01-14, on
  1.1.0rc2.post2, which the others had left by the end of 2025; and on 1.2.0rc6.post3 (632, 642),
  where the others stayed on 1.2.0rc6.post2 (594, 620).
- TensorRT-LLM lets prompts of Llama-3-70B with 1,024 tokens in and out below TP 8
  wait 20 steps for others (70b_fp8_h200_trt_slurm.sh, 70b_fp4_b200_trt_slurm.sh:
  batch_wait_timeout_iters).

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
from dataclasses import replace
from typing import Any

import numpy as np

from dse.accuracy.rows import Row, read_row
from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.workload import POISSON
from dse.schema.backend import Backend
from dse.schema.model import Model
from dse.space.batches import DRAFT_AXIS

SETTINGS = ("chunk_tokens", "max_running_requests", "poll_steps")
MLPERF = "MLPerf Inference"
INFERENCEX = ("InferenceX DB", "InferenceMAX run")
NOMINAL = (1024.0, 8192.0)  # its prompts
WARMED_SINCE = "2026-01-27"
COLD_S = 3.0
LATE_STEPS = 10.0
OLD_TRTLLM = re.compile(r"trtllm( 1\.[01]\..*)?")  # the rows of early November 2025 name no release
OLD_VLLM = re.compile(r"vllm (?:\S*v)?0\.(\d|1[0-3])\..*")
# Releases of the scripts that draft, and the first day on which they ran on each.
DRAFTED = {"trtllm 1.1.0rc2.post2": "2026-01-14", "trtllm 1.2.0rc6.post3": "2026-02-01"}
EARLY = "early_launch"
MEASURED = re.compile(r"measured=(\d{4}-\d\d-\d\d)")


def read_launched(
    cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]
) -> Row:
    """As `read_row`, with the launch of its server. Raises InputError for a setting that is no
    number of at least 1."""
    row = read_row(cells, catalog, models)
    said = {name: _number(name, cells[name]) for name in SETTINGS if cells[name]}
    known: dict[str, float] = {}
    if row.backend == "vllm" and OLD_VLLM.fullmatch(cells["engine"].lower()):
        known["overlapped"] = 0.0
    assumed = [row.assumed]
    if any(sign in cells["notes"] for sign in INFERENCEX):
        known |= _of_inferencex(cells, row)
        row = _as_its_script(cells, row, assumed)
    elif cells["notes"].startswith(MLPERF):
        known |= _of_mlperf(row, catalog)
    assumed += [f"{name} {value:g}" for name, value in known.items() if name not in said]
    text = "; ".join(filter(None, assumed))
    return replace(row, launch=tuple(sorted((known | said).items())), assumed=text)


def _as_its_script(cells: Mapping[str, str], row: Row, assumed: list[str]) -> Row:
    """With the cache and the drafts of InferenceX's script; what is filled in joins `assumed`."""
    cache = "" if cells["kv_dtype"] else _cache(cells, row)
    if cache and cache != row.kv_dtype:
        assumed.append(f"by its script KV cache {cache}")
        row = replace(row, kv_dtype=cache)
    if cells["speculative"] != "off" and _drafts(cells, row):
        drafted = 3.0 if row.deployment["data_parallel"] == 1.0 else 1.0
        assumed.append(f"by its script {drafted:g} drafted")
        row = replace(row, deployment=row.deployment | {DRAFT_AXIS: drafted})
    return row


def _cache(cells: Mapping[str, str], row: Row) -> str:
    """The format of the cache that InferenceX's script asks for, or nothing."""
    model, chip, engine = row.model.id, row.chip, cells["engine"].lower()
    if row.backend == "vllm" and chip == "b200_sxm":
        later = model == "gpt-oss-120b" and engine != "vllm"
        return "fp8" if later or model == "llama-3-70b" else ""
    if row.backend == "sglang-interval-30" and row.weight_dtype != "bf16":
        return "fp8"
    return ""


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


def _of_inferencex(cells: Mapping[str, str], row: Row) -> dict[str, float]:
    known = _server(cells, row)
    if row.backend.startswith("sglang") and cells["date"] < WARMED_SINCE:
        known |= {"cold_s": COLD_S}
    return known


def _of_mlperf(row: Row, catalog: Catalog) -> dict[str, float]:
    """Of an open loop: offline runs wait for nobody."""
    if row.serving != POISSON:
        return {}
    if row.backend == "vllm" and catalog.chips[row.chip].vendor == "AMD":
        return {"poll_steps": 10.0}
    late = row.backend == "trtllm" and row.model.id == "deepseek-v3"
    return {"first_token_steps": LATE_STEPS} if late else {}


def _server(cells: Mapping[str, str], row: Row) -> dict[str, float]:
    """Settings of the server that the scripts start."""
    if row.backend.startswith("sglang"):
        return _sglang(row)
    if row.backend == "vllm":
        return {"overlapped": 1.0}
    if row.backend != "trtllm":
        return {}
    prompt = NOMINAL[int(float(cells["prompt_tokens"]) > NOMINAL[0])]
    output = NOMINAL[int(float(cells["output_tokens"]) > NOMINAL[0])]
    model, degree = row.model.id, row.deployment["tensor_parallel"]
    if model == "gpt-oss-120b":
        return {"chunk_tokens": 20000.0}
    if model == "llama-3-70b" and prompt == output == NOMINAL[0] and degree < 8.0:
        return {"first_token_steps": 20.0}
    if model != "deepseek-v3":
        return {}
    tokens = math.ceil((prompt + row.deployment["concurrency"] + 64.0) / 64.0) * 64.0
    old = OLD_TRTLLM.fullmatch(cells["engine"])
    found = {
        "chunk_tokens": tokens if old else max(tokens, 8192.0),
        "first_token_steps": LATE_STEPS,
    }
    if old:
        found[EARLY] = 0.0
    alone = row.deployment["data_parallel"] == 1.0
    return found if alone else found | {"poll_steps": 60.0}


def _sglang(row: Row) -> dict[str, float]:
    where = (row.model.id, row.chip)
    if row.backend == "sglang-interval-30":
        poll = {"poll_steps": 10.0 if row.deployment["concurrency"] < 16.0 else 30.0}
        wide = row.model.id != "deepseek-v3" or (
            row.weight_dtype == "fp8" and row.deployment["tensor_parallel"] == 8.0
        )
        return poll | {"chunk_tokens": 32768.0} if wide else poll
    if where == ("deepseek-v3", "mi300x"):
        return {"chunk_tokens": 131072.0, "poll_steps": 4.0}
    return {"chunk_tokens": 32768.0} if where == ("deepseek-v3", "h200_sxm") else {}


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 1.0 or math.isinf(value):
        raise InputError(f"{name} {text!r} is not a number of at least 1")
    return value
