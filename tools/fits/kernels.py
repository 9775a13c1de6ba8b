"""Fits the kernel laws of `hardware/efficiency/` to measured kernel tables.

    python -m tools.fits.kernels FOLDER OUT

FOLDER holds the condensed tables of aiconfigurator-core 0.12.0 (Apache-2.0) named below; OUT gets
one YAML file per chip or class, byte for byte the shipped ones. The law of every operator:

    seconds = ((flops / (compute * peak))^p + (bytes / (memory * bandwidth))^p)^(1/p) + fixed

A law is fitted to points pooled over serving backends, equal weight each. A point is measured (a
latency, or the median latency of a bucket), or condensed (a per-backend fit read on a grid of
shapes); a backend with both gives half its weight to each. docs/efficiency.md has the reasons.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import yaml

from dse.measure.calibration import (
    WEIGHT_ONLY,
    Laws,
    Links,
    derive,
    efficiency_text,
)
from dse.measure.laws import fit
from tools.fits.kernel_tables import (
    BUCKETS_OF,
    CDNA3,
    CHIPS,
    PADDING_ROWS,
    TOP_MEMORY,
    Chip,
    Tables,
    cdna3_all_reduce,
    cdna3_laws,
)

OPERATORS = {  # operator: the tables behind it
    "gemm": "gemm_samples_trtllm, gemm_skinny, gemm_square, gemm_fit",
    "prefill_attention": "prefill_attention_mfu, prefill_attention_fit",
    "decode_attention": "decode_attention_bw",
    "mla_prefill_attention": "mla_fit context",
    "mla_decode_attention": "mla_fit generation",
    "experts": "moe_by_tokens_per_expert, moe_fit; balanced routing, whose distinct experts are "
    "the uniform expectation that the law is charged for",
}
ATTENTION = tuple(name for name in OPERATORS if name.endswith("attention"))
UNPACKED = "16-bit arithmetic on an fp8 cache, compute is a fraction of the bf16 peak"


def measured_laws(tables: Tables) -> Laws:
    """Operator -> dtype -> law, for what the tables hold."""
    peaks, laws = tables.chip.peaks, {}
    block = ["fp8_block"] if "fp8" in peaks else []
    dtypes = {"gemm": [*peaks, *block], "experts": [*peaks, *block, "mxfp4"]}
    for operator, names in OPERATORS.items():
        laws[operator] = {}
        for dtype in dtypes.get(operator, ["bf16", "fp8"]):
            unpacked = dtype == "mxfp4" and "nvfp4" not in peaks
            points = getattr(tables, operator)("w4a16" if unpacked else dtype)
            if points.empty:
                continue
            sums = {"top_p": 1.0001} if operator == "experts" else {}
            peak = tables.chip.peak("nvfp4" if dtype == "mxfp4" else dtype)
            row = fit(points, peak, tables.chip.bandwidth, **sums)
            note = f"{names}: {row['note']}"
            if operator == "experts" and tables.chip.system in BUCKETS_OF and dtype != "mxfp4":
                note += f"; buckets measured on {BUCKETS_OF[tables.chip.system]}"
            if dtype not in peaks and (unpacked or dtype == "fp8"):
                note += f"; {WEIGHT_ONLY if unpacked else UNPACKED}"
            row["note"] = note
            laws[operator][dtype] = row
    return laws


def complete(chip: Chip, laws: Laws, fp8_ratio: float, hopper: Laws) -> Laws:
    """Fills what was not measured by the rules of docs/efficiency.md."""
    gemm, experts = laws["gemm"], laws["experts"]
    if chip.system == "a100_sxm":
        note = "fractions of H100: A100 has balanced rows for one slow kernel only"
        experts["bf16"] = derive(hopper["experts"]["bf16"], note)
    native8, native4 = "fp8" in chip.peaks, "nvfp4" in chip.peaks
    for table, four in ((gemm, "nvfp4"), (experts, "mxfp4")):
        table.setdefault(four, derive(table["bf16"], WEIGHT_ONLY))
        table["int8"] = (
            derive(table["fp8"], "as fp8: same bytes, same fraction of its own peak")
            if native8
            else derive(
                table["bf16"], "bf16 times the median fp8 to bf16 ratio of GEMMs", fp8_ratio
            )
        )
        if not native8:
            table["fp8"] = table["fp8_block"] = derive(table["bf16"], WEIGHT_ONLY)
    rule = "as nvfp4: same peak, nearly the same bytes" if native4 else WEIGHT_ONLY
    gemm["mxfp4"] = derive(gemm["nvfp4"], rule)
    experts.setdefault("nvfp4", derive(experts["mxfp4"], f"as mxfp4; {WEIGHT_ONLY}"))
    note = "fractions of H100: the A100 rows miss their own fit by over 35%"
    laws["mla_decode_attention"].setdefault(
        "bf16", derive(hopper["mla_decode_attention"]["bf16"], note)
    )
    for operator in ATTENTION:
        share = chip.peaks["bf16"] / chip.peaks.get("fp8", chip.peaks["bf16"])
        note = "as bf16: 16-bit arithmetic on an fp8 cache" if native8 else UNPACKED
        laws[operator].setdefault("fp8", derive(laws[operator]["bf16"], note, share))
    order = ("bf16", "fp8", "fp8_block", "int8", "nvfp4", "mxfp4")
    return {op: {d: table[d] for d in order if d in table} for op, table in laws.items()}


# Groups that reach less of the link do not use it: the tables of L40S have 20 of 32 GB/s between 2
# cards, 5 between 4 and 2 between 8 with NCCL, vLLM and SGLang 0.5.10 and 0.5.14 alike, but 20 GB/s
# between 4 and 8 with the kernels of SGLang 0.5.12, which ran on another server.
LEAST_OF_LINK = 0.2
SECOND_SERVER = {"l40s": ("SGLang_CustomAllReduce_graph", ("0.5.12",))}


def second_server(tables: Tables, links: Links) -> Links:
    """The collectives of a chip's other server: its all-reduce, and of the rest what reached the
    link; elsewhere a gather is half of the all-reduce, in latency and in what it moves."""
    source, versions = SECOND_SERVER[tables.chip.system]
    reduce = {n: tables.collective(("all_reduce",), n, source, versions) or {} for n in (2, 4, 8)}
    halves = {n: row | {"latency": float(f"{row['latency'] / 2:.3g}")} for n, row in reduce.items()}
    found: Links = {"all_reduce": reduce}
    for name in ("all_gather", "all_to_all"):
        reached = {n: row["fraction"] >= LEAST_OF_LINK for n, row in links[name].items()}
        found[name] = {n: links[name][n] if reached[n] else halves[n] for n in reached}
    return found


def measured_links(tables: Tables) -> Links:
    """Collective -> number of chips -> latency, fraction, ramp, error."""
    system = tables.chip.system
    graph = "nccl" if system in SECOND_SERVER else "graph|:TRTLLM$"
    links: Links = {"all_reduce": {}, "all_gather": {}, "all_to_all": {}}
    for n in (2, 4, 8):
        to_all = (tables.deepep() if n == 8 else None) or tables.collective(
            ("alltoall",), n, "nccl"
        )
        links["all_to_all"][n] = to_all or links["all_to_all"][4]
        if gather := tables.collective(("all_gather", "reduce_scatter"), n, "nccl"):
            links["all_gather"][n] = gather
        # between the trays of gb200 and gb300 only the MNNVL kernels of gb300 were measured
        trays = n == 8 and system in ("gb200", "gb300")
        source = Tables(tables.folder, CHIPS["gb300_nvl72"]) if trays else tables
        reduce = source.collective(("all_reduce",), n, "MNNVL_twoshot" if trays else graph)
        links["all_reduce"][n] = reduce or {}
    return links


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


def write(
    path: Path, head: dict, laws: Laws, links: Links, notes: dict, beside: Links | None = None
) -> None:
    """One efficiency file; `notes` has its source, and kind and note of each collective; `beside`
    are collectives of a server whose cards do not reach each other."""
    made_by = "Written by tools/fits/kernels.py; docs/efficiency.md says how."
    head = {"id": path.stem, **head, "source": notes["source"], "date": "2026-11-20"}
    slow = (beside, THROUGH_HOST) if beside else None
    text = efficiency_text(made_by, head, laws, PADDING_ROWS, links, notes, slow)
    path.write_text(text, encoding="utf-8")


THROUGH_HOST = (
    "of 32 GB/s per direction; NCCL, 8 KiB..512 MiB, on a server whose cards reach 20 GB/s in "
    "pairs, 5 between 4 and 2 between 8: no link of theirs, so no law of L40S"
)


SOURCE = "aiconfigurator-core 0.12.0 (Apache-2.0), measured kernel tables of NVIDIA GPUs"


def main(folder: str | Path, out_dir: str | Path) -> None:
    """Writes one efficiency file per chip and class of this module to `out_dir`."""
    tables = {name: Tables(Path(folder), chip) for name, chip in CHIPS.items()}
    laws = {name: measured_laws(table) for name, table in tables.items()}
    gemms = [table["gemm"] for table in laws.values() if "fp8" in table["gemm"]]
    ratio = float(np.median([gemm["fp8"]["compute"] / gemm["bf16"]["compute"] for gemm in gemms]))
    hopper = laws["h100_sxm"]
    laws = {name: complete(CHIPS[name], table, ratio, hopper) for name, table in laws.items()}
    links = {name: measured_links(table) for name, table in tables.items()}
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    for name, chip in CHIPS.items():
        divided = {dtype: f"{peak / 1e12:g} TFLOP/s" for dtype, peak in chip.peaks.items()}
        if "nvfp4" in divided:
            divided["mxfp4"] = divided["nvfp4"]
        divided["memory_bandwidth"] = f"{chip.bandwidth / 1e12:g} TB/s"
        head = {"title": f"{chip.title}, fitted to measured kernels", "divided_by": divided}
        notes = {"source": SOURCE, **chip.notes}
        beside = links[name] if chip.system in SECOND_SERVER else None
        used = second_server(tables[name], links[name]) if beside else links[name]
        write(out / f"{name}.yaml", head, laws[name], used, notes, beside)
    switched = [link for name, link in links.items() if CHIPS[name].link > 100e9]
    for name, (title, source, *_) in CLASSES.items():
        note = AMD_NOTE if name in AMD else "median of the NVLink chips"
        notes: dict = {"source": source} | dict.fromkeys(links["h100_sxm"], ("assumed", note))
        if name in AMD:
            notes["all_reduce"] = ("derived", AMD_REDUCE)
        head = {"title": f"{title}, not measured kernel by kernel"}
        class_ = class_laws(name, list(laws.values())), class_links(name, switched)
        write(out / f"{name}.yaml", head, *class_, notes)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
