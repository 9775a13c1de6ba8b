"""`dse.traffic`: the fleet that a trace of requests needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dse import units
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.problem.objective import on_terms
from dse.questions.traffic.answer import Answer, Targets, size_fleets, traffic_of_study
from dse.questions.whatif.paid import paid_with
from dse.schema.study import Space, Study, load_study
from dse.schema.trace import read_trace
from dse.schema.traffic import GROUPS, Traffic, Windows, traffic_of, windows_of


def traffic(
    space: Space,
    *,
    trace: Path | None = None,
    rate: float | None = None,
    percentile: int = 90,
    ttft: str | None = None,
    tpot: str | None = None,
    window: str = "60s",
    share: float = 1.0,
    groups: int | None = None,
    catalog: Catalog | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Answer:
    """The cheapest fleet on each chip of a space for a trace of requests, or for `rate` requests a
    second at random.

        dse.traffic("deploy-llama-3-70b", rate=20, percentile=90).found.fleets[0]

    `space` is a shipped name, a path, or what such a file says, with one model. `share` is that of
    the windows that the fleet is large enough for (--windows), `groups` those of prompt lengths
    (--lengths); the other arguments are the options of `dse traffic`. Raises InputError for what
    cannot be read, NothingFeasible where no chip keeps the targets.
    """
    if (trace is None) == (rate is None):
        said = "neither --trace nor --rate" if trace is None else "--trace and --rate"
        raise InputError(said, accepted="one of the two")
    catalog = catalog or load_catalog()
    study = load_study(space, catalog)
    catalog = on_terms(catalog.with_files(study.chip_files), study)
    targets = _targets(study, percentile, ttft, tpot)
    groups = groups or GROUPS[targets.percentile]
    known, windows = _traffic(study, trace, rate, window, share, groups)
    found = size_fleets(study, catalog, known, targets, progress)
    paid = paid_with(catalog, study, [one.chip for one in found.fleets])
    return Answer(study, known, targets, found, paid, windows, share)


def _traffic(
    study: Study, trace: Path | None, rate: float | None, window: str, share: float, groups: int
) -> tuple[Traffic, Windows | None]:

    seconds = _seconds(window, "--window")
    if trace is None:
        assert rate is not None
        return traffic_of_study(study, rate), None
    read = read_trace(trace)
    return traffic_of(read, seconds, share, groups), windows_of(read, seconds)


def _targets(study: Study, percentile: int, ttft: str | None, tpot: str | None) -> Targets:

    def target(flag: str, given: str | None, prefix: str) -> float:
        if given is not None:
            return _seconds(given, flag)
        own = [
            one.limit
            for one in study.constraints
            if one.metric.startswith(prefix) and one.operator.startswith("<") and not one.workload
        ]
        if not own:
            raise InputError(
                f"{study.name} limits no {prefix}_s", field=flag, accepted="a time, such as 2s"
            )
        return min(own)

    return Targets(percentile, target("--ttft", ttft, "ttft"), target("--tpot", tpot, "tpot"))


def _seconds(text: Any, flag: str) -> float:

    seconds = units.parse(text, "s", field=flag)
    if seconds <= 0.0:
        raise InputError(f"read {text!r}", field=flag, accepted="a time above 0")
    return seconds
