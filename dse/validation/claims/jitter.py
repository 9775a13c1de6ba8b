"""Claim 7: uniform latency against peak bandwidth."""

from __future__ import annotations

from dse.study.scale import ceiling, evenness, jitter_limit
from dse.validation.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.validation.claims.scale_up import SUBJECTS, sizes, subject
from dse.validation.claims.words import digits, milliseconds

JITTERS_S = (0.0, 1e-6, 3e-6, 10e-6, 30e-6, 100e-6)
UP_TO = 128
SMALL_S = 3e-6


def judge(groups: list[tuple[int, int]], above: int, of: int) -> str:
    """`groups`: chips that meet in a layer's collectives at no jitter and at the largest; `above`
    of `of` points at which half the jitter gains more than twice the bandwidth."""
    fewer = [last < first for first, last in groups if first > 1]
    if not any(fewer) and above * 2 < of:
        return CONTRADICTED
    return CONFIRMED if all(fewer) and above == of else QUALIFIED


def find() -> Finding:
    groups, rows, points, crossings = [], [], [], []
    for model, chip in SUBJECTS:
        one = subject(model, chip)
        limits = jitter_limit(one, JITTERS_S, chips_up_to=UP_TO)
        groups.append((limits[0].group_chips, limits[-1].group_chips))
        rows.append(
            (
                model,
                chip,
                *(f"{row.group_chips}, {milliseconds(row.minimum_tpot_s)}" for row in limits),
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
            cells = (
                f"{digits(p.jitter_elasticity, 2)} / {digits(p.bandwidth_elasticity, 2)}"
                for p in even
            )
            crossings.append((model, f"{at} x {chip}", name, *cells))
    above = sum(row.jitter_elasticity > row.bandwidth_elasticity for row in points)
    small = [p for p in points if p.jitter_s <= SMALL_S]
    small_above = sum(row.jitter_elasticity > row.bandwidth_elasticity for row in small)
    figures: dict[str, float | None] = {
        "points": float(len(points)),
        "jitter_matters_more": float(above),
        "largest_group_at_no_jitter": float(max(first for first, _ in groups)),
        "largest_group_at_most_jitter": float(max(last for _, last in groups)),
        "points_up_to_3_us": float(len(small)),
        "jitter_matters_more_up_to_3_us": float(small_above),
    }
    names = tuple("none" if not j else f"{j * 1e6:g} us" for j in JITTERS_S)
    return Finding(
        judge(groups, above, len(points)),
        "the largest group whose collectives pay for one user falls from "
        f"{figures['largest_group_at_no_jitter']:g} chips without jitter to "
        f"{figures['largest_group_at_most_jitter']:g} with {JITTERS_S[-1] * 1e6:g} us; half the "
        f"jitter gains more than twice the bandwidth at {above} of {len(points)} points, of those "
        f"up to {SMALL_S * 1e6:g} us at {small_above} of {len(small)}",
        figures,
        f"fp8, prompt 2,048, output 512, instances of up to {UP_TO} chips; one user, and the load "
        "with most tokens within 50 ms on the instance at the ceiling; each collective waits for "
        "the expected maximum over its members of exponential delays of that mean.",
        (
            Table(
                "Chips that meet in a layer's collectives, and the lowest time per token, by "
                "jitter",
                ("model", "chip", *names),
                tuple(rows),
            ),
            Table(
                "At the ceiling: % of time saved per % less jitter / per % more bandwidth",
                ("model", "instance", "requests", *names[1:]),
                tuple(crossings),
            ),
        ),
        "Predicted. Jitter is an input: no distribution of collective times was found published.",
        "What jitter real fabrics have.",
    )


CLAIMS = (
    Claim(
        7,
        "Uniform network latency (low jitter) lets one job use more chips, and matters more than "
        "peak bandwidth.",
        (
            "dse claims 7",
            "dse scale --model llama-3-70b --chip h100_sxm --jitter 0,1us,10us,100us",
        ),
        "Contradicted where no group shrinks with jitter and half the jitter gains less than twice "
        "the bandwidth at most points; confirmed where every group shrinks and it gains more at "
        "all points; else qualified.",
        find,
    ),
)
