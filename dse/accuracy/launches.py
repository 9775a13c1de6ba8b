"""How the server of a measured row was launched, where that is known, in fields of its backend.

The row itself may say so (SETTINGS, optional columns of the format). For InferenceX its scripts do
(github:SemiAnalysisAI/InferenceX, benchmarks/, read 2026-11-23):

- SGLang on Blackwell looks for new requests every 10 decode steps below 16 requests in flight and
  every 30 from there on (dsr1_fp8_b200.sh, dsr1_fp4_b200.sh, qwen3.5_fp8_b200.sh:
  SCHEDULER_RECV_INTERVAL); on MI300X it takes 131,072 tokens a step (dsr1_fp8_mi300x.sh).
- TensorRT-LLM takes the prompt, the requests in flight and 64 tokens a step for DeepSeek-R1, in
  whole 64 (dsr1_fp8_h200_trt_slurm.sh: MAX_NUM_TOKENS), and from release 1.2 on 8,192 at least
  (dsr1_fp4_b200_trt.sh); for gpt-oss 20,000 (gptoss_fp4_h200_trt_slurm.sh). With attention
  data-parallel it holds prompts back until every rank has one or 60 steps have passed (the same
  scripts: enable_balance, timeout_iters). DeepSeek-R1 streams every 10 steps (stream_interval);
  that the first token waits for them is inferred from the rows: on H200 it is 9 to 12 steps late
  from 4 to 32 requests in flight.
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
from dse.schema.backend import Backend
from dse.schema.model import Model

SETTINGS = ("chunk_tokens", "max_running_requests", "poll_steps")
INFERENCEX = ("InferenceX DB", "InferenceMAX run")
NOMINAL = (1024.0, 8192.0)  # its prompts
OLD_TRTLLM = re.compile(r"trtllm( 1\.[01]\..*)?")  # the rows of early November 2025 name no release


def read_launched(
    cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]
) -> Row:
    """As `read_row`, with the launch of its server. Raises InputError for a setting that is no
    number of at least 1."""
    row = read_row(cells, catalog, models)
    said = {name: _number(name, cells[name]) for name in SETTINGS if cells[name]}
    known: dict[str, float] = {}
    if any(sign in cells["notes"] for sign in INFERENCEX):
        known = _of_inferencex(cells, row)
    filled = [f"{name} {value:g}" for name, value in known.items() if name not in said]
    assumed = "; ".join(filter(None, (row.assumed, *filled)))
    return replace(row, launch=tuple(sorted((known | said).items())), assumed=assumed)


def launched(backend: Backend, rows: Sequence[Row]) -> Backend:
    """The backend as the rows' servers were launched: fields that differ have shape (rows,)."""
    said = [dict(row.launch) for row in rows]
    names = sorted({name for one in said for name in one})
    fields: dict[str, Any] = {
        name: np.array([one.get(name, getattr(backend, name)) for one in said]) for name in names
    }
    return replace(backend, **fields) if fields else backend


def _of_inferencex(cells: Mapping[str, str], row: Row) -> dict[str, float]:
    model, backend, concurrency = row.model.id, row.backend, row.deployment["concurrency"]
    if backend == "sglang-interval-30":
        return {"poll_steps": 10.0 if concurrency < 16.0 else 30.0}
    if backend == "sglang" and (model, row.chip) == ("deepseek-v3", "mi300x"):
        return {"chunk_tokens": 131072.0}
    if backend == "trtllm" and model == "gpt-oss-120b":
        return {"chunk_tokens": 20000.0}
    if backend != "trtllm" or model != "deepseek-v3":
        return {}
    prompt = NOMINAL[int(float(cells["prompt_tokens"]) > NOMINAL[0])]
    tokens = math.ceil((prompt + concurrency + 64.0) / 64.0) * 64.0
    old = OLD_TRTLLM.fullmatch(cells["engine"])
    found = {"chunk_tokens": tokens if old else max(tokens, 8192.0), "first_token_steps": 10.0}
    alone = row.deployment["data_parallel"] == 1.0
    return found if alone else found | {"poll_steps": 60.0}


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 1.0 or math.isinf(value):
        raise InputError(f"{name} {text!r} is not a number of at least 1")
    return value
