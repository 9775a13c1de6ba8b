"""What a domain of 72 chips gives over servers of 8: `python -m benchmarks.domains [--json]`.

DeepSeek-V3, 8,192 tokens in and 1,024 out (0.9 of them in the mean, as InferenceX draws them), in
fp8 and nvfp4: total tokens a second and chip of the best deployment that the search finds at each
speed of a user, one pool or two, on GB200 NVL72 and on servers of B200; then with one of pools,
experts beyond 8 chips, drafts and overlap left out. Each runs the better of TensorRT-LLM and
SGLang: public recipes have both for both (github:SemiAnalysisAI/InferenceX
.github/configs/nvidia-master.yaml, 2026-02).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from itertools import product
from typing import Any

import dse

CHIPS = ("gb200_nvl72", "b200_sxm")
SOFTWARE = ("trtllm", "sglang")
USERS = (30.0, 50.0, 75.0, 100.0, 120.0)  # output tokens a second
# InferenceX's total tokens a second and chip at a user's speed, of NVL72 and of B200, 8k/1k and
# fp8, 2026-05 (inferencex.semianalysis.com/compare/deepseek-r1-b200-vs-gb200; B200 also has 5,515
# at 32 and 5,160 at 44: /deepseek-r1-b200-vs-mi300x and -mi325x). No page has nvfp4 at 8k/1k.
PUBLISHED = {75.0: (5789.6, 2557.7), 120.0: (3987.5, 1110.0)}
# Drafted tokens and the chance of each: DeepSeek-V3's report for one; for three what gives 2.49 a
# step, InferenceX's golden length of DeepSeek-V4 (search_spaces/drafts.csv).
DRAFTS = ({}, {"draft_tokens": 1, "acceptance": 0.85}, {"draft_tokens": 3, "acceptance": 0.69})
CAUSES = ("all", "pools", "wide experts", "drafts", "overlap")
IN, OUT = 7373, 922


def space(
    chip: str, dtype: str, without: str, drafts: dict[str, float], backend: str
) -> dict[str, Any]:
    """The space of one chip, format and software, without one of CAUSES."""
    load = {"prompt_tokens": IN, "output_tokens": OUT, "serving": "continuous"}
    hidden = {"network_overlap": 0} if without == "overlap" else {}
    ranks = [1, 2, 4, 8, 16, 24, 32, 48, 64, 72]
    experts = {"ratio_of": "tensor_parallel * data_parallel", "values": [1 / 72, 1]}

    def pool(tensor: Sequence[int], data: Sequence[int]) -> dict[str, Any]:
        kept = [n for n in data if n <= 8 or without != "wide experts"]
        degrees = {"tensor_parallel": list(tensor), "data_parallel": kept}
        formats = {"weight_dtype": dtype, "kv_dtype": "fp8"}
        return {"chip": chip, **degrees, "expert_parallel": experts, **formats}

    batches = {"concurrency": sorted({round(2 ** (k / 2)) for k in range(27)})}
    deployment = {**pool((1, 2, 4, 8), ranks), "replicas": 1, **batches}
    if without != "pools":
        stages = {"pipeline_parallel": [1, 2], "busy_percent": [80, 100]}
        deployment["pool_chips"] = 72
        deployment["prefill"] = {**pool((1, 4, 8), (1, 2, 4, 8)), **stages}
        deployment["decode"] = {**pool((1, 4, 8), (1, 4, 8, 16, 24, 32, 48)), **batches}
    return {
        "name": "domains",
        "workload": {**load, "backend": backend, **drafts, **hidden},
        "price_basis": "rental_3yr",
        "model": "deepseek-v3",
        "deployment": deployment,
        "objectives": {"output_tokens_per_s_per_chip": "maximize", "tpot_s": "minimize"},
        "constraints": ["chips <= 72", "tpot_s <= 50 ms", "ttft_s <= 20 s"],
        "resolution": 0,
    }


def best(chip: str, dtype: str, users: Sequence[float], without: str = "all") -> list[float]:
    """Total tokens a second and chip at each speed of a user, 0 where none is as fast."""
    found = [0.0] * len(users)
    tried = product(DRAFTS[:1] if without == "drafts" else DRAFTS, SOFTWARE)
    for drafts, backend in tried:
        with tempfile.TemporaryDirectory() as folder:
            asked = space(chip, dtype, without, dict(drafts), backend)
            front = dse.run(asked, out=f"{folder}/study").front.to_pandas()
        rate = front["output_tokens_per_s_per_chip"] * (IN + OUT) / OUT
        for k, user in enumerate(users):
            found[k] = max([found[k], *rate[front["tpot_s"] <= 1.0 / user]])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    rows = []
    for dtype in ("fp8", "nvfp4"):
        for cause in CAUSES:
            wide, small = (best(chip, dtype, USERS, cause) for chip in CHIPS)
            rows += [
                {"weight_dtype": dtype, "without": cause, "user": user, "nvl72": a, "b200": b}
                for user, a, b in zip(USERS, wide, small, strict=True)
            ]
            if not as_json:
                ratios = (f"{a / b:.2f}" if b else "-" for a, b in zip(wide, small, strict=True))
                print(f"{dtype:6} {'' if cause == 'all' else 'without ' + cause:22}", *ratios)
    if as_json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
