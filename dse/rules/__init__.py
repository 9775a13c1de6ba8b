"""Shape rules: what software refuses, what fills a chip, and what published models do.

`errors(batch)` needs a shape and its degrees alone, `wastes(steps)` the steps of
`dse.physics.gemms`, `bands(batch)` nothing else.
"""

from collections.abc import Iterator

from dse.rules.bands import bands
from dse.rules.divide import divisibility
from dse.rules.formats import blocks_of_formats
from dse.rules.kinds import Finding, Flags, Rule
from dse.rules.waste import Filling, Judged, Steps, added_share, judge, wastes
from dse.space.candidates import CandidateBatch


def errors(batch: CandidateBatch) -> Iterator[Finding]:
    """What software refuses of n shapes with their degrees of parallelism."""
    yield from divisibility(batch)
    yield from blocks_of_formats(batch)


__all__ = [
    "Filling",
    "Finding",
    "Flags",
    "Judged",
    "Rule",
    "Steps",
    "added_share",
    "bands",
    "errors",
    "judge",
    "wastes",
]
