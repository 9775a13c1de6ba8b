"""Space files: what is searched, for which workload, towards which objectives; and rediscovery
cases: a design that experts published, and what was known when they chose it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from dataclasses import field as made_anew
from pathlib import Path
from typing import Any, TypeAlias

from dse.data import hardware_dir, search_spaces_dir
from dse.errors import InputError, InputErrors
from dse.files import read_bytes
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS, find_law
from dse.record import record
from dse.schema.axes import AXES, POOLS, Axis, rule_of
from dse.schema.axis_reader import Software, read_axes
from dse.schema.catalog import Catalog, Source
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Costs, check_chips, read_costs
from dse.schema.loader import Document, KeyPath, Lazy, did_you_mean, load_yaml, named_file
from dse.schema.loss_runs import LossRuns, load_loss_runs
from dse.schema.metrics import METRICS, Limit, metric, parse_constraint
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.reader import (
    OPTIONAL,
    REQUIRED,
    TRAINING_TOKENS,
    ByName,
    Flag,
    Listed,
    Mistakes,
    Place,
    Quantity,
    Raw,
    Refused,
    Schema,
    Text,
    Word,
    field,
    read,
)
from dse.schema.space_sections import (
    ALWAYS,
    EXACT,
    SECTIONS,
    LifetimeTerms,
    Resolution,
    View,
    Wish,
    check_training,
    named_chips,
    named_files,
    own_chips,
    read_resolution,
    read_views,
    read_wish,
    why_not,
    with_systems,
)
from dse.schema.system import Rack, load_rack, resolve_rack
from dse.schema.traffic import DEMAND, Demand, check_idle_once
from dse.schema.training import TrainingTerms
from dse.schema.workloads import (
    WeightedWorkload,
    WorkloadSpec,
    check_acceptance,
    has_metric,
    is_open,
    read_workloads,
    workload_content,
)
from dse.vocabulary import Direction

MOST_OBJECTIVES = 5
_DIRECTIONS = ("minimize", "maximize")
GIVEN = "the space given"  # what messages call a space that is no file
# A shipped name, the path of a space file, or what such a file says.
Space: TypeAlias = str | Path | Mapping[str, Any]


@record
class ObjectiveSpec:
    """A metric of `dse.schema.metrics`, the direction that is better, and the difference that
    counts for nothing on a front (`dse.schema.space_sections`)."""

    metric: str
    direction: Direction
    resolution: Resolution = EXACT


class Study(Schema, kw_only=True):
    """One space file.

    The axes, objectives, limits and other parts that refer to each other are read one by one.

    `model` is a catalog id or the path of a configuration file, and `model_axes` is then empty;
    else it is None and one of `training_compute` (FLOP) and `training_tokens` is given. Axes and
    objectives stand in an order that does not depend on the order of the file. `left_out` names
    the chips that were asked for and have no price on the basis, or lack a figure that the space
    needs, and `why_left_out` says which. `costs` are those on which chips are owned, None on every
    other price basis. `chip_files` are the paths of chip files that the space names. Points of the
    front are also priced at the average load of `demand`; no objective or limit reads that. `rack`
    is what a hypothetical scale-up domain stands in, where one is searched. `training` says how
    every shape is trained and `lifetime` how much it then serves, each None where it is not asked.
    `quality_law` names the law that predicts the loss, `loss_runs` are runs of the user that move
    it; of its text, `unique_tokens` are not read twice. Unless
    `allow_extrapolation`, shapes are searched inside what published models measure
    (`dse.rules.bands`). `views` are questions beside the front, which decide nothing of the search.
    `systems` names the system of each chip, where the file lists systems.
    `fingerprint` is the sha256 of everything that decides a result: not of names, titles, comments
    or the order of keys.

    The resolution of the objectives and the `wish` decide what is told of a front, not the search:
    the fingerprint does not hold them.
    """

    name: str = field(Text(1, 100))
    title: str = field(Text(), default="")
    description: str = field(Text(), default="")
    workload: WorkloadSpec | None = field(WorkloadSpec, default=None)
    workloads: tuple[WorkloadSpec, ...] = field(Listed(WeightedWorkload), default=None)
    price_basis: str = field(Text())
    costs: Costs | None = field(Raw(), default=None)
    demand: Demand | None = field(DEMAND, default=None)
    training_compute: float | None = field(Quantity("flop", "more than zero"), default=OPTIONAL)
    training_tokens: float | None = field(TRAINING_TOKENS, default=OPTIONAL)
    quality_law: str = field(Raw(), default=DEFAULT)
    loss_runs: LossRuns | None = field(Text(), default=None)
    unique_tokens: float = field(TRAINING_TOKENS, default=UNIQUE_TOKENS)
    allow_extrapolation: bool = field(Flag(), default=False)
    rack: Rack | None = field(Text(), default=None)
    training: TrainingTerms | None = field(TrainingTerms, default=None)
    lifetime: LifetimeTerms | None = field(LifetimeTerms, default=None)
    model: str | None = field(Raw())
    deployment: Any = field(Raw())
    objectives: tuple[ObjectiveSpec, ...] = field(Raw())
    resolution: Any = field(Raw(), default=None)
    wish: Wish = field(Raw(), default=None)
    constraints: tuple[Limit, ...] = field(Raw(), default=())
    views: tuple[View, ...] = field(Raw(), default=())
    model_axes: tuple[Axis, ...] = ()
    deployment_axes: tuple[Axis, ...] = ()
    left_out: tuple[str, ...] = ()
    why_left_out: Mapping[str, str] = made_anew(default_factory=dict)
    chip_files: tuple[str, ...] = ()
    fingerprint: str = ""
    path: Path = Path()
    systems: Mapping[str, str] = made_anew(default_factory=dict)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.model_axes + self.deployment_axes


def shipped_spaces() -> dict[str, Path]:
    """The space files that come with the project, by name."""
    return {path.stem: path for path in sorted(search_spaces_dir().glob("*.yaml"))}


def chip_files_of(space: Space) -> tuple[str, ...]:
    """The chip files that a space names, without what cannot be read: `load_study` says what is
    wrong."""
    try:
        return named_files(_document(space))
    except InputError:
        return ()


def _document(space: Space) -> Document:
    if isinstance(space, Mapping):
        return Document(GIVEN, space, None)
    return load_yaml(resolve_space(space) if isinstance(space, str) else space)


def resolve_space(text: str) -> Path:
    """A shipped name or the path of a space file. Raises InputError with near spellings."""
    return named_file(text, "space", shipped_spaces())


def load_space(space: Space, *, catalog: Catalog | None = None) -> Study:
    """A space by its shipped name, the path of its file, or what such a file says.

        space = dse.load_space("tiny")
        [axis.name for axis in space.axes]

    Raises InputErrors with every mistake, each with its file (or "the space given"), its line and
    its field.
    """
    return load_study(space, catalog)


def load_study(
    space: Space,
    catalog: Catalog | None = None,
    law: str | None = None,
    loss_runs: Path | str | None = None,
) -> Study:
    """Reads one space against the hardware catalog (the shipped one by default) and the chip files
    that the space names. `law` takes the place of its quality law, `loss_runs` of its file of runs.

    Raises InputErrors with every mistake of the space, each with its line and field.
    """
    document = _document(space)
    mistakes = Mistakes(document)
    known = catalog or Source(hardware_dir()).read()
    document, systems = with_systems(document, mistakes)
    document, chip_files = own_chips(document, known, mistakes)
    catalog = None if mistakes.errors else mistakes.attempt(lambda: known.with_files(chip_files))
    catalog = catalog or known
    frame = Study.read(document.data, Place(mistakes))
    given = vars(frame) if frame else dict.fromkeys(Study.table.names)
    basis = document.data.get("price_basis")
    costs = _costs(document, basis, catalog, mistakes)
    rack = _rack(given["rack"], document, mistakes) if frame else None
    chips = why_not(document, catalog, costs, rack, mistakes)
    model = document.data.get("model")
    sections = ("deployment",) if isinstance(model, str) else ("model", "deployment")
    software = Software(
        known=tuple(catalog.backends),
        own=Lazy(catalog.chips, lambda chip: catalog.chips[chip].backend),
        open=is_open(document),
    )
    axes, left_out = read_axes(document, sections, chips, mistakes, software)
    if isinstance(model, str):
        model = _fixed_model(model, document, mistakes)
    _check_trained(document, mistakes)
    if law is not None:
        law = find_law(law).name
    else:
        written = document.data.get("quality_law", DEFAULT)
        named = mistakes.attempt(lambda: find_law(written, None), ("quality_law",))
        law = named.name if named else DEFAULT
    runs = load_loss_runs(loss_runs) if loss_runs is not None else None
    if runs is None and given["loss_runs"] is not None:
        file = Path(document.file).parent / given["loss_runs"]
        runs = mistakes.attempt(lambda: load_loss_runs(file), ("loss_runs",))
    life = given["lifetime"]
    trained = check_training(given["training"], life, basis, catalog, costs, mistakes)
    if given["demand"] is not None and costs is not None:
        at = Place(mistakes, ("demand",))
        at.call(lambda: check_idle_once(costs.value("utilisation")))
    one, several = given["workload"], given["workloads"]
    files = [*([one] if one else []), *(several or ())] if frame else None
    servings = [file.serving for file in files or ()]
    objectives = _objectives(document, servings, mistakes)
    written = document.data.get("constraints", [])
    constraints = _constraints(written, ("constraints",), servings, mistakes)
    for k, load in enumerate(several or ()):
        at = ("workloads", k, "constraints")
        constraints += tuple(
            replace(limit, workload=load.name, text=f"{load.name}: {limit.text}")
            for limit in _constraints(load.constraints, at, [load.serving], mistakes)
        )
    wanted = {objective.metric: objective.direction for objective in objectives}
    at = Place(mistakes, ("wish",))
    wish = read_wish(document.data.get("wish"), [o.metric for o in objectives], at)
    views = read_views(document.data.get("views", ()), axes, wanted, mistakes)
    workloads = read_workloads(files, document, catalog, mistakes)
    modules = any(axis.name == "num_nextn_predict_layers" for axis in axes)
    drafted = any(rule_of(axis.name) is AXES["draft_tokens"] for axis in axes)
    if drafted and workloads:
        check_acceptance(workloads, model if isinstance(model, str) else None, mistakes)
    if modules and not any(drafted or "draft_tokens" in load.details for load in workloads):
        message = "no effect: no workload drafts with a module"
        accepted = "draft_tokens and acceptance in the workload"
        mistakes.add(("model", "num_nextn_predict_layers"), message, accepted)
    if any(axis.name == POOLS for axis in axes):
        _check_pools(document, servings, mistakes)
    if mistakes.errors or frame is None:
        raise InputErrors(sorted(mistakes.errors, key=lambda error: error.line or 0))

    fixed = model if isinstance(model, str) else None
    names = [workload.name for workload in workloads]
    content = {
        **workload_content(workloads),
        "price_basis": basis,
        "training": [frame.training_compute, frame.training_tokens],
        "model": None if fixed is None else _digest_of_model(Path(fixed)),
        "axes": [_content(axis) for axis in axes],
        "objectives": [[o.metric, o.direction] for o in objectives],
        "constraints": [
            [c.metric, c.operator, c.limit, *([names.index(c.workload)] if c.workload else [])]
            for c in constraints
        ],
    }
    # What a space that leaves it out decides as before it could be said is not in the fingerprint.
    further = {
        "costs": costs and costs.values(),
        "chip_files": [_digest(Path(file)) for file in chip_files],
        "quality_law": law if law != DEFAULT else None,
        "loss_runs": runs and runs.digest,
        "unique_tokens": frame.unique_tokens if frame.unique_tokens != UNIQUE_TOKENS else None,
        "allow_extrapolation": frame.allow_extrapolation,
        "rack": rack and _digest(Path(rack.file)),
        "trained_on": trained and asdict(trained),
        "lifetime": life and asdict(life),
    }
    content |= {name: value for name, value in further.items() if value}
    return replace(
        frame,
        workloads=workloads,
        model=fixed,
        model_axes=tuple(axis for axis in axes if axis.rule.section == "model"),
        deployment_axes=tuple(axis for axis in axes if axis.rule.section != "model"),
        objectives=objectives,
        constraints=constraints,
        left_out=left_out,
        why_left_out={chip: str(chips[chip]) for chip in left_out},
        chip_files=chip_files,
        fingerprint=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        path=Path(document.file),
        rack=rack,
        quality_law=law,
        loss_runs=runs,
        training=trained,
        views=views,
        wish=wish,
        costs=costs,
        systems=dict(zip(named_chips(document.data["deployment"]), systems, strict=False)),
    )


def _check_pools(document: Document, servings: Sequence[str], mistakes: Mistakes) -> None:
    """What a space with pools of their own cannot have beside them."""
    if list(servings) != ["continuous"]:
        accepted = "one workload with serving: continuous"
        mistakes.add(("deployment", "prefill"), f"pools serve {', '.join(servings)}", accepted)
    for key in ("rack", "training", "lifetime", "demand", "views"):
        if key in document.data:
            mistakes.add((key,), "beside prefill and decode pools", f"a space without {key}")


def _rack(written: str | None, document: Document, mistakes: Mistakes) -> Rack | None:
    """The rack of a hypothetical scale-up domain: both are given, or neither."""
    deployment = document.data.get("deployment")
    searched = isinstance(deployment, Mapping) and "scale_up_domain" in deployment
    if written is None:
        if searched:
            at = ("deployment", "scale_up_domain")
            mistakes.add(at, "a hypothetical domain stands in a rack", "rack: hypothetical_copper")
        return None
    if not searched:
        mistakes.add(("rack",), "a rack without scale_up_domain", "the axis scale_up_domain, too")
    beside = Path(document.file).parent
    return mistakes.attempt(lambda: load_rack(resolve_rack(written, beside)), ("rack",))


def _costs(document: Document, basis: object, catalog: Catalog, mistakes: Mistakes) -> Costs | None:
    """The catalog's costs with those of the space, where chips are owned."""
    written = document.data.get("costs")
    if basis != OWNED:
        if written is not None:
            mistakes.add(("costs",), f"read price_basis {basis!r}", f"price_basis: {OWNED}")
        return None
    if written is None:
        return catalog.costs

    def read() -> Costs:
        costs = read_costs(document, ("costs",), written, catalog.costs, document.file)
        check_chips(costs, catalog.chips)
        return costs

    return mistakes.attempt(read) or catalog.costs


def _fixed_model(text: str, document: Document, mistakes: Mistakes) -> str:
    """A catalog id as it is, a path as seen from the space file."""
    beside = Path(document.file).parent / text
    found = str(beside) if beside.exists() else text
    mistakes.attempt(lambda: resolve_model(found), ("model",))
    return found


def _digest_of_model(path: Path) -> str:
    """Of a file, what is in it; of a catalog id, the id."""
    file = path / "config.json" if path.is_dir() else path
    return _digest(file) if file.is_file() else str(path).lower()


def _digest(path: Path) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()


def _check_trained(document: Document, mistakes: Mistakes) -> None:
    """Training compute or training tokens are given; a fixed model may have neither."""
    given = [field in document.data for field in ("training_compute", "training_tokens")]
    model = document.data.get("model")
    if isinstance(model, Mapping) and "training_tokens" in model:
        for field in ("training_compute", "training_tokens"):
            if field in document.data:
                mistakes.add((field,), "the axis training_tokens says it already", "one of the two")
    elif all(given) or not (any(given) or isinstance(document.data.get("model"), str)):
        message = "both training_compute and" if all(given) else "neither training_compute nor"
        accepted = "one of training_compute: 1e24 FLOP and training_tokens: 15T"
        mistakes.add((), f"{message} training_tokens", accepted)


def _objectives(
    document: Document, servings: Sequence[str], mistakes: Mistakes
) -> tuple[ObjectiveSpec, ...]:
    """In the order of METRICS."""
    written = document.data.get("objectives")
    if not isinstance(written, Mapping) or not 1 <= len(written) <= MOST_OBJECTIVES:
        if "objectives" in document.data:
            count = len(written) if isinstance(written, Mapping) else "no mapping of"
            accepted = f"1 to {MOST_OBJECTIVES} lines `metric: minimize` or `metric: maximize`"
            mistakes.add(("objectives",), f"{count} objectives", accepted)
        return ()
    found = {}
    for name, direction in written.items():
        path = ("objectives", str(name))
        mistakes.attempt(lambda name=name: _check_metric(name, servings, document), path)
        if direction not in _DIRECTIONS:
            hint = did_you_mean(direction, _DIRECTIONS)
            mistakes.add(path, f"read {direction!r}{hint}", " or ".join(_DIRECTIONS))
            continue
        found[name] = ObjectiveSpec(name, direction)
    names = [name for name in METRICS if name in found]
    at = Place(mistakes, ("resolution",))
    steps = read_resolution(document.data.get("resolution"), names, at)
    return tuple(replace(found[name], resolution=steps[name]) for name in names)


def _check_metric(name: Any, servings: Sequence[str], document: Document) -> None:
    """Raises InputError for a metric that does not exist, that none of the servings has, or of
    training or life without its section."""
    metric(name)
    if servings and not any(has_metric(serving, name) for serving in servings):
        raise InputError(
            f"{name} means nothing with serving {' and '.join(dict.fromkeys(servings))}",
            accepted="a metric that the serving has, see docs/spaces.md",
        )
    for prefix, section in SECTIONS.items():
        if name.startswith(prefix) and name not in ALWAYS and section not in document.data:
            raise InputError(f"{name} without {section}:", accepted=f"the section {section}:")


def _constraints(
    written: Any, at: KeyPath, servings: Sequence[str], mistakes: Mistakes
) -> tuple[Limit, ...]:
    if not isinstance(written, list | tuple):
        mistakes.add(at, "not a list", "- ttft_s <= 2 s")
        return ()
    found: list[Limit] = []
    for position, text in enumerate(written):
        path = (*at, position)
        try:
            constraint = parse_constraint(text)
            _check_metric(constraint.metric, servings, mistakes.document)
        except InputError as error:
            mistakes.place(path, error)
            continue
        if said := constraint.unusual:
            Place(mistakes, path).doubt(said)
        if any((c.metric, c.operator) == (constraint.metric, constraint.operator) for c in found):
            message = f"{constraint.metric} {constraint.operator} is limited twice"
            mistakes.add(path, message, "one limit")
        found.append(constraint)
    return tuple(found)


def _content(axis: Axis) -> list[Any]:
    """What of an axis decides a result."""
    ratio = axis.ratio_of
    product = [str(ratio.factor), sorted(ratio.times), sorted(ratio.over)] if ratio else None
    when = sorted([condition.axis, list(condition.indices)] for condition in axis.when)
    by_chip = [[list(one) for one in axis.by_chip]] if axis.by_chip else []
    return [axis.name, list(axis.values), product, axis.multiple_of, when, *by_chip]


# Rediscovery cases: a design that experts published, and what was known when they chose it.

KINDS = ("spec", "measured", "claimed", "estimated", "assumed")


class Known(Schema):
    """One thing that was given before the shape was chosen."""

    what: str = field(Text())
    value: str = field(Text())
    kind: str = field(Word(KINDS))
    source: str = field(Text(), default="")
    date: str = field(Text(), default="")
    note: str = field(Text(), default="")

    def check(self) -> None:
        if self.kind == "assumed" and not self.note:
            raise Refused("assumed without a reason", "a note that says why")
        if self.kind != "assumed" and not (self.source and self.date):
            raise Refused("no source or no date", "source and date, or kind: assumed with a note")


class Held(Schema):
    """Values of model axes that the designers had settled on beforehand."""

    axes: Mapping[str, tuple[bool | int | str, ...]] = field(ByName(Listed(Raw())))
    reason: str = field(Text())
    source: str = field(Text(), default="")


class Case(Schema, kw_only=True):
    """One case: `study` is its space, `expert` the published design, `held` maps model axes to the
    values that they are held at, with the reason."""

    name: str = field(Text(1, 100))
    title: str = field(Text())
    space: str = field(Text(), default="", left_out=REQUIRED)
    expert: Model = field(Text())
    known: tuple[Known, ...] = field(Listed(Known), default=(), left_out=REQUIRED)
    hold: Held | None = field(Held, default=None)
    study: Study = None  # pyright: ignore[reportAssignmentType]: read after the rest
    held: Mapping[str, tuple[float, ...]] = made_anew(default_factory=dict)
    path: Path = Path()

    @property
    def why_held(self) -> str:
        if self.hold is None:
            return ""
        return f"{self.hold.reason} ({self.hold.source})" if self.hold.source else self.hold.reason


def shipped_cases() -> dict[str, Path]:
    """The case files that come with the project, by name."""
    folder = search_spaces_dir() / "rediscovery"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def resolve_case(text: str) -> Path:
    """A shipped name or the path of a case file. Raises InputError with near spellings."""
    return named_file(text, "case", shipped_cases())


def load_case(path: Path | str, law: str | None = None, catalog: Catalog | None = None) -> Case:
    """Reads one case with its space, whose path is as seen from the case file; `law` takes the
    place of the space's quality law. Raises InputError for what is wrong in either, and where the
    design was not trained on the space's tokens."""
    document = load_yaml(path)
    case = read(Case, document)
    beside = Path(path).parent / case.space
    if not beside.is_file():
        message = f"no such file: {case.space}"
        raise document.error(("space",), message, "a path as seen from here")
    study = load_study(beside, catalog, law)
    at = "expert"
    try:
        expert = resolve_model(case.expert)
        at = "space"
        _share_corpus(study, expert)
    except InputError as error:
        raise document.error((at,), error.message, error.accepted) from None
    axes = {axis.name: axis for axis in study.model_axes}
    held = case.hold.axes if case.hold else {}
    for name, values in held.items():
        if name not in axes:
            message = f"no axis of the space{did_you_mean(name, axes)}"
            raise document.error(("hold", "axes", name), message, ", ".join(axes))
        if axes[name].ratio_of is not None:
            raise document.error(("hold", "axes", name), "a ratio", "an axis with listed values")
        if unknown := [value for value in values if value not in axes[name].values]:
            accepted = ", ".join(map(str, axes[name].values))
            raise document.error(("hold", "axes", name), f"read {unknown[0]!r}", accepted)
    codes = {name: tuple(_code(name, v) for v in values) for name, values in held.items()}
    return replace(case, study=study, expert=expert, held=codes, path=Path(path))


def case_of(study: Study, expert: Model) -> Case:
    """A space and a published model, of which nothing else is known. Raises InputError where the
    model was not trained on the space's tokens."""
    _share_corpus(study, expert)
    title = f"{expert.name} and {study.title or study.name}"
    return Case(name=study.name, title=title, expert=expert, study=study, path=study.path)


def _share_corpus(study: Study, expert: Model) -> None:
    """Raises InputError where the design was not trained on the space's tokens."""
    tokens, file = study.training_tokens, str(study.path)
    if tokens is None:
        message = "no training_tokens: a design and its rivals share a corpus"
        raise InputError(message, file=file, accepted="training_tokens in the space file")
    if expert.training_tokens not in (None, tokens):
        message = (
            f"its shapes are trained on {tokens:.4g} tokens, {expert.name} on "
            f"{expert.training_tokens:.4g}"
        )
        raise InputError(message, file=file, field="training_tokens", accepted="the same tokens")


def _code(axis: str, value: bool | int | str) -> float:
    """The number that stands for a value in a space."""
    return float(AXES[axis].names.index(value)) if isinstance(value, str) else float(value)
