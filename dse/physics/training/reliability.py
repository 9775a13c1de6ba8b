"""Interruptions, checkpoints and the share of the time that makes progress. Every array is (n,).

Interruptions come at random (exponentially distributed), and a run of N chips has one every
M = chip-hours between interruptions / N. Between checkpoints, each of which takes w seconds during
which no step runs, lie t seconds of steps; after an interruption r seconds pass before the run
stands again where its last checkpoint was. Daly 2006 (Future Generation Computer Systems 22(3),
equation 20): a second of progress takes

    W = M e^(r / M) (e^((t + w) / M) - 1) / t        goodput = 1 / W

of wall clock, an interruption while writing or restarting included. It is least near

    t = sqrt(2 w M) (1 + sqrt(w / 2M) / 3 + w / 18M) - w        (equation 37; M where w >= 2M)

whose first term is Young 1974 (Communications of the ACM 17(9)).
"""

from __future__ import annotations

import numpy as np

from dse.record import record
from dse.space.candidates import Floats

# Beyond this many failures in one interval nothing gets done, and the exponential overflows.
HOPELESS = 300.0


def optimal_interval_s(write_s: Floats, between_s: Floats) -> Floats:
    """(n,) seconds of steps between two checkpoints that waste least; `write_s` seconds of a
    checkpoint, `between_s` mean seconds between interruptions of the whole run."""
    ratio = write_s / (2.0 * between_s)
    root = np.sqrt(ratio)
    near = 2.0 * between_s * root * (1.0 + root / 3.0 + ratio / 9.0) - write_s
    return np.where(ratio < 1.0, near, between_s)


@record
class Goodput:
    """Of a run, (n,) each. `goodput` is the share of the wall clock in which steps are made that
    last; `writing`, `lost` (steps made again) and `restarting` are the other shares, and the four
    add up to 1. `interval_s` between checkpoints, `write_s` of one, `between_s` interruptions."""

    goodput: Floats
    writing: Floats
    lost: Floats
    restarting: Floats
    interval_s: Floats
    write_s: Floats
    between_s: Floats


def goodput(
    chips: Floats,
    chip_s_between: Floats,
    checkpoint_bytes: Floats,
    storage_bytes_per_s: Floats,
    restart_s: Floats,
    interval_s: Floats | None = None,
) -> Goodput:
    """(n,) of runs on `chips` chips with `chip_s_between` chip-seconds between interruptions, which
    write `checkpoint_bytes` at `storage_bytes_per_s` every `interval_s` (None: at the best one)."""
    between = chip_s_between / chips
    write = checkpoint_bytes / storage_bytes_per_s
    best = np.maximum(optimal_interval_s(write, between), 1e-9 * between)
    interval = best if interval_s is None else interval_s + np.zeros(len(between))
    failures = np.minimum((interval + write) / between, HOPELESS)
    # Wall clock of a second of progress without restarts, and with them.
    run = between * np.expm1(failures) / interval
    whole = run * np.exp(np.minimum(restart_s / between, HOPELESS))
    share = 1.0 / whole
    writing = share * write / interval
    return Goodput(
        goodput=share,
        writing=writing,
        lost=np.maximum(share * run - share - writing, 0.0),
        restarting=share * (whole - run),
        interval_s=interval,
        write_s=write,
        between_s=between,
    )
