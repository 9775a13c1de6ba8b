"""Claim 7: uniform latency against peak bandwidth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.scale_up import SUBJECTS, sizes, subject
from dse.answer.numbers import digits
from dse.questions.scale import ceiling, evenness, jitter_limit
from dse.questions.scale.uniform import Evenness

JITTERS_S = (0.0, 1e-6, 3e-6, 10e-6, 30e-6, 100e-6)
UP_TO = 128
SMALL_S, LARGE_S = 3e-6, 10e-6  # the bands of jitter end and start here
SMALL, LARGE = f"up to {SMALL_S * 1e6:g} us", f"{LARGE_S * 1e6:g} us and above"


@dataclass(frozen=True, slots=True)
class Band:
    """A range of jitter. `groups`: chips that meet in a layer's collectives at no jitter and at the
    largest of the range, by subject; `above` of `of` points in it at which half the jitter gains
    more than twice the link bandwidth, `one_user` of them with one request."""

    groups: Sequence[tuple[int, int]]
    above: int
    of: int
    one_user: int = 0

    @property
    def shrinks(self) -> list[bool]:
        return [last < first for first, last in self.groups if first > 1]


def judge_band(band: Band) -> str:
    if not any(band.shrinks) and band.above * 2 < band.of:
        return CONTRADICTED
    return CONFIRMED if all(band.shrinks) and band.above == band.of else QUALIFIED


def judge(bands: Iterable[Band]) -> str:
    """What all bands say, qualified where they differ."""
    verdicts = {judge_band(band) for band in bands}
    return verdicts.pop() if len(verdicts) == 1 else QUALIFIED


def find() -> Finding:
    groups, rows, points, crossings, wider = [], [], [], [], []
    last_small = JITTERS_S.index(SMALL_S)
    for model, chip in SUBJECTS:
        one = subject(model, chip)
        limits = jitter_limit(one, JITTERS_S, chips_up_to=UP_TO)
        groups.append([limits[k].group_chips for k in (0, last_small, -1)])
        rows.append(
            (
                model,
                chip,
                *(f"{row.group_chips}, {digits(row.minimum_tpot_s * 1e3)}" for row in limits),
            )
        )
        found = sizes(model, chip)
        at = ceiling(found).chips or ceiling(found).minimum_chips
        row = next(row for row in found if row.chips == at)
        for name, point in (("1", row.single), ("full load", row.within)):
            if point is None or at == 1:
                continue
            even = evenness(one, [point], JITTERS_S)
            points += even
            at_load = (model, f"{at} x {chip}", name)
            crossings.append((*at_load, *(digits(p.jitter_elasticity, 2) for p in even)))
            wider.append((*at_load, *(digits(p.bandwidth_elasticity, 2) for p in even)))
    bands = {
        SMALL: _band([(first, mid) for first, mid, _ in groups], points, 0.0, SMALL_S),
        LARGE: _band([(first, last) for first, _, last in groups], points, LARGE_S, math.inf),
    }
    largest = [max(sizes) for sizes in zip(*groups, strict=True)]
    figures: dict[str, float | None] = {
        "largest_group_at_no_jitter": float(largest[0]),
        "largest_group_at_3_us": float(largest[1]),
        "largest_group_at_most_jitter": float(largest[2]),
    }
    for name, band in zip(("up_to_3_us", "from_10_us"), bands.values(), strict=True):
        figures |= {
            f"points_{name}": float(band.of),
            f"jitter_matters_more_{name}": float(band.above),
            f"groups_that_shrink_{name}": float(sum(band.shrinks)),
        }
    said = "; ".join(
        f"{name} half the jitter gains more than twice the link bandwidth at {band.above} of "
        f"{band.of} points ({band.one_user} with one user), and {sum(band.shrinks)} of "
        f"{len(band.shrinks)} groups shrink"
        for name, band in bands.items()
    )
    names = tuple("none" if not j else f"{j * 1e6:g} us" for j in JITTERS_S)
    return Finding(
        judge(bands.values()),
        "the largest group whose collectives pay for one user falls from "
        f"{largest[0]} chips without jitter to {largest[1]} with {SMALL_S * 1e6:g} us and "
        f"{largest[2]} with {JITTERS_S[-1] * 1e6:g} us; with jitter {said}",
        figures,
        f"fp8, prompt 2,048, output 512, instances of up to {UP_TO} chips; one user, and the load "
        "with most tokens within 50 ms on the instance at the ceiling; each collective waits for "
        "the expected maximum over its members of exponential delays of that mean.",
        (
            Table(
                "Chips that meet in a layer's collectives, and the lowest time per token in ms, by "
                "jitter",
                ("model", "chip", *names),
                tuple(rows),
            ),
            *(
                Table(
                    f"At the ceiling, by jitter: % of time saved per % {what}",
                    ("model", "instance", "requests", *names[1:]),
                    tuple(saved),
                )
                for what, saved in (("less jitter", crossings), ("more link bandwidth", wider))
            ),
        ),
        "Predicted. Jitter is an input: no distribution of collective times was found published.",
        "What jitter real fabrics have.",
    )


def _band(
    groups: Sequence[tuple[int, int]], points: Sequence[Evenness], low_s: float, high_s: float
) -> Band:
    inside = [point for point in points if low_s <= point.jitter_s <= high_s]
    above = [point for point in inside if point.jitter_elasticity > point.bandwidth_elasticity]
    return Band(groups, len(above), len(inside), sum(p.concurrency == 1 for p in above))


CLAIMS = (
    Claim(
        7,
        "Uniform network latency (low jitter) lets one job use more chips, and matters more than "
        "peak bandwidth.",
        (
            "dse claims 7",
            "dse scale --model llama-3-70b --chip h100_sxm --jitter 0,1us,10us,100us",
        ),
        f"By band of jitter, {SMALL} and {LARGE}: contradicted where no group shrinks and half the "
        "jitter gains less than twice the link bandwidth at most points; confirmed where every "
        "group shrinks and it gains more at all points; else qualified. The claim is what both "
        "bands say, qualified where they differ.",
        find,
    ),
)
