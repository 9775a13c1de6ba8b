"""What a space file says, line by line: kept with a study, so that a change can be named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dse import __version__
from dse.catalog import Catalog
from dse.errors import InputError
from dse.problem.objective import PhysicsProblem, on_terms, pose
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS
from dse.schema.axes import Axis
from dse.schema.study import Study, load_study, resolve_space
from dse.search.record import Record
from dse.study.folder import option_of, read_study, space_of

_MOST_SHOWN = 4
_LONGEST = 60


def definition(study: Study) -> dict[str, Any]:
    """{line: JSON value} of everything that decides a result."""
    by_name = {axis.name: axis for axis in study.axes}
    return {
        "model": study.model,
        "training_compute": study.training_compute,
        "training_tokens": study.training_tokens,
        **({"quality law": study.quality_law} if study.quality_law != DEFAULT else {}),
        **({"loss runs": study.loss_runs.digest[:12]} if study.loss_runs else {}),
        **({"unique tokens": unique} if (unique := study.unique_tokens) != UNIQUE_TOKENS else {}),
        **({"extrapolation": "allowed"} if study.allow_extrapolation else {}),
        "price basis": study.price_basis,
        **({"training": asdict(study.training)} if study.training else {}),
        **({"lifetime": asdict(study.lifetime)} if study.lifetime else {}),
        **{
            f"cost {name}": value
            for name, value in (study.costs.values() if study.costs else {}).items()
        },
        **{f"axis {axis.name}": _axis(axis, by_name) for axis in study.axes},
        **{f"objective {o.metric}": o.direction for o in study.objectives},
        **{f"constraint {c.text}": "kept" for c in study.constraints},
        **{
            f"workload {load.name}".rstrip(): {
                key: value for key, value in load.row().items() if key != "name"
            }
            for load in study.workloads
        },
    }


def _axis(axis: Axis, by_name: Mapping[str, Axis]) -> Any:
    if axis.ratio_of is None and not axis.when and not axis.by_chip:
        return list(axis.values)
    rule: dict[str, Any] = {"values": list(axis.values)}
    if axis.ratio_of is not None:
        rule |= {"ratio of": axis.ratio_text, "multiple of": axis.multiple_of}
    for condition in axis.when:
        values = by_name[condition.axis].values
        rule[f"when {condition.axis}"] = [values[i] for i in condition.indices]
    if axis.by_chip:
        chips = by_name[axis.chip_axis].values
        for k, positions in enumerate(axis.by_chip):
            rule[f"on {chips[k]}"] = [axis.values[i] for i in positions]
    return rule


def differences(there: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> str:
    """`axis chips 8 -> 8, 16; constraint ttft_s <= 2 s added`: the first few, and how many
    more; empty where nothing is known of the old file or nothing that is written differs."""
    if not there:
        return ""
    words = [
        f"{line} {_change(line, there, asked)}"
        for line in dict.fromkeys([*there, *asked])
        if (line in there, there.get(line)) != (line in asked, asked.get(line))
    ]
    more = len(words) - _MOST_SHOWN
    return "; ".join(words[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _change(line: str, there: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    if line not in there:
        return "added"
    if line not in asked:
        return "removed"
    return f"{_short(there[line])} -> {_short(asked[line])}"


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


# A finished study read again, with its space and the catalog that it was made with.


@dataclass(frozen=True, slots=True)
class Reopened:
    """study.json, the items of front.json, the study that its space file says, and the catalog with
    what the study was made with beneath what the command gives."""

    document: Mapping[str, Any]
    items: list[dict[str, Any]]
    study: Study
    catalog: Catalog


def reopened(folder: Path, catalog: Catalog, space: str | None = None) -> Reopened:
    """A study folder; `space` is its space file, where that has moved.

    Raises InputError for a folder that is no study, and for a space file that is missing, has
    changed since, or is that of another study.
    """
    document, items = read_study(folder)
    file = resolve_space(space) if space else space_file_of(document, folder)
    catalog = catalog.over(document)
    study = load_study(
        file, catalog, document.get("quality_law"), option_of(document, "--loss-runs")
    )
    if study.fingerprint == document["fingerprint"]:
        return Reopened(document, items, study, catalog)
    if space:
        raise InputError(
            f"{study.path} is not the space that {folder} was made from",
            field="--space",
            accepted="that space file, or a new `dse run` of this one",
        )
    raise InputError(
        f"{study.path} has changed since {folder} was made from it",
        field="STUDY",
        accepted="that space file as it was, or a new `dse run` of this one",
    )


def space_file_of(document: Mapping[str, Any], folder: Path | str) -> Path:
    """The file of that space. Raises InputError where it does not lie where the study was made."""
    named = space_of(document)
    try:
        return resolve_space(named)
    except InputError:
        raise InputError(
            f"{folder} was made from the space file {named}, which is not here",
            field="STUDY",
            accepted="a command given where `dse run` was, or a new `dse run`",
        ) from None


# A study before its search: its space with the physics, and the study of record.


@dataclass(frozen=True, slots=True)
class Posed:
    """A space with the physics, and what a study of it must share to be continued."""

    problem: PhysicsProblem
    catalog: Catalog
    identity: dict[str, Any]
    defined: dict[str, Any]

    def record(self, location: str | Path, fresh: bool = False) -> Record:
        """The study of record. Raises StorageError where it is another study, saying what
        differs."""
        record = Record(
            self.problem,
            location,
            self.problem.study.name,
            self.identity,
            fresh,
            lambda attrs: differences(attrs.get("definition"), self.defined),
        )
        if "definition" not in record.attrs:
            record.set_attr("definition", self.defined)
        return record


def posed_study(
    space: str,
    catalog: Catalog,
    engine: str,
    seed: int,
    model_version: str = __version__,
    evaluator: str = "model",
    law: str | None = None,
    loss_runs: Path | str | None = None,
) -> Posed:
    """`law` takes the place of the space's quality law, `loss_runs` of its file of runs. Raises
    InputError for a space that is wrong."""
    study = load_study(space, catalog, law, loss_runs)
    catalog = on_terms(catalog.with_files(study.chip_files), study)
    problem = pose(study, catalog)
    identity = {
        "space": problem.study.name,
        "fingerprint": problem.space.fingerprint,
        "engine": engine,
        "seed": seed,
        "model_version": model_version,
        "data_digest": catalog.digest,
        "evaluator": evaluator,
        **({"quality_law": study.quality_law} if study.quality_law != DEFAULT else {}),
    }
    return Posed(problem, catalog, identity, definition(study))
