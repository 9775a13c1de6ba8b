"""Claims 4 and 5: larger instances, and where they end."""

from __future__ import annotations

from functools import cache

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.points import Point, is_sparse, models, predict
from dse.answer.numbers import in_ms, percent, times
from dse.catalog import load_catalog
from dse.physics.workload import Workload
from dse.problem.instances import Subject, subject_of
from dse.questions.scale import (
    Size,
    ceiling,
    instance_sizes,
    replica_size,
    replication,
)

PROMPT, OUTPUT = 2048.0, 512.0
CHIPS_UP_TO, DEMAND = 512, 512
SUBJECTS = (
    ("llama-3-8b", "h100_sxm"),
    ("llama-3-70b", "h100_sxm"),
    ("llama-3.1-405b", "h200_sxm"),
    ("deepseek-v3", "h200_sxm"),
    ("llama-3-70b", "gb200_nvl72"),
    ("llama-3.1-405b", "gb200_nvl72"),
    ("qwen3-235b-a22b", "gb200_nvl72"),
    ("deepseek-v3", "gb200_nvl72"),
)
LARGE = ("llama-3-70b", "llama-3.1-405b", "qwen3-235b-a22b", "deepseek-v3", "kimi-k2")
LARGE_CHIP, FROM, TO, REQUESTS = "gb200_nvl72", 8.0, 64.0, 256.0
MATTERS = 1.05


@cache
def subject(model: str, chip: str) -> Subject:
    catalog = load_catalog()
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends["generic"])
    return subject_of(catalog, models()[model], chip, load, weight_dtype="fp8")


@cache
def sizes(model: str, chip: str) -> tuple[Size, ...]:
    return tuple(instance_sizes(subject(model, chip), chips_up_to=CHIPS_UP_TO))


def judge_latency(alone: dict[str, float], loaded: dict[str, tuple[bool, float]]) -> str:
    """`alone`: how much faster one user is on the best group of the domain than on the smallest
    that holds the model, by subject; `loaded`: (sparse, how much faster a step of REQUESTS requests
    is on a group of TO chips than of FROM)."""
    faster = [ratio >= MATTERS for ratio in alone.values()]
    faster += [ratio >= MATTERS for _, ratio in loaded.values()]
    if sum(faster) * 2 < len(faster):
        return CONTRADICTED
    most = min(_of_kind(loaded, True)) > max(_of_kind(loaded, False))
    return CONFIRMED if all(faster) and most else QUALIFIED


def _of_kind(ratios: dict[str, tuple[bool, float]], sparse: bool) -> list[float]:
    return [ratio for kind, ratio in ratios.values() if kind == sparse]


def find_latency() -> Finding:
    alone, rows = {}, []
    for model, chip in SUBJECTS:
        domain = subject(model, chip).domain
        runs = [row for row in sizes(model, chip) if row.single and row.chips <= domain]
        if len(runs) < 2:
            held = f"{runs[0].chips} alone" if runs else "no group of it"
            rows.append((model, chip, str(domain), held, *("–",) * 4))
            continue
        best = min(runs, key=lambda row: row.single.tpot_s if row.single else 0.0)
        first, last = runs[0].single, best.single
        assert first is not None
        assert last is not None
        alone[f"{model} {chip}"] = first.tpot_s / last.tpot_s
        rows.append(
            (
                model, chip, str(domain), f"{runs[0].chips} to {best.chips}",
                in_ms(first.tpot_s), in_ms(last.tpot_s),
                times(first.tpot_s / last.tpot_s), percent(last.network_share),
            )
        )  # fmt: skip
    loaded, equal, steps = _loaded()
    sparse, dense = _of_kind(loaded, True), _of_kind(loaded, False)
    figures: dict[str, float | None] = {
        "alone_least": min(alone.values()),
        "alone_most": max(alone.values()),
        "loaded_sparse_least": min(sparse),
        "loaded_sparse_most": max(sparse),
        "loaded_dense_least": min(dense),
        "loaded_dense_most": max(dense),
        "equal_load_sparse_least": min(_of_kind(equal, True)),
        "equal_load_dense_most": max(_of_kind(equal, False)),
    }
    head = (
        "model",
        "chip",
        "domain",
        "chips",
        "per token",
        "best in the domain",
        "faster",
        "network",
    )
    return Finding(
        judge_latency(alone, loaded),
        "from the smallest group to the best of its domain one user gains "
        f"{times(figures['alone_least'])} to {times(figures['alone_most'])}; a step of "
        f"{REQUESTS:g} requests on {TO:g} chips of one {LARGE_CHIP} is {times(min(sparse))} to "
        f"{times(max(sparse))} as fast as on {FROM:g} for sparse models, {times(min(dense))} to "
        f"{times(max(dense))} for dense ones (with equal requests a chip "
        f"{times(min(_of_kind(equal, True)))} to {times(max(_of_kind(equal, True)))} and "
        f"{times(min(_of_kind(equal, False)))} to {times(max(_of_kind(equal, False)))})",
        figures,
        f"fp8, prompt {PROMPT:g}, output {OUTPUT:g}. One user: the best of all ways to divide an "
        f"instance. Loaded: {REQUESTS:g} requests in all, or {REQUESTS / FROM:g} on every chip; "
        "sparse models with attention data and expert parallelism, dense ones with tensor "
        "parallelism.",
        (
            Table("One user, inside the scale-up domain", head, tuple(rows)),
            steps,
        ),
        "Predicted with fitted kernels; collectives of more than 8 chips are extrapolated.",
        "No measured rows share everything but the size of the group. Launch costs, which no chip "
        "shares, limit what one user gains from a larger group of a sparse model.",
    )


def _loaded() -> tuple[dict[str, tuple[bool, float]], dict[str, tuple[bool, float]], Table]:
    """By model, (sparse, how much faster a step is on TO chips than on FROM): with the same
    requests in all, and with the same on every chip."""
    points = []
    for model in LARGE:
        for chips, requests in ((FROM, REQUESTS), (TO, REQUESTS), (TO, REQUESTS * TO / FROM)):
            tp, dp = (1.0, chips) if is_sparse(model) else (chips, 1.0)
            points.append(Point(model, LARGE_CHIP, tp, 1.0, dp, dp, 1.0, requests, "fp8", "fp8"))
    answer = predict(points, PROMPT, OUTPUT, serving="static")
    found, equal, rows = {}, {}, []
    for k, model in enumerate(LARGE):
        few, many, full = (float(answer["decode_step_s"][3 * k + j]) for j in range(3))
        if not answer.feasible[3 * k]:
            rows.append((model, _kind(model), "does not fit", *("–",) * 5))
            continue
        found[model], equal[model] = (is_sparse(model), few / many), (is_sparse(model), few / full)
        network = answer.decode["network"][3 * k + 1] / many
        rows.append(
            (
                model, _kind(model), in_ms(few), in_ms(many), times(few / many),
                percent(float(network)), in_ms(full), times(few / full),
            )
        )  # fmt: skip
    head = ("model", "kind", f"{FROM:g} chips", f"{TO:g} chips", "faster", f"network on {TO:g}",
            f"{TO:g} chips, equal requests a chip", "faster")  # fmt: skip
    return (
        found,
        equal,
        Table(f"A decode step of {REQUESTS:g} requests, {LARGE_CHIP}", head, tuple(rows)),
    )


def _kind(model: str) -> str:
    return "sparse" if is_sparse(model) else "dense"


def judge_ceiling(
    ceilings: list[int | None], replicas: list[int | None], largest: list[float]
) -> str:
    """By subject: the ceiling of one user's latency, the size past which replication wins (None:
    none was found up to CHIPS_UP_TO), and the output of the largest instance over that of as many
    chips in replicas."""
    known = [a is not None for a in ceilings] + [b is not None for b in replicas]
    if not any(known):
        return CONTRADICTED
    return CONFIRMED if all(known) and max(largest) < 1.0 else QUALIFIED


def find_ceiling() -> Finding:
    ceilings, replicas, largest, rows = [], [], [], []
    for model, chip in SUBJECTS:
        found = sizes(model, chip)
        top, size = ceiling(found), replica_size(found)
        split = replication(subject(model, chip), found, DEMAND)
        ceilings.append(top.chips)
        replicas.append(size)
        last = split[-1]
        largest.append(last.of_best)
        rows.append(
            (
                model, chip, str(subject(model, chip).domain), str(top.chips or "–"),
                in_ms(top.tpot_s), f"{percent(top.network_share)} {top.bound}",
                str(size or "–"), f"{last.replicas} x {last.chips}", percent(last.of_best),
            )
        )  # fmt: skip
    known = [value for value in ceilings if value is not None]
    sized = [value for value in replicas if value is not None]
    figures: dict[str, float | None] = {
        "ceiling_least": float(min(known)) if known else None,
        "ceiling_most": float(max(known)) if known else None,
        "replica_least": float(min(sized)) if sized else None,
        "replica_most": float(max(sized)) if sized else None,
        "largest_instance_of_best_least": min(largest),
        "largest_instance_of_best_most": max(largest),
    }
    head = ("model", "chip", "domain", "ceiling, chips", "per token", "network share, bound",
            "replicas of", "largest instance", "of the best output")  # fmt: skip
    return Finding(
        judge_ceiling(ceilings, replicas, largest),
        f"one user stops gaining at {min(known, default=0)} to {max(known, default=0)} chips; "
        f"within 50 ms a token replicas of {min(sized, default=0)} to {max(sized, default=0)} "
        f"chips serve most, and {DEMAND} chips as one instance {percent(min(largest))} to "
        f"{percent(max(largest))} of that",
        figures,
        f"fp8, prompt {PROMPT:g}, output {OUTPUT:g}, instances of 1 to {CHIPS_UP_TO} chips; the "
        "ceiling is the size past which twice the chips save less than 5% of the time per token; "
        "replicas within 50 ms a token and 2 s to the first.",
        (Table(f"The ceiling, and {DEMAND} chips as replicas or as one", head, tuple(rows)),),
        "Predicted with fitted kernels; collectives of more than 8 chips are extrapolated.",
        "Jitter, which lowers the ceiling, is 0 here: claim 7.",
    )  # fmt: skip


CLAIMS = (
    Claim(
        4,
        "Larger scale-up groups cut latency, because the bandwidth of all chips is used in "
        "parallel, most of all for large sparse models.",
        (
            "dse claims 4",
            "dse scale --model deepseek-v3 --chip gb200_nvl72 --weight-dtype fp8",
        ),
        "Of all cases, one user and loaded: contradicted where less than half gain "
        f"{MATTERS - 1:.0%}; confirmed where all do and, loaded, every sparse model gains more "
        "than every dense one; else qualified.",
        find_latency,
    ),
    Claim(
        5,
        "Scaling up one instance hits a ceiling; past it, scale out by replication.",
        (
            "dse claims 5",
            "dse scale --model llama-3-70b --chip h100_sxm --weight-dtype fp8",
        ),
        f"Contradicted where no case has a ceiling up to {CHIPS_UP_TO} chips and no size past "
        "which replicas win; confirmed where all have both and the largest instance always serves "
        "less than replicas; else qualified.",
        find_ceiling,
    ),
)
