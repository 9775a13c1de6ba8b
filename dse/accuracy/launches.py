"""How the server of a measured row was launched, where that is known, in fields of its backend.

The row itself may say so (SETTINGS, optional columns of the format). For InferenceX its scripts do
(github:SemiAnalysisAI/InferenceX, benchmarks/):

- SGLang on Blackwell looks for new requests every 10 decode steps below 16 requests in flight and
  every 30 from there on (dsr1_fp8_b200.sh, dsr1_fp4_b200.sh, qwen3.5_fp8_b200.sh:
  SCHEDULER_RECV_INTERVAL);
- TensorRT-LLM takes the prompt, the requests in flight and 64 tokens a step for DeepSeek-R1, in
  whole 64 (dsr1_fp8_h200_trt_slurm.sh: MAX_NUM_TOKENS), and from release 1.2 on 8,192 at least
  (dsr1_fp4_b200_trt.sh); for gpt-oss 20,000 (gptoss_fp4_h200_trt_slurm.sh: --max_num_tokens).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from dse.errors import InputError

Launch = tuple[tuple[str, float], ...]
SETTINGS = ("chunk_tokens", "max_running_requests", "poll_steps")
NOMINAL = (1024.0, 8192.0)  # prompts of InferenceX
OLD_TRTLLM = re.compile(r"trtllm( 1\.[01]\..*)?")  # 2025's rows do not name the release


def launch_of(cells: Mapping[str, str], backend: str, concurrency: float) -> Launch:
    """Fields of the backend that differ from its file. Raises InputError for a setting that is no
    positive number."""
    said = {name: _number(name, cells[name]) for name in SETTINGS if cells[name]}
    if "InferenceX DB" in cells["notes"]:
        said = _of_inferencex(cells, backend, concurrency) | said
    return tuple(sorted(said.items()))


def _of_inferencex(cells: Mapping[str, str], backend: str, concurrency: float) -> dict[str, float]:
    if backend == "sglang-interval-30":
        return {"poll_steps": 10.0 if concurrency < 16.0 else 30.0}
    if backend != "trtllm":
        return {}
    if cells["model"] == "gpt-oss-120b":
        return {"chunk_tokens": 20000.0}
    if cells["model"] != "deepseek-v3":
        return {}
    prompt = min(size for size in NOMINAL if size >= float(cells["prompt_tokens"]))
    tokens = math.ceil((prompt + concurrency + 64.0) / 64.0) * 64.0
    old = OLD_TRTLLM.fullmatch(cells["engine"])
    return {"chunk_tokens": tokens if old else max(tokens, 8192.0)}


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 1.0 or math.isinf(value):
        raise InputError(f"{name} {text!r} is not a number of at least 1")
    return value
