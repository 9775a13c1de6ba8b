"""A small space of two chips to ask what-if questions of."""

from __future__ import annotations

from typing import Any

from dse.problem.objective import TOTAL as COST
from dse.questions.whatif.inputs import apply, changes_of, inputs_of

__all__ = ["COST", "PAIR", "POISSON", "SPACE", "changed"]

SPACE = """\
name: pair
workload: {{prompt_tokens: {prompt}, output_tokens: {output}, serving: continuous}}
price_basis: rental_3yr
model: llama-3-8b
deployment:
  chip: [{chips}]
  replicas: 1
  tensor_parallel: [1, 2, 4]
  weight_dtype: [bf16, fp8]
  kv_dtype: bf16
  concurrency: [1, 4, 16, 64, 256]
objectives: {{usd_per_million_total_tokens: minimize, tpot_s: minimize}}
constraints: [ttft_s <= 2 s, tpot_s <= 20 ms]
"""
POISSON = """\
name: arrivals
workloads:
  - {name: chat, prompt_tokens: 500, output_tokens: 200, serving: poisson, requests_per_second: 3}
  - {name: code, prompt_tokens: 2000, output_tokens: 100, serving: poisson, requests_per_second: 1}
price_basis: rental_3yr
model: llama-3-8b
deployment: {chip: [h100_sxm], replicas: 1, tensor_parallel: [1, 2], weight_dtype: fp8,
  kv_dtype: bf16, concurrency: 1}
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
"""
PAIR: dict[str, Any] = {"prompt": 1000, "output": 200, "chips": "h100_sxm, mi300x"}


def changed(subject, *texts: str):
    """The problem of a subject under changes as `--set` takes them."""
    pairs = [(name, to) for name, _, to in (text.partition("=") for text in texts)]
    known = inputs_of(subject)
    return apply(subject, [one for name, to in pairs for one in changes_of({name: to}, known)])
