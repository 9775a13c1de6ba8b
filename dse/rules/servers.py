"""What the servers take of a layout.

Sources, read in 2026-11: vLLM 0.33.0 config/parallel.py; TensorRT-LLM 1.3 llmapi/llm_args.py and
documentation, quantization; SGLang 0.5.23 documentation, quantized KV cache.
"""

from __future__ import annotations

import numpy as np

from dse.rules.case import Case
from dse.rules.kinds import SERVERS, Found, Part, rule, said
from dse.schema.dtypes import DTYPES

# Formats of the KV cache that each of the three has a name for, beside 16 bits.
CACHES = ("fp8", "nvfp4")


@rule("server_names_cache_format")
def CACHE(case: Case) -> Found:
    if case.named in SERVERS:
        known = np.array([name in ("bf16", *CACHES) for name in DTYPES])
        cache = case.batch.kv_dtype
        yield Part(~known[cache], lambda i: f"a cache in {DTYPES[cache[i]]}")


@rule("experts_over_all_ranks_or_none")
def ALL_RANKS(case: Case) -> Found:
    ep, group = case.batch.expert_parallel, case.group
    words = said("expert parallelism {} in a group of {} chips", ep, group)
    yield Part((ep > 1.0) & (ep != group), words)


@rule("attention_tensor_or_data_parallel")
def EITHER(case: Case) -> Found:
    tp, dp = case.batch.tensor_parallel, case.batch.data_parallel
    words = said("tensor parallelism {} with data parallelism {}", tp, dp)
    yield Part((tp > 1.0) & (dp > 1.0), words)


@rule("data_parallel_attention_has_experts")
def DENSE(case: Case) -> Found:
    dp = case.batch.data_parallel
    words = said("data parallelism {} of a dense model", dp)
    yield Part((dp > 1.0) & ~case.batch.sparse.astype(bool), words)
