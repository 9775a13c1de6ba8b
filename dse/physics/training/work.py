"""What one micro-batch costs and leaves behind on a chip, added up operator by operator."""

from __future__ import annotations

import numpy as np

from dse.physics.collectives import Cost
from dse.space.candidates import Floats


class Sums:
    """Arrays (n,) that start at 0, by the names that a class declares."""

    def __init__(self, n: int) -> None:
        for name in self.__annotations__:
            setattr(self, name, np.zeros(n))

    def __iadd__(self, other: Sums):
        for name in self.__annotations__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class Work(Sums):
    """Seconds of device work, communication left out, (n,) each: `forward`, `backward` and its
    `weight_gradient`; of both, `elementwise`, `attention`, `higher_precision` (what arithmetic in a
    format with a lower peak takes more, at that peak) and `uneven` (the busiest experts over the
    mean); `cheap`: what selective recomputation does again. For energy, of the mean chip: seconds
    of arithmetic at the dense peak of its own format, and bytes through memory, forward and
    backward.
    """

    attention: Floats
    backward: Floats
    backward_bytes: Floats
    backward_peak: Floats
    cheap: Floats
    elementwise: Floats
    forward: Floats
    forward_bytes: Floats
    forward_peak: Floats
    higher_precision: Floats
    uneven: Floats
    weight_gradient: Floats

    @property
    def seconds(self) -> Floats:
        """(n,) forward and backward."""
        return self.forward + self.backward


class Kept(Sums):
    """Bytes that one micro-batch keeps on a chip for the backward pass, (n,) each. `residual` is as
    wide as the hidden state, whole on every tensor-parallel rank unless the sequence is divided;
    `droppable_` is what selective recomputation does not keep: outputs of norms and activations."""

    droppable_residual: Floats
    droppable_sharded: Floats
    residual: Floats
    sharded: Floats


class Sends(Sums):
    """Collectives: seconds, and bytes that a chip sends inside and outside its domain, (n,)."""

    link_bytes: Floats
    network_bytes: Floats
    seconds: Floats

    def add(self, count: Floats | float, cost: Cost, factor: float = 1.0) -> None:
        """`count` collectives of one cost, whose seconds are multiplied by `factor`."""
        self.seconds = self.seconds + (cost.latency_s + cost.transfer_s) * (count * factor)
        self.link_bytes = self.link_bytes + count * cost.sent.inside_bytes()
        self.network_bytes = self.network_bytes + count * cost.sent.outside_bytes()

    def times(self, count: Floats | float) -> Sends:
        """So many of all of them."""
        more = Sends(len(self.seconds))
        for name in self.__annotations__:
            setattr(more, name, getattr(self, name) * count)
        return more
