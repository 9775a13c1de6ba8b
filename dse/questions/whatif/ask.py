"""`dse.whatif`: what changes when a price, a figure, a demand or a limit does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse import units
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.questions.estimate.ask import known_dtypes
from dse.questions.whatif.answer import Questions, answer
from dse.questions.whatif.change import from_file, from_flags, read_sweep
from dse.questions.whatif.inputs import inputs_of
from dse.questions.whatif.subject import Asked, of_model, of_study, under
from dse.questions.whatif.subject import whole_servers as in_whole_servers
from dse.questions.whatif.words import sentences
from dse.schema.loader import did_you_mean

KINDS = ("cost", "power", "chips", "racks", "quality", "latency")


def whatif(
    study: Any = None,
    changes: Mapping[str, str] | None = None,
    *,
    settings: Sequence[str] = (),
    scenario: str | None = None,
    sweeps: Sequence[str] = (),
    sensitivities: bool = False,
    break_even: bool = False,
    equal: Sequence[str] = (),
    at: str | None = None,
    rack_power: str = "40kW",
    demand: str | None = None,
    peak_over_average: str | None = None,
    whole_servers: bool = False,
    limits: Sequence[str] = (),
    objective: str | None = None,
    model: str | Path | None = None,
    chips: Sequence[str] = (),
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: int | None = None,
    replicas: int | None = None,
    concurrency: int | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    prompt_tokens: int = 2048,
    output_tokens: int = 512,
    prefix_hit_rate: float | None = None,
    requests_per_second: float | None = None,
    backend: str | None = None,
    price_basis: str = "rental_3yr",
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """What a change does to the front and to the winner: the document of `dse whatif --json`.

        dse.whatif("tiny", {"chip.h100_sxm.price": "-20%"})["answer"]

    `study` is what `dse.run` returned, a folder of it, a shipped space, the path of a space file or
    what such a file says; or `model` and `chips` stand in its place, with the arguments from `tp`
    on. `changes` are inputs and what becomes of them, as --set takes them. The other arguments are
    the options of `dse whatif`.

    Raises InputError for what cannot be read, NothingFeasible where no point keeps the limits.
    """
    flags = dict(locals())
    flags["settings"] = [*settings, *(f"{name}={to}" for name, to in (changes or {}).items())]
    asked = _under(_asked(study, catalog or load_catalog(), flags), demand, peak_over_average)
    if whole_servers:
        asked = in_whole_servers(asked)
    document = answer(asked, _questions(asked, flags), progress)
    document["answer"] = sentences(document)
    return document


def _asked(study: Any, catalog: Catalog, flags: dict[str, Any]) -> Asked:
    if study is None:
        known_dtypes(flags)
        return of_model(flags, catalog, flags["limits"], flags["objective"])
    if flags["model"] or flags["chips"]:
        given = "--model" if flags["model"] else "--chip"
        raise InputError(f"{given} does not go with a STUDY", accepted="one of the two")
    space = study if isinstance(study, Mapping) else getattr(study, "folder", study)
    return of_study(space, catalog, flags["limits"], flags["objective"])


def _under(asked: Asked, average: str | None, peak_over_average: str | None) -> Asked:
    """The same under the demand of the flags."""

    if average is None and peak_over_average is None:
        return asked
    try:
        return under(asked, average, peak_over_average)
    except InputError as error:
        flags = {"average": "--demand", "peak_over_average": "--peak-over-average"}
        flag = flags.get(str(error.field), error.field)
        raise InputError(error.message, field=flag, accepted=error.accepted) from None


def _questions(asked: Asked, flags: Mapping[str, Any]) -> Questions:

    known = inputs_of(asked.subject)
    for kind in flags["equal"]:
        if kind not in KINDS:
            message = f"unknown kind {kind!r}{did_you_mean(kind, KINDS)}"
            raise InputError(message, field="--equal", accepted=", ".join(KINDS))
    if flags["at"] and len(flags["equal"]) != 1:
        raise InputError("--at needs one --equal", accepted="--equal power --at 100kW")
    scenarios = from_flags(flags["settings"], known)
    sweeps = [read_sweep(text, known) for text in flags["sweeps"]]
    fixed = scenarios[0].changes if scenarios and sweeps else ()
    for sweep in sweeps:
        if sweep.input.name in [change.input.name for change in fixed]:
            raise InputError(
                f"{sweep.input.name} is set and swept", field="--sweep", accepted="one of the two"
            )
    other = [
        name
        for name in ("sensitivities", "break_even", "equal")
        if flags[name] and flags["settings"]
    ]
    if other:
        raise InputError(
            f"--{other[0].replace('_', '-')} is asked of the study as it stands",
            field="--set", accepted="one of the two; --sweep goes with --set",
        )  # fmt: skip
    if flags["scenario"]:
        scenarios += from_file(flags["scenario"], known)
    rack_w = units.parse(flags["rack_power"], "W", field="--rack-power")
    if rack_w <= 0.0:
        message = f"read {flags['rack_power']!r}"
        raise InputError(message, field="--rack-power", accepted="a power above 0")
    return Questions(
        scenarios=scenarios,
        sweeps=sweeps,
        fixed=fixed,
        sensitivities=flags["sensitivities"],
        break_even=flags["break_even"],
        equal=list(dict.fromkeys(flags["equal"])),
        at=flags["at"],
        rack_w=rack_w,
    )
