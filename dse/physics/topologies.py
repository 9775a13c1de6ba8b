"""What collectives cost on each topology: closed forms over group sizes.

With n the chips of a group, B the bytes of a collective, h one hop and w the bytes a second that a
chip sends over all its links,

    seconds = steps * s + hops * h + peers * o + wire * B / w

`steps` are messages that follow each other (s: the software of one), `hops` the links or switches
that these cross, `peers` is to how many others a chip sends at once (o: what each of these messages
costs it), `wire` is in units of B. An all-gather leaves B on every chip, a reduce-scatter
takes B from each, an all-reduce of B is both: of every algorithm here but the one-shot all-reduce
and the one inside the network it costs twice a reduce-scatter. An all-to-all sends B from every
chip, evenly to the others. log2 n is rounded up.

| topology | algorithm | hops of a gather | wire of a gather | source |
|---|---|---|---|---|
| any with a switch | ring | n - 1 | (n - 1) / n | Thakur, Rabenseifner, Gropp 2005 |
| | recursive doubling | log2 n | (n - 1) / n | the same, section 4.1 |
| | direct | 1, and n - 1 peers | (n - 1) / n | |
| | in network | 1 | (n - 1) / n; reduce 1 + 1 / n | SHARP (Graham et al. 2016), NVLS |
| full mesh | direct | 1, and n - 1 peers | w / (n p): one link a pair, of p | Chan et al. 2007 |
| ring, torus | ring per axis | sum of a / 2 | (n - 1) / n w / (links p) | scaling book, tpus |
| dragonfly | as a switch | 2 for one inside a group of routers, else 3 | | Kim et al. 2008 |

A torus of axes a_i uses both directions of each axis that it spans; an axis that is not closed has
one link at its end and a - 1 hops. The bytes of its all-to-all cross the middle of the longest
axis, n B / 4 over 2 n / a links: a w / (8 p) of B, twice that where the axis is open. A balanced
dragonfly (a = 2 h = 2 p) carries evenly spread traffic at the full rate. Inside the network a
reduced byte leaves a chip once and comes back once, at the same time, so an all-reduce takes
1 + 1 / n of B in place of 2 (n - 1) / n.
"""

from __future__ import annotations

import numpy as np

from dse.record import record
from dse.schema.system import ON_PCIE, FabricLevel
from dse.space.candidates import Floats

COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")
AXES = {"ring": 1, "torus_2d": 2, "torus_3d": 3}
CUBE = 64  # chips of a 3D torus whose axes are closed by optical switches (TPU v4 and later)


@record
class Algorithm:
    """One way to run a collective in groups of n chips; arrays (n,), as above."""

    name: str
    steps: Floats
    hops: Floats
    peers: Floats
    wire: Floats


def algorithms(level: FabricLevel, collective: str, n: Floats) -> tuple[Algorithm, ...]:
    """Every algorithm that a level's topology admits in groups of `n` chips; `collective` is one of
    COLLECTIVES, and a reduce-scatter is an all-gather."""
    if level.topology in AXES:
        return _on_axes(level, collective, n)
    if level.topology == "full_mesh":
        return _on_mesh(level, collective, n)
    return _switched(level, collective, n)


def point_to_point(level: FabricLevel) -> float:
    """Bytes a second between two chips: one link where pairs have their own, else all."""
    pair = pair_bytes_per_s(level)
    return usable(level) if pair is None else min(usable(level), pair)


def usable(level: FabricLevel) -> float:
    """Bytes a second that one chip sends over all its links; infinite where it is not known."""
    known = level.bytes_per_s_per_direction
    return np.inf if np.isnan(known) else known


def pair_bytes_per_s(level: FabricLevel) -> float | None:
    """Bytes a second of one link between two neighbours; None where chips meet at a switch. Where a
    mesh or torus does not give it, its chips divide their bandwidth evenly among their links."""
    if level.bytes_per_s_per_pair is not None:
        return level.bytes_per_s_per_pair
    if level.topology == "full_mesh" and level.size is not None and level.size > 1:
        return usable(level) / (level.size - 1.0)
    if level.topology in AXES:
        return usable(level) / (2.0 * AXES[level.topology])
    return None


def _log2(n: Floats) -> Floats:
    return np.ceil(np.log2(np.maximum(n, 1.0)))


def _switched(level: FabricLevel, collective: str, n: Floats) -> tuple[Algorithm, ...]:
    share, crossed = (n - 1.0) / n, _switches(level, n)
    once = (n > 1.0).astype(np.float64)

    def one(name: str, steps: Floats, wire: Floats, peers: Floats | float = 0.0) -> Algorithm:
        return Algorithm(name, steps, steps * crossed, peers + np.zeros(len(n)), wire)

    direct = one("direct", once, share, n - 1.0)
    if collective == "all_to_all":
        return (direct,)
    gathers = [one("ring", n - 1.0, share), direct]
    in_network = level.in_network_reduction and level.topology not in ON_PCIE
    if level.topology not in ON_PCIE:
        gathers.append(one("recursive doubling", _log2(n), share))
    if collective == "all_gather":
        return (*gathers, one("in network", once, share)) if in_network else tuple(gathers)
    names = {"direct": "two-shot", "recursive doubling": "halving and doubling"}
    reduces = [_twice(gather, names.get(gather.name, gather.name)) for gather in gathers]
    if in_network:
        reduces.append(one("in network", once, (1.0 + 1.0 / n) * once))
    return (*reduces, one("one-shot", once, n - 1.0, n - 1.0))


def _twice(gather: Algorithm, name: str) -> Algorithm:
    """An all-reduce as a reduce-scatter and an all-gather."""
    parts = (gather.steps, gather.hops, gather.peers, gather.wire)
    return Algorithm(name, *(2.0 * part for part in parts))


def _switches(level: FabricLevel, n: Floats) -> Floats:
    """(n,) switches between two chips of a group: in a dragonfly, whose routers have p chips and p
    links to other groups and whose groups have 2 p routers, 1 at the same router, 2 in the same
    group, else 3 (Kim et al. 2008, section 3: 2 p^2 (2 p^2 + 1) chips)."""
    if level.topology != "dragonfly":
        return np.ones(len(n))
    chips = float(level.size) if level.size is not None else np.inf
    group = (np.sqrt(1.0 + 4.0 * chips) - 1.0) / 2.0
    router = np.sqrt(group / 2.0)
    return 1.0 + (n > router) + (n > group)


def _on_mesh(level: FabricLevel, collective: str, n: Floats) -> tuple[Algorithm, ...]:
    several, total = (n > 1.0).astype(np.float64), usable(level)
    pair = pair_bytes_per_s(level) or total
    # An n-th of B over each link, but no more than the chip sends in all.
    share: Floats = (n - 1.0) / n
    if np.isfinite(total):
        share = np.maximum(total / (n * pair), share)
    direct = Algorithm("direct", several, several, n - 1.0, share * several)
    if collective != "all_reduce":
        return (direct,)
    return (
        _twice(direct, "two-shot"),
        Algorithm("one-shot", several, several, n - 1.0, n * direct.wire),
    )


def axes(level: FabricLevel, n: Floats) -> tuple[list[Floats], Floats]:
    """(chips along each axis that a group may span, (n,) 1 where these are closed). Doubling a
    group opens or lengthens the next axis; axes close when the group is a whole pod or, in 3D, has
    whole cubes of 64."""
    count = AXES[level.topology]
    doublings = _log2(n)
    lengths: list[Floats] = [
        np.exp2((doublings + (count - 1.0 - k)) // count) for k in range(count)
    ]
    rest = np.ones(len(n))
    for length in lengths[1:]:
        rest = rest * length
    lengths[0] = n / rest  # where n is no power of two
    whole = n >= (np.inf if level.size is None else float(level.size))
    closed = whole | ((level.topology == "torus_3d") & (n >= CUBE))
    return lengths, closed.astype(np.float64)


def _on_axes(level: FabricLevel, collective: str, n: Floats) -> tuple[Algorithm, ...]:
    lengths, closed = axes(level, n)
    total, several = usable(level), (n > 1.0).astype(np.float64)
    pair = pair_bytes_per_s(level) or total
    hops, spanned, longest = np.zeros(len(n)), np.zeros(len(n)), np.ones(len(n))
    for length in lengths:
        hops = hops + np.where(closed > 0.0, np.floor(length / 2.0), np.maximum(length - 1.0, 0.0))
        spanned = spanned + (length > 1.0)
        longest = np.maximum(longest, length)
    links = np.maximum(spanned, 1.0) * (1.0 + closed)
    per_link = total / pair if np.isfinite(total) else 1.0
    wire = (n - 1.0) / n * np.maximum(per_link / links, 1.0)
    none = np.zeros(len(n))
    if collective == "all_to_all":
        middle: Floats = np.maximum(longest / (4.0 * (1.0 + closed)) * per_link, (n - 1.0) / n)
        return (Algorithm("direct over the axes", several, hops, none, middle * several),)
    gather = Algorithm("ring per axis", hops, hops, none, wire)
    return (gather if collective == "all_gather" else _twice(gather, gather.name),)
