"""Uniform latency against peak bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dse.accuracy.claims.engine import Fact, Given, Measured, share
from dse.accuracy.claims.scale_up import SUBJECTS, sizes, subject
from dse.questions.scale.sizes import ceiling
from dse.questions.scale.uniform import Evenness, evenness, jitter_limit

JITTERS_S = (0.0, 1e-6, 3e-6, 10e-6, 30e-6, 100e-6)
UP_TO = 128
SMALL_S, LARGE_S = 3e-6, 10e-6  # the bands of jitter end and start here
SMALL, LARGE = "up_to_3_us", "from_10_us"


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


def band_facts(name: str, band: Band) -> dict[str, Fact]:
    """Shares of the groups that shrink and of the points at which jitter matters more."""
    return {
        f"shrink_{name}": share(band.shrinks),
        f"above_{name}": band.above / band.of,
        f"groups_{name}": len(band.shrinks),
        f"one_user_{name}": band.one_user,
    }


def find(given: Given) -> Measured:
    groups, rows, points, crossings, wider = [], [], [], [], []
    last_small = JITTERS_S.index(SMALL_S)
    for model, chip in SUBJECTS:
        one, found = subject(model, chip), sizes(model, chip)
        limits = jitter_limit(one, JITTERS_S, chips_up_to=UP_TO)
        groups.append([limits[k].group_chips for k in (0, last_small, -1)])
        rows.append((model, chip, *((at.group_chips, at.minimum_tpot_s * 1e3) for at in limits)))
        at = ceiling(found).chips or ceiling(found).minimum_chips
        row = next(row for row in found if row.chips == at)
        for name, point in (("1", row.single), ("full load", row.within)):
            if point is None or at == 1:
                continue
            even = evenness(one, [point], JITTERS_S)
            points += even
            where = (model, f"{at} x {chip}", name)
            crossings.append((*where, *(p.jitter_elasticity for p in even)))
            wider.append((*where, *(p.bandwidth_elasticity for p in even)))
    bands = {
        SMALL: _band([(first, mid) for first, mid, _ in groups], points, 0.0, SMALL_S),
        LARGE: _band([(first, last) for first, _, last in groups], points, LARGE_S, math.inf),
    }
    names = ("at_no_jitter", "at_3_us", "at_most_jitter")
    figures: dict[str, float | None] = {
        f"largest_group_{name}": float(max(chips))
        for name, chips in zip(names, zip(*groups, strict=True), strict=True)
    }
    facts: dict[str, Fact] = {}
    for name, band in bands.items():
        figures |= {
            f"points_{name}": float(band.of),
            f"jitter_matters_more_{name}": float(band.above),
            f"groups_that_shrink_{name}": float(sum(band.shrinks)),
        }
        facts |= band_facts(name, band)
    return Measured(figures, (rows, crossings, wider), facts)


def _band(
    groups: Sequence[tuple[int, int]], points: Sequence[Evenness], low_s: float, high_s: float
) -> Band:
    inside = [point for point in points if low_s <= point.jitter_s <= high_s]
    above = [point for point in inside if point.jitter_elasticity > point.bandwidth_elasticity]
    return Band(groups, len(above), len(inside), sum(p.concurrency == 1 for p in above))
