"""Kernel laws of chips that nobody measured kernel by kernel: `python -m tools.fits.kernels OUT`.

OUT gets one YAML file per class of chips, with the values of the shipped ones: from the shipped
laws of the NVIDIA chips whose kernels were measured. docs/efficiency.md has the reasons, and says
how these were fitted: their tables are not in this repository. The law of every operator:

    seconds = ((flops / (compute * peak))^p + (bytes / (memory * bandwidth))^p)^(1/p) + fixed

Kernels of AMD's CDNA3, as public tuners and benchmarks timed them, in place of NVIDIA's medians.

`cdna3_kernels.csv` has products with weights in blocks of 128 x 128 and routed experts (AITER's
tables of the kernels it chose on 304 compute units, MI300X and MI325X: random routing, device time
alone) and the all-reduce of vLLM on MI300X. No row of serving enters. What their times leave out:

- Rows are quantised by a kernel of its own before a product with weights in blocks: an elementwise
  kernel of a decode step takes 4.3 to 5.7 us (github:sgl-project/sglang pull 28476, MI355X).
- Between two kernels of a replayed HIP graph lie 3.0 us more than in a command buffer of Vulkan
  (3.87 and .88 us a kernel: github:ROCm/rocm-systems issue 10834, gfx1100, 941 in a row). It is
  added to the kernels named here alone: with such a gap after every kernel a dense Llama-3-70B
  came out 22% slower than AMD measured, with 5 us a norm 17%, without either 5%.
- Experts take 33.3 us for one token, with rows sorted and quantised, of which 4.9 read weights
  (github:ROCm/aiter pull 2748: Qwen3-Next-80B in blocks, 2,048 x 512, 10 chosen, MI355X).
- Partial results of latent attention are summed in 11.5 us (github:SemiAnalysisAI/InferenceX issue
  863, MI325X).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from dse.data import hardware_dir
from dse.measure.calibration import (
    WEIGHT_ONLY,
    Laws,
    Links,
    constants,
    derive,
    efficiency_text,
    link_constants,
)
from dse.measure.laws import law, least, link_law
from dse.schema.catalog import ON_PCIE_SERVERS
from dse.schema.efficiency import COLLECTIVES, load_efficiency

PADDING_ROWS = 16
# Chips whose kernels were measured.
MEASURED = (
    *("a100_80_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm"),
    *("gb200_nvl72", "gb300_nvl72", "l40s", "rtx_pro_6000"),
)
UNPACKED = "16-bit arithmetic on an fp8 cache, compute is a fraction of the bf16 peak"


def activations(flops, hidden, width):
    """Bytes of 2 (H + I) 16-bit elements for each row of 6 H I operations."""
    return 4 * flops / 6 * (1 / hidden + 1 / width)


TIMES = Path(__file__).with_name("cdna3_kernels.csv")
GAP, ELEMENTWISE, EXPERTS, SUM = 3.0, 5.1, 28.4, 11.5  # us
PEAK, BANDWIDTH, LINK = 2615e12, 5.3e12, 64e9  # MI300X: fp8, memory, a pair of chips
TOP_MEMORY = 0.80  # of the bandwidth, as of every chip whose memory nobody streamed in full
CDNA3 = ("class_mi300x", "class_mi325x")
LATENCY_8_OVER_4 = 4.8 / 3.97  # of the NVLink chips, for all-reduces between 8


def cdna3_laws(laws: Laws) -> Laws:
    """The laws of CDNA3, from those of NVIDIA's median."""
    times = pd.read_csv(TIMES)
    block = _fitted(_products(times))
    laws["gemm"]["fp8_block"] = block | {
        "fixed": _us(block["fixed"] + ELEMENTWISE + 2 * GAP),
        "note": f"{block['note']}; fixed {ELEMENTWISE + 2 * GAP:.1f} us more: rows are quantised",
    }
    laws["experts"]["fp8_block"] = (experts := _fitted(_experts(times), 1.0001)) | {
        "fixed": _us(EXPERTS + 2 * GAP),
        "note": f"{experts['note']}; fixed: rows are sorted and quantised",
    }
    for x in laws["mla_decode_attention"].values():
        x["fixed"] = _us(x["fixed"] + SUM + GAP)
        x["note"] += f", partial results summed in {SUM} us"
    return laws


def cdna3_all_reduce() -> dict[int, dict[str, float]]:
    """Latency, fraction and ramp between 2 and 4 chips as fitted, and the latency between 8."""
    times = pd.read_csv(TIMES)
    found = {}
    for chips in (2, 4):
        rows = times[(times.operator == "all_reduce") & (times["columns"] == chips)]
        size, link = rows.rows.to_numpy(float), LINK * (chips - 1)
        wire_s = size * 2 * (chips - 1) / chips / link
        found[chips] = link_law(size, wire_s, rows.microseconds.to_numpy() * 1e-6)
    return found | {8: {"latency": _us(found[4]["latency"] * LATENCY_8_OVER_4)}}


def _products(times: pd.DataFrame) -> pd.DataFrame:
    t = times[(times.operator == "gemm") & (times.format == "fp8_block")]
    m, n, k = t.rows, t["columns"], t.inner
    return t.assign(flops=2.0 * m * n * k, bytes=n * k + m * k + 2.0 * m * n)


def _experts(times: pd.DataFrame) -> pd.DataFrame:
    """As `Tables.experts` counts them, of tokens that choose at random."""
    t = times[times.operator == "experts"]
    distinct = t.experts * (1.0 - (1.0 - t.chosen / t.experts) ** t.rows)
    rows, weight = t.rows * t.chosen, t.inner * t["columns"]
    flops = 6 * weight * (rows + PADDING_ROWS * distinct)
    moved = 3 * weight * distinct + activations(6 * weight * rows, t.inner, t["columns"])
    return t.assign(flops=flops, bytes=moved)


def _fitted(points: pd.DataFrame, top_p: float = 8.0) -> dict:
    """A law by least squares of the logarithm: blocks that walk a long inner dimension with few
    rows are slow, and a robust fit would leave them out."""
    flops, moved = points.flops.to_numpy(float), points.bytes.to_numpy(float)
    seconds = points.microseconds.to_numpy(float) * 1e-6

    def predict(x):
        return law(flops, moved, PEAK, BANDWIDTH, x)

    most = (1, TOP_MEMORY, 300, top_p)
    compute, memory, fixed, p = least(lambda x: np.log(predict(x) / seconds), most)
    error = float(np.median(np.abs(predict((compute, memory, fixed, p)) / seconds - 1)))
    return {
        **{"compute": _us(compute), "memory": _us(memory), "fixed": _us(fixed), "p": _us(p)},
        "kind": "derived",
        "note": f"{len(points)} kernels of {points.source.iloc[0]}, off by {error:.2f}",
    }


def _us(value: float) -> float:
    return float(f"{value:.3g}")


def shipped(chip: str) -> tuple[Laws, Links]:
    """The laws and collectives in the file of a chip."""
    found = load_efficiency(hardware_dir() / "efficiency" / f"{chip}.yaml")
    laws = found.each(lambda operator, dtype, law: constants(law))
    return laws, {name: link_constants(table) for name, table in found.links.items()}


class Class(NamedTuple):
    """Chips without kernel tables. `compute`: measured fractions of GEMMs by format, whose ratio to
    those of NVIDIA chips, or else `scale`, multiplies every other compute."""

    title: str
    source: str
    compute: Mapping[str, float] = MappingProxyType({})
    fixed: float | None = None
    scale: float | None = None


CLASSES = {
    name: Class(**of)
    for name, of in yaml.safe_load(
        Path(__file__).with_name("classes.yaml").read_text(encoding="utf-8")
    ).items()
}
# Assumed: streaming reaches 0.40 to 0.60 on MI300X (untuned copies, scalarlm.ghost.io, 2025), 0.68
# at 100 MB on TPU7x (a planning curve, accelerator-microbenchmarks system.py@6a306a8); nothing is
# known of the other vendors.
CAPPED = ("class_amd", "class_mi300x", "class_mi325x", "class_tpu")
# busbw of ml-engineering network/README.md@744d01e, MI300X: 47.671 of 64, 312.912 of 448 GB/s
AMD = "class_amd", "class_mi300x", "class_mi325x"
AMD_LINKS = {2: 0.745, 4: 0.721, 8: 0.698}
AMD_NOTE = (
    "fraction: MI300X all-reduce of 4 GiB, 47.671 of 64 GB/s between 2 chips, 312.912 of 448 "
    "between 8, 4 in the middle; latency: median of the NVLink chips"
)
AMD_REDUCE = (
    "2 and 4 chips fitted to vLLM's all-reduce on MI300X (github:ROCm/aiter pull 801, 4 KiB..512 "
    "MiB; github:vllm-project/vllm pull 19744, 2 KiB..16 MiB); 8: 312.912 of 448 GB/s at 4 GiB, "
    "latency in proportion"
)


def class_laws(name: str, chips: list[Laws]) -> Laws:
    """Median of the natively fitted laws; GEMM compute as measured, other compute in proportion."""
    _, source, compute, fixed, scale = CLASSES[name]
    out: Laws = {}
    for operator, dtype in ((op, d) for op, table in chips[0].items() for d in table):
        like = {"int8": "fp8"}.get(dtype, dtype)
        like = "nvfp4" if (operator, dtype) == ("gemm", "mxfp4") else like
        fitted = [c[operator][like] for c in chips if c[operator][like]["kind"] == "fitted"]
        kept = [law_ for law_ in fitted if not law_["note"].endswith((WEIGHT_ONLY, UNPACKED))]
        middle = {k: medians(law_[k] for law_ in kept) for k in ("compute", "memory", "fixed", "p")}
        note = f"median of {len(kept)} NVIDIA chips"
        out.setdefault(operator, {})[dtype] = derive(middle, note, kind="assumed")
    if not (compute or scale):
        return out
    reason = "the source's ratio" if scale else "bf16 GEMM compute here over there"
    scale = scale or compute["bf16"] / out["gemm"]["bf16"]["compute"]
    for table in out.values():
        for dtype, x in table.items():
            note = f"{x['note']}, compute times {scale:.3g} ({reason})"
            if name in CAPPED and x["memory"] > TOP_MEMORY:
                x = x | {"memory": TOP_MEMORY}
                note += f", memory at most {TOP_MEMORY:.2f}"
            table[dtype] = derive(x, note, scale, "assumed")
    note = f"compute{' and fixed' if fixed else ''}: {source}; the rest: median of NVIDIA chips"
    for dtype, value in compute.items():
        measured = {"compute": value, "kind": "derived", "note": note}
        out["gemm"][dtype] |= measured | ({"fixed": fixed} if fixed else {})
    return cdna3_laws(out) if name in CDNA3 else out


def class_links(name: str, links: list[Links]) -> Links:
    """Median over the chips with switched links."""
    out: Links = {}
    for op, n in ((op, n) for op, table in links[0].items() for n in table):
        rows = [link[op][n] for link in links if n in link[op]]
        row = {k: medians(row[k] for row in rows) for k in ("latency", "fraction", "ramp")}
        out.setdefault(op, {})[n] = row | ({"fraction": AMD_LINKS[n]} if name in AMD else {})
    if name in AMD:
        out["all_reduce"] = {n: out["all_reduce"][n] | x for n, x in cdna3_all_reduce().items()}
    return out


def medians(values) -> float:
    return float(f"{np.median(list(values)):.3g}")


def main(out_dir: str | Path) -> None:
    """Writes one efficiency file per class to `out_dir`."""
    measured = {chip: shipped(chip) for chip in MEASURED}
    switched = [links for chip, (_, links) in measured.items() if chip not in ON_PCIE_SERVERS]
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    for name, (title, source, *_) in CLASSES.items():
        note = AMD_NOTE if name in AMD else "median of the NVLink chips"
        notes: dict[str, tuple[str, str]] = dict.fromkeys(COLLECTIVES, ("assumed", note))
        if name in AMD:
            notes["all_reduce"] = ("derived", AMD_REDUCE)
        head = {"id": name, "title": f"{title}, not measured kernel by kernel"}
        head |= {"source": source, "date": "2026-11-20"}
        laws, links = (
            class_laws(name, [own for own, _ in measured.values()]),
            class_links(name, switched),
        )
        made_by = "Written by tools/fits/kernels.py; docs/efficiency.md says how."
        text = efficiency_text(made_by, head, laws, PADDING_ROWS, links, notes)
        (out / f"{name}.yaml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
