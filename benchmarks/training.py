"""How many training runs a second: `python -m benchmarks.training [--json]`.

Every parallelism, micro-batch, recomputation and ZeRO stage of Llama 3.1 405B and of DeepSeek-V3 on
16,384 H100, drawn evenly; each run with its step, its losses, its memory and its rules. One
process, two threads, chunks of 10,000.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from dse.catalog import load_catalog
from dse.physics.machines import Machines, compile_machines
from dse.physics.training.evaluate import evaluate_training
from dse.physics.training.plan import TrainingBatch
from dse.schema.model_catalog import resolve_model
from dse.schema.training import training_stack
from dse.space.batches import batch_of

MODELS = ("llama-3.1-405b", "deepseek-v3")
CHIPS = 16_384
RUNS = 200_000
ROUNDS = 5
THREADS = 2
CHUNK = 10_000


def drawn(model: str, n: int) -> TrainingBatch:
    """`n` runs of a model on CHIPS chips."""
    rng = np.random.default_rng(0)

    def powers(most: int) -> np.ndarray:
        return 2.0 ** rng.integers(0, most + 1, n)

    tensor, pipeline, context = powers(3), powers(4), powers(2)
    shape = resolve_model(model)
    sparse = any(block.kind == "moe" for block in shape.blocks)
    axes = {
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "data_parallel": CHIPS / (tensor * pipeline * context),
        "expert_parallel": powers(6) if sparse else np.ones(n),
        "replicas": np.ones(n),
        "concurrency": np.ones(n),
    }
    one = batch_of(
        [shape], np.zeros(1, np.intp), [None], ["bf16"], {name: np.ones(1) for name in axes}
    )
    return TrainingBatch.of(
        replace(one[np.zeros(n, np.intp)], **axes),
        8192,
        2**24,
        context_parallel=context,
        virtual_stages=powers(3),
        micro_batch=powers(2),
        recompute=rng.integers(0, 5, n),
        zero_stage=rng.integers(0, 4, n),
        precision="bf16",
    )


def measure(batch: TrainingBatch, machines: Machines) -> list[float]:
    """Runs a second of each round."""
    stack = training_stack("megatron")
    chunks = [batch[i : i + CHUNK] for i in range(0, len(batch), CHUNK)]
    rates = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(lambda one: evaluate_training(one, machines, stack).step_s, chunks):
                pass
        rates.append(len(batch) / (time.perf_counter() - started))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    machines = compile_machines(load_catalog(), ["h100_sxm"])
    rates = {model: measure(drawn(model, RUNS), machines) for model in MODELS}
    answer = {
        "runs_per_s": {model: float(np.median(each)) for model, each in rates.items()},
        "rounds": rates,
        "runs": RUNS,
        "threads": THREADS,
    }
    if asked.json:
        print(json.dumps(answer, indent=1))
        return
    for model, rate in answer["runs_per_s"].items():
        print(f"{model}: {rate:,.0f} training runs a second ({THREADS} threads)")


if __name__ == "__main__":
    main()
