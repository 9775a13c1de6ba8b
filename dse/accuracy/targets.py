"""What the accuracy page claims beside its scores: targets, what the fit has seen, the backtest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dse.accuracy.words import HEADER, score_row, short
from dse.answer.numbers import tenths

# What no fold undoes: chosen with these rows in sight, once for all chips and models.
CHOICES = (
    "of a closed loop of ten rounds, one prompt in ten is part of the burst at the start",
    "of requests of equal length, a quarter of those that a simulation keeps in step stay so",
    "attention data-parallel ranks prefill half-way between apart and together (a square root)",
    "SGLang on Blackwell in InferenceX polls every 10 or 30 steps, TensorRT-LLM's attention "
    "data-parallel ranks every 60, and its tokens a step are those of the scripts",
    "which rows of InferenceX drafted, had an 8-bit cache, launched kernels early or scheduled "
    "beside the device: read from its scripts and changelog after their errors had been seen; that "
    "an 8-bit cache of vLLM on Hopper shortens no step, from its documentation",
    "DeepSeek-R1's first token under TensorRT-LLM waits for 10 steps of streaming",
    "that experts unpacked to 16 bits and launches of steps with prompts have factors of their own",
    "which rows are marked for how they were measured (hardware/measurements/README.md)",
    "lengths in InferenceX are 0.9 of the nominal ones in the mean (its scripts draw from 0.8 to "
    "1)",
    "sparse models in TensorRT-LLM's performance overview ran with attention data-parallel over "
    "all their chips, as its notes on the settings say",
    "its overview queued the requests of its own table, which go through in whole rounds, and "
    "TensorRT-LLM kept whole lengths in the cache of windowed layers",
    "TensorRT-LLM's work on requests runs beside the device (its documentation), the others' does "
    "not",
    "optimum-habana computes every expert for every token (its source)",
    "A100's experts take H100's fractions, its decode attention the rows of vLLM alone",
    "fp8 caches are read by the kernels that TensorRT-LLM has for grouped queries",
    "which expert kernels stand for mxfp4 (gpt-oss) on each chip",
    "how each backend admits requests, the host time a running request that its factor multiplies, "
    "and that the launch of a step with prompts comes on top of it",
    "that gpt-oss has a 16-bit cache under TensorRT-LLM on Hopper (its overview, InferenceX's "
    "script)",
    "training: which constants of the stacks are fitted, which stacks share them, and how strongly "
    "each is held to its prior",
    "training: which recipes count as eager or fused, as their public files say (dispatcher, CUDA "
    "graphs, fused expert layers)",
    "training: state-space scans, tokens sent once a rank, and a clock for each generation of "
    "Blackwell have a constant because residuals asked for it",
    "that the first burst takes 3 s longer where InferenceX's client sent SGLang nothing before",
    "that in MLPerf's open loops DeepSeek-R1's first token under TensorRT-LLM waits for the 10 "
    "steps of InferenceX's scripts, and, by its own rows alone, that vLLM on AMD looks every 10",
    "of an open loop the requests in flight count, not their rate, and none waits for memory",
    "the gap between llama.cpp's steps and the bandwidth of its narrow weights, on a grid",
    "between 4 and 8 L40S the kernel table of the server whose links are used",
    "that CDNA3's experts and block-scaled products, and stock launches, have factors of their "
    "own; of the stock factor four variants were scored on the folds above",
    "which kernels around CDNA3's experts and block-scaled products are added to AMD's times, and "
    "that no gap is added elsewhere",
    "which rows are of a stock launch, as their sources' scripts show",
    "the room of the kernel factors, halved after held-out scores were seen: more fitted better "
    "and held out worse",
)


class Target(NamedTuple):
    """`reached` (None: no rows) of the model as it is; `held` the worst of the held-out folds, or
    None where nothing is held out. `most`: the target is a ceiling, else a floor."""

    what: str
    wanted: float
    most: bool
    reached: float | None
    held: float | None
    unit: str = "%"

    @property
    def counted(self) -> float | None:
        """What the target is held against: held out where that is known."""
        return self.reached if self.held is None else self.held

    @property
    def shortfall(self) -> float:
        """Share of the target by which it is missed; 0 or less where it is met or has no row."""
        if self.counted is None:
            return 0.0
        short_by = self.counted / self.wanted - 1.0
        return short_by if self.most else -short_by

    @property
    def verdict(self) -> str:
        if self.counted is None:
            return "no rows"
        return "short" if self.shortfall > 0.0 else "met"


ERRORS = (
    ("time per output token, closed loop", ("tpot_s", "continuous"), 0.14),
    ("time to first token, closed loop", ("ttft_s", "continuous"), 0.25),
    ("time to first token, open loop", ("ttft_s", "poisson"), 0.30),
    ("output tokens per second, offline", ("output_tokens_per_s", "offline"), 0.16),
    ("time per output token, disaggregated", ("tpot_s", "disaggregated"), 0.15),
    ("time to first token, disaggregated", ("ttft_s", "disaggregated"), 0.40),
)
TRAINING = ("tokens_per_s_per_chip", "pretrain")
TOGETHER = (
    ("output tokens per second, offline, the cap given", "capped", 0.12),
    ("static serving, all metrics together", "static_all", 0.15),
    ("time per output token, MI300X and MI325X", "cdna3", 0.25),
    ("PCIe cards at TP 4 and 8, but first tokens", "pcie", 0.25),
)
P90, TRAINED, SPEED_UP, COVERED = 0.35, 0.10, 0.08, 0.99
LEAST_INSIDE, MOST_INSIDE, WIDTH = 0.75, 0.88, 2.5
RANK = 0.96  # beside what was set: of our own


def targets(document: dict[str, Any]) -> list[Target]:
    """The project's targets, the worst missed first."""
    held = document["cross_validation"]
    folds = [name for name in held if name not in ("across", "worst")]
    scores = [_overall(document["scores"]), *(_overall(held[name]) for name in folds)]
    joined = [document, *(held["across"][name] for name in folds)]

    def only(fold: str) -> list[dict[tuple[str, str], dict[str, Any]]]:
        """Nothing left out, and one fold where it was made."""
        return [scores[0], *(scores[1 + k] for k, name in enumerate(folds) if name == fold)]

    found = [
        _target(what, wanted, [_of(by.get(key), "group_median_error") for by in scores])
        for what, key, wanted in ERRORS
    ]
    what, tokens, _ = ERRORS[0]
    tails = [_of(by.get(tokens), "p90_error") for by in scores]
    found.append(_target(f"{what}, 90th percentile of the rows", P90, tails))
    trained = [_of(by.get(TRAINING), "group_median_error") for by in only("model")]
    what = "tokens per second and chip, pre-training, its model left out"
    found.append(_target(what, TRAINED, trained))
    for what, key, wanted in TOGETHER:
        values = [_of(part.get(key), "group_median_error") for part in joined]
        found.append(_target(what, wanted, values))
    speed = [part["speed_up"]["median_error"] for part in joined]
    found.append(_target("speed of one chip over another", SPEED_UP, speed))
    ranks = [part["rank_correlation"]["value"] for part in joined]
    what = "rank correlation of time per output token (our own)"
    found.append(_target(what, RANK, ranks, most=False))
    inside = [_inside(by) for by in only("source")]
    what = "inside the 80% interval, the source left out"
    found.append(_target(f"{what}, at least", LEAST_INSIDE, inside, most=False))
    found.append(_target(f"{what}, at most", MOST_INSIDE, inside))
    for what, key, _ in ERRORS[:3]:
        widths = [
            item["interval_width"] / item["median_error"] if (item := by.get(key)) else None
            for by in only("source")
        ]
        name = f"half-width of the interval over the median error, the source left out: {what}"
        found.append(_target(name, WIDTH, widths, unit="x"))
    if feasible := document["rows"] - document["infeasible"]:
        share = document["covered"] / feasible
        found.append(Target("rows predicted, infeasible ones apart", COVERED, False, share, None))
    return sorted(found, key=lambda target: -target.shortfall)


def _target(
    what: str, wanted: float, values: Sequence[float | None], most: bool = True, unit: str = "%"
) -> Target:
    """`values`: of the model as it is, and of each fold."""
    known = [value for value in values[1:] if value is not None]
    worst = (max if most else min)(known) if known else None
    return Target(what, wanted, most, values[0], worst, unit)


def _of(item: dict[str, Any] | None, name: str) -> float | None:
    return None if item is None else item[name]


def _overall(scores: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(item["metric"], item["serving"]): item for item in scores if item["by"] == "all"}


def _inside(by: dict[tuple[str, str], dict[str, Any]]) -> float | None:
    rows = sum(item["rows"] for item in by.values())
    if not rows:
        return None
    return sum(item["interval_coverage"] * item["rows"] for item in by.values()) / rows


TARGET_HEADER = ("", "target", "nothing out", "held out, worst fold", "")


def target_rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Under TARGET_HEADER."""

    def said(value: float | None, unit: str) -> str:
        if value is None or unit == "%":
            return tenths(value)
        return f"{value:.1f}"

    return [
        (
            target.what,
            ("at most " if target.most else "at least ") + said(target.wanted, target.unit),
            said(target.reached, target.unit),
            said(target.held, target.unit),
            target.verdict,
        )
        for target in targets(document)
    ]


_KEPT = (*range(6), 7, 9, 10)  # columns of HEADER without the 90th percentile and the rank
BACKTEST_HEADER = ("chip", "laws of", *(HEADER[k] for k in _KEPT), "its own laws", "in 80%")


def backtest_rows(cases: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Under BACKTEST_HEADER; the last two are of today's fit without the chip's rows."""
    for case in cases:
        for item in case["scores"]:
            today, row = item["held_out_by_chip"], score_row(item)
            yield (
                case["chip"],
                case["laws"],
                *(row[k] for k in _KEPT),
                tenths(_of(today, "group_median_error")),
                tenths(_of(today, "interval_coverage")),
            )


def backtest_words(cases: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence a case: how often the interval held, and the speed over the older chip."""
    lines = []
    for case in cases:
        inside = case["interval_coverage"]
        narrow = [
            f"{short(item['metric'])} {item['serving']} {tenths(item['interval_coverage'])}"
            for item in case["scores"]
            if item["interval_coverage"] < LEAST_INSIDE
        ]
        verdict = ""
        if narrow:
            verdict = f"; too few of {', '.join(narrow)}"
        elif inside > MOST_INSIDE:
            verdict = ": wider than needed"
        line = (
            f"{case['chip']} with the laws of {case['laws']}, fitted to the {case['fitted_rows']:,}"
            f" rows of other chips ({case['left_out']} left out): {tenths(inside)} of its "
            f"{case['rows']:,} rows lie inside their 80% interval{verdict}."
        )
        pair = case["speed_up"]
        if pair is not None:
            line += (
                f" Speed of {pair['chip_a']} over {pair['chip_b']}: measured "
                f"{pair['measured']:.2f}, predicted {pair['predicted']:.2f} (medians of "
                f"{pair['pairs']:,} pairs of rows; off by {tenths(pair['median_error'])} at the "
                "median)."
            )
        lines.append(line)
    return lines
