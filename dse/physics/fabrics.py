"""Fabrics: the levels of every chip's system as tables, ready to be gathered by candidate.

The first level is the scale-up domain. Its tables have shape (chips, GROUPS), by the base-2
logarithm of the group, rounded up. Up to the largest group in the chip's efficiency file they hold
what was measured there, latency, bandwidth and ramp; beyond it the closed forms below, anchored at
that group: its latency and what its cheapest algorithm costs
more in hops and messages, its share of the bandwidth, and its ramp. Of all algorithms two are kept:
the one that moves long messages fastest, and one with less latency where there is one.

Every further level, the last without bound, is a `Network` between the domains of the level inside,
by the logarithm of how many of them a group spans.

What collectives cost on each topology, in closed forms over group sizes: with n the chips of a
group, B the bytes of a collective, h one hop and w the bytes a second that a chip sends over all
its links,

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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.record import record
from dse.schema.efficiency import Collective, Efficiency
from dse.schema.system import ON_PCIE, FabricLevel, System
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


def spanned(level: FabricLevel, n: Floats) -> Floats:
    """(n,) axes of more than one chip that a group spans."""
    return np.sum([length > 1.0 for length in axes(level, n)[0]], axis=0).astype(np.float64)


def _on_axes(level: FabricLevel, collective: str, n: Floats) -> tuple[Algorithm, ...]:
    lengths, closed = axes(level, n)
    total, several = usable(level), (n > 1.0).astype(np.float64)
    pair = pair_bytes_per_s(level) or total
    hops, longest = np.zeros(len(n)), np.ones(len(n))
    for length in lengths:
        hops = hops + np.where(closed > 0.0, np.floor(length / 2.0), np.maximum(length - 1.0, 0.0))
        longest = np.maximum(longest, length)
    links = np.maximum(spanned(level, n), 1.0) * (1.0 + closed)
    per_link = total / pair if np.isfinite(total) else 1.0
    wire = (n - 1.0) / n * np.maximum(per_link / links, 1.0)
    none = np.zeros(len(n))
    if collective == "all_to_all":
        middle: Floats = np.maximum(longest / (4.0 * (1.0 + closed)) * per_link, (n - 1.0) / n)
        return (Algorithm("direct over the axes", several, hops, none, middle * several),)
    gather = Algorithm("ring per axis", hops, hops, none, wire)
    return (gather if collective == "all_gather" else _twice(gather, gather.name),)


GROUPS = 14  # groups of up to 2**13 chips
# Expert dispatch reaches this share of the label between domains: 45 to 46 of 50 GB/s by DeepEP's
# low-latency kernels on 2, 4 and 8 nodes (kernel tables of aiconfigurator-core 0.12.0, sglang
# 0.5.6.post2).
DISPATCH_FRACTION = 0.9

Table = NDArray[np.float64]
_SIZES: Table = np.exp2(np.arange(GROUPS, dtype=np.float64))


class DomainTable(NamedTuple):
    """A collective inside the scale-up domain, (chips, GROUPS), or of one chip, (GROUPS,): the
    algorithm that is fastest for long messages, `s_per_byte` per byte that a ring sends over a
    chip's link; `short_`: the one of least latency where that is another (infinite where not)."""

    latency_s: Table
    s_per_byte: Table
    short_latency_s: Table
    short_s_per_byte: Table
    ramp: Table

    def scaled(self, latency: float, bandwidth: float) -> DomainTable:
        """With every latency and every bandwidth multiplied."""
        return self._replace(
            latency_s=self.latency_s * latency,
            s_per_byte=self.s_per_byte / bandwidth,
            short_latency_s=self.short_latency_s * latency,
            short_s_per_byte=self.short_s_per_byte / bandwidth,
        )


@record
class Network:
    """A level that joins domains of the level inside it. `reach` (chips,) is how many chips one of
    its own domains holds; `latency_s` of each of COLLECTIVES, and `ring_s_per_byte`, per byte that
    a ring sends over a chip's link, are (chips, GROUPS); the rest (chips,). `hop_s` is one message.
    """

    reach: Table
    hop_s: Table
    s_per_byte: Table
    latency_s: Mapping[str, Table]
    ring_s_per_byte: Mapping[str, Table]
    ramp: Table
    jitter_s: Table


@record
class Fabric:
    """Every level of every chip's system. `domain`, `link_bytes_per_s` (all links of a chip),
    `pair_bytes_per_s` (between two) and `host_lanes` (no other links) are (chips,)."""

    domain: Table
    host_lanes: NDArray[np.bool_]
    link_bytes_per_s: Table
    pair_bytes_per_s: Table
    all_reduce: DomainTable
    all_gather: DomainTable
    all_to_all: DomainTable
    jitter_s: Table
    networks: tuple[Network, ...]

    @property
    def jittered(self) -> bool:
        """Whether anything waits for a straggler at all."""
        levels = (self, *self.networks)
        return any(bool(level.jitter_s.any()) for level in levels)


def compile_fabric(systems: Sequence[System], efficiencies: Sequence[Efficiency]) -> Fabric:
    """The fabric of chips with these systems and efficiencies."""
    inner = [system.levels[0] for system in systems]
    tables = {
        name: [
            _domain(level, _Curve.of(getattr(efficiency, name)), name)
            for level, efficiency in zip(inner, efficiencies, strict=True)
        ]
        for name in COLLECTIVES
    }
    deepest = max(len(system.levels) for system in systems)
    return Fabric(
        domain=np.array([float(level.size or 1) for level in inner]),
        host_lanes=np.array([level.topology in ON_PCIE for level in inner]),
        link_bytes_per_s=np.array([usable(level) for level in inner]),
        pair_bytes_per_s=np.array([point_to_point(level) for level in inner]),
        **{name: DomainTable(*map(np.array, zip(*of, strict=True))) for name, of in tables.items()},
        jitter_s=np.array([level.jitter_s for level in inner]),
        networks=tuple(
            _network([_outer(system, place) for system in systems])
            for place in range(1, max(deepest, 2))
        ),
    )


class _Curve(NamedTuple):
    """A measured collective by ascending group size, hashable."""

    chips: tuple[int, ...]
    latency_s: tuple[float, ...]
    fraction: tuple[float, ...]
    ramp: tuple[float, ...]

    @classmethod
    def of(cls, measured: Collective) -> _Curve:
        chips = tuple(sorted(measured.latency_s))
        columns = (measured.latency_s, measured.bandwidth_fraction, measured.ramp)
        return cls(chips, *(tuple(column[n] for n in chips) for column in columns))


@lru_cache(maxsize=1024)
def _domain(level: FabricLevel, measured: _Curve, name: str) -> DomainTable:
    """That of one chip."""
    latency, fraction, ramp = _curve(measured, _SIZES)
    link = _usable_link(level, _SIZES)
    hops = _mean_hops(level, _SIZES) if name == "all_to_all" else np.ones(GROUPS)
    none = np.full(GROUPS, np.inf)
    known = DomainTable(latency, hops / (fraction * link), none, none, ramp)
    # A whole domain may lie between two powers of two; no larger group runs inside it.
    sizes = np.minimum(_SIZES, float(level.size or 1))
    far = sizes > measured.chips[-1]
    if not far.any():
        return known
    beyond = _beyond(level, measured, name, sizes)
    best = DomainTable(*(np.where(far, b, a) for a, b in zip(known, beyond, strict=True)))
    # The rise of messages is the kernel's, and no more of it comes with hops.
    risen = np.where(far, np.sqrt(max(measured.latency_s) / best.latency_s), 1.0)
    return best._replace(ramp=ramp * risen)


def _beyond(level: FabricLevel, measured: _Curve, name: str, sizes: Table) -> DomainTable:
    """The closed forms at `sizes`, anchored at the largest measured group."""
    few, many = measured.chips[0], measured.chips[-1]
    latency, fraction = max(measured.latency_s), measured.fraction[-1]
    each_s = 0.0  # of one more peer
    if many > few:
        each_s = max((latency - measured.latency_s[0]) / (many - few), 0.0)
    twice = 2.0 if name == "all_reduce" else 1.0

    def costs(n: Table) -> list[tuple[str, Table, Table]]:
        ring = twice * np.maximum(n - 1.0, 1.0) / n
        return [
            (one.name, one.hops * level.latency_s + one.peers * each_s, one.wire / ring)
            for one in algorithms(level, name, n)
        ]

    anchor = costs(np.array([float(many)]))
    base_s = min(float(seconds[0]) for _, seconds, _ in anchor)
    rows = []
    for (one, seconds, wire), (_, _, there) in zip(costs(sizes), anchor, strict=True):
        took = latency + np.maximum(seconds - base_s, 0.0)
        if name == "all_to_all" and level.topology not in AXES:
            took = _curve(measured, sizes)[0]  # DeepEP's grows so: 23 to 27 us from 16 to 64 chips
        # Where switches add, the measured group's did: so much of the link did they reach.
        reached = fraction * (float(there[0]) if one == "in network" else 1.0)
        rows.append((took, wire / (reached * usable(level))))
    return _two_best(rows)


def _two_best(rows: list[tuple[Table, Table]]) -> DomainTable:
    """Of algorithms (latency, seconds per byte), without a ramp; of equals the first."""
    latency, per_byte = map(np.array, zip(*rows, strict=True))
    place = np.arange(latency.shape[1])
    fastest = per_byte <= per_byte.min(axis=0) * (1.0 + 1e-12)
    long = np.where(fastest, latency, np.inf).argmin(axis=0)
    short = latency.argmin(axis=0)
    better = latency[short, place] < latency[long, place]
    return DomainTable(
        latency[long, place],
        per_byte[long, place],
        np.where(better, latency[short, place], np.inf),
        np.where(better, per_byte[short, place], np.inf),
        np.zeros(len(place)),
    )


def _outer(system: System, place: int) -> tuple[FabricLevel, float]:
    """(the level between domains at a place, its `size` in domains of the level inside, and how
    many chips it joins): a system with fewer levels has its last one there, with nothing to join.
    """
    last = len(system.levels) - 1
    level, inside = system.levels[min(place, last)], system.levels[max(min(place, last) - 1, 0)]
    reach = np.inf if place >= last else float(level.size or np.inf)
    domains = None if level.size is None else max(level.size // (inside.size or 1), 1)
    return replace(level, size=domains), reach


def _network(levels: list[tuple[FabricLevel, float]]) -> Network:
    label = np.array([usable(level) for level, _ in levels])
    s_per_byte = 1 / (np.array([level.reached for level, _ in levels]) * label)
    rows = {name: [_between(level, name) for level, _ in levels] for name in COLLECTIVES}
    over_link = dict.fromkeys(COLLECTIVES, s_per_byte) | {
        "all_to_all": 1 / (DISPATCH_FRACTION * label)
    }
    return Network(
        reach=np.array([reach for _, reach in levels]),
        hop_s=np.array([level.latency_s + level.software_s for level, _ in levels]),
        s_per_byte=s_per_byte,
        latency_s={name: np.array([one.latency_s for one in rows[name]]) for name in COLLECTIVES},
        ring_s_per_byte={
            name: np.array([one.s_per_byte for one in rows[name]]) * over_link[name][:, None]
            for name in COLLECTIVES
        },
        ramp=np.array([level.ramp for level, _ in levels]),
        jitter_s=np.array([level.jitter_s for level, _ in levels]),
    )


@lru_cache(maxsize=1024)
def _between(level: FabricLevel, name: str) -> DomainTable:
    """A collective between so many domains; seconds per byte are over those of a ring. Nothing
    measured tells algorithms apart: they are those that collective
    libraries run there, trees or halving and doubling on a switch (log2 m hops a gather)."""
    kept = {"recursive doubling", "halving and doubling", "in network", "ring per axis"}
    if level.topology in ("full_mesh", *ON_PCIE):
        kept = {"direct", "two-shot"}
    if name == "all_to_all":
        kept = {"direct", "direct over the axes"}
    twice = 2.0 if name == "all_reduce" else 1.0
    several = _SIZES > 1.0
    ring = np.where(several, twice * (_SIZES - 1.0) / _SIZES, 1.0)
    hop_s = level.latency_s
    first_s = hop_s + level.software_s  # of every step
    rows = [
        (
            one.steps * first_s + (one.hops - one.steps) * hop_s,
            np.where(several, one.wire / ring, 1.0),
        )
        for one in algorithms(level, name, _SIZES)
        if one.name in kept
    ]
    return _two_best(rows)


def _curve(measured: _Curve, sizes: Table) -> tuple[Table, Table, Table]:
    """Interpolates the measured group sizes in log2; beyond them, extrapolated, latency grows at
    the last slope (never falls) and the bandwidth fraction and the ramp stay."""
    known = np.log2(np.array(measured.chips, dtype=float))
    latency = np.maximum.accumulate(measured.latency_s)
    log2 = np.log2(sizes)
    slope = 0.0
    if len(known) > 1:
        slope = max((latency[-1] - latency[0]) / (known[-1] - known[0]), 0.0)
    seconds = np.interp(log2, known, latency) + slope * np.maximum(log2 - known[-1], 0.0)
    fraction, ramp = (
        np.interp(log2, known, column) for column in (measured.fraction, measured.ramp)
    )
    return seconds, fraction, ramp


def _usable_link(level: FabricLevel, sizes: Table) -> Table:
    """(n,) bytes per second and direction that one chip can use inside groups of `sizes` chips.

    A full mesh gives one pair link per peer; a torus gives the links of the axes that the group
    spans, two a closed axis (TPU pods: jax-ml scaling book, "How to think about TPUs").
    """
    total, pair = usable(level), pair_bytes_per_s(level)
    if pair is None or level.topology not in ("full_mesh", *AXES):
        return np.full(len(sizes), total)
    links = sizes - 1.0
    if level.topology in AXES:
        links = spanned(level, sizes) * (1.0 + axes(level, sizes)[1])
    return np.where(sizes > 1.0, np.minimum(total, pair * links), total)


def _mean_hops(level: FabricLevel, sizes: Table) -> Table:
    """(n,) links that a byte crosses on the way to a random chip of groups of `sizes`: in a torus a
    quarter of each closed axis or a third of each open one, else one."""
    if level.topology not in AXES:
        return np.ones(len(sizes))
    every = zip(sizes, spanned(level, sizes), axes(level, sizes)[1], strict=True)
    hops = [k * n ** (1.0 / max(k, 1.0)) / (4.0 if closed else 3.0) for n, k, closed in every]
    return np.maximum(hops, 1.0)
