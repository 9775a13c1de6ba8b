"""Reads the axes of a space file and notes every mistake at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dse.record import record
from dse.schema.axes import (
    AGGREGATED,
    AXES,
    LARGEST_SIZE,
    LINEAR_KINDS,
    POOL_AXES,
    POOLS,
    SEPARATE,
    Axis,
    Branch,
    Condition,
    Product,
    Section,
    Value,
    branches,
    ratio_of,
    tokens_of,
)
from dse.schema.chip import GENERIC
from dse.schema.constants import TIERS
from dse.schema.dtypes import ALIASES, DTYPES
from dse.schema.loader import Document, KeyPath, did_you_mean
from dse.schema.reader import Mistakes

POOL_CHIPS = "pool_chips"
CURRENT = "current"  # the software that a chip's file names
MOST_VALUES = 10_000
_SHARES = ("weights_offloaded_percent", "kv_offloaded_percent")
# The ways to write the values of an axis, and what goes with each.
_FORMS = {
    "values": ("values", "when"),
    "from": ("from", "to", "multiple_of", "powers_of", "when"),
    "ratio_of": ("ratio_of", "values", "multiple_of", "when"),
    "values_by": ("values_by", "of", "when"),
}
_KEYS = tuple(dict.fromkeys(key for keys in _FORMS.values() for key in keys))


@record
class Software:
    """What may serve: ids of all `known` backends, and of each chip its `own`; `open` where the
    workload names none."""

    known: tuple[str, ...] = ()
    own: Mapping[str, str] = field(default_factory=dict)
    open: bool = False


def read_axes(
    document: Document,
    sections: Sequence[Section],
    chips: Mapping[str, str | None],
    mistakes: Mistakes,
    software: Software,
) -> tuple[tuple[Axis, ...], tuple[str, ...]]:
    """The axes of the sections, in an order that does not depend on the order of the file, and the
    chips that were asked for and cannot be compared. `chips` says of every chip that may be named
    why it cannot (None: it can).

    What is wrong goes to `mistakes`; the axes are complete only where nothing was added.
    """
    before = len(mistakes.errors)
    reader = _Reader(mistakes, chips, software)
    pools: dict[str, _Reader] = {}
    for section in sections:
        if section not in document.data:
            continue
        written = document.data[section]
        if not isinstance(written, Mapping):
            mistakes.add((section,), "not a mapping of axes", "`axis: values` lines")
        elif section == "deployment":
            pools = _read_deployment(written, reader)
        else:
            reader.read(section, written)
            reader.required(section)
            if section == "model" and {"sliding_window", "attention_chunk_size"} <= {*reader.seen}:
                reader.wrong("attention_chunk_size", "beside sliding_window", "one of the two")
    axes = reader.finish(sections)
    if pools and len(mistakes.errors) == before:
        axes = _with_pools(axes, reader, pools)
    if len(mistakes.errors) == before:
        axes = _in_order(axes, reader)
    if len(mistakes.errors) == before:
        _check_branches(axes, reader)
    every = (name for one in (reader, *pools.values()) for name in one.left_out)
    return axes, tuple(dict.fromkeys(every))


def _read_deployment(written: Mapping[str, Any], reader: _Reader) -> dict[str, _Reader]:
    """Reads the axes of a deployment; gives the readers of its pools, where it names them."""
    pools = {pool: written[pool] for pool in POOL_AXES if pool in written}
    own = {name: raw for name, raw in written.items() if name not in pools}
    reader.read("deployment", own)
    readers = _read_pools(pools, own, reader) if pools else {}
    if pools and not own.keys() - {POOL_CHIPS}:
        return readers
    if not pools and POOL_CHIPS in own:
        reader.wrong(POOL_CHIPS, "without pools", "also prefill and decode: axes of a worker")
    reader.required("deployment")
    given = [name for name in ("chips", "replicas") if name in reader.seen]
    if len(given) != 1:
        said = "both chips and replicas" if given else "neither chips nor replicas"
        reader.mistakes.add(("deployment",), said, "one of them; the other follows from it")
    shares = [name for name in _SHARES if name in reader.seen]
    if shares and "offload_tier" not in reader.seen:
        reader.wrong(shares[0], "in which memory tier?", f"also offload_tier: {' or '.join(TIERS)}")
    if "offload_tier" in reader.seen and not shares:
        reader.wrong("offload_tier", "nothing is put into it", f"also one of {', '.join(_SHARES)}")
    # Where the workload leaves its software open, chips that have their own are served by it.
    axis, software = reader.axes.get("chip"), reader.software
    chips = axis.values if axis else ()
    if axis and "backend" in reader.seen:
        if not software.open:
            message = "the workload says it already"
            reader.wrong("backend", message, "backend: current in the workload, or no line of it")
    elif software.open and any(software.own[str(chip)] != GENERIC for chip in chips):
        reader.axis("backend", CURRENT, given=False)
    reader.check_drafts()
    return readers


@dataclass(slots=True)
class _Reader:
    """Axes as they are read, with where they stand in the file. `shares`: whether the pool is on
    the chips of the deployment; `seen`: every known axis that is written, in the order of the
    file."""

    mistakes: Mistakes
    chips: Mapping[str, str | None]
    software: Software
    pool: str = ""
    shares: bool = False
    left_out: list[str] = field(default_factory=list)
    axes: dict[str, Axis] = field(default_factory=dict)
    conditions: dict[str, Any] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def wrong(self, name: str, message: str, accepted: str | None = None, *key: str | int) -> None:
        self.mistakes.add((*self._section(AXES[name].section), name, *key), message, accepted)

    def _section(self, section: Section) -> tuple[str, ...]:
        return ("deployment", self.pool) if self.pool and section != "model" else (section,)

    def _known(self, section: Section) -> list[str]:
        """The axes that may be written in a section, or of a worker of the pool."""
        if self.pool:
            return list(POOL_AXES[self.pool])
        return [axis for axis, rule in AXES.items() if rule.section == section and axis != POOLS]

    def below(self, reader: _Reader, model: Sequence[Axis]) -> None:
        """The axes of the model are known here, as conditions and ratios may name them."""
        self.axes = {axis.name: axis for axis in model} | self.axes
        self.conditions = {axis.name: reader.conditions[axis.name] for axis in model} | (
            self.conditions
        )
        self.seen = [name for name in reader.seen if AXES[name].section == "model"] + self.seen

    def on_chips_of(self, beside: _Reader) -> None:
        """The pool is on the chips of the deployment that `beside` has read."""
        self.axes["chip"], self.conditions["chip"] = beside.axes["chip"], {}
        self.left_out, self.shares = list(beside.left_out), True
        self.seen.append("chip")

    def required(self, section: Section) -> None:
        """Notes the axes that a section must have and has not."""
        for name in self._known(section):
            rule = AXES[name]
            chosen = rule.needs is not None and rule.needs[0] in self.seen
            if rule.required and name not in self.seen and not chosen:
                at, accepted = self._section(section), f"{name}: {rule.meaning}"
                self.mistakes.add(at, f"the axis {name} is missing", accepted)

    def read(self, section: Section, written: Mapping[str, Any]) -> None:
        known = self._known(section)
        for name, raw in ((str(name), raw) for name, raw in written.items()):
            if name in known:
                self.seen.append(name)
                self.axis(name, raw)
                continue
            there = AXES[name].section if name in AXES and name != POOLS else section
            if self.pool:
                there = next((pool for pool, of in POOL_AXES.items() if name in of), there)
            elsewhere = f"; it belongs under {there}" if there != section else ""
            hint = elsewhere or did_you_mean(name, known)
            at = (*self._section(section), name)
            self.mistakes.add(at, f"unknown axis {name!r}{hint}", ", ".join(known))

    def axis(self, name: str, raw: Any, given: bool = True) -> None:
        """The axis of what a file says of it, or is read as if it said (`given` False)."""
        written = raw if isinstance(raw, Mapping) else {"values": raw}
        self.conditions[name] = written.get("when", {})
        form = _form(written)
        for key in written:
            if key not in _FORMS[form]:
                known = f"unknown field {key!r}{did_you_mean(key, _KEYS)}"
                message = f"{key} does not go with {form}" if key in _KEYS else known
                self.wrong(name, message, ", ".join(_FORMS[form]), str(key))
        if form == "values_by" or (AXES[name].kind == "backend" and form == "values"):
            self._by_chip(name, written, given=given)
            return
        ratio, text, multiple = None, "", 1
        if form != "values" and AXES[name].kind != "size":
            self.wrong(name, f"{form} is for sizes", _accepted(name), form)
            return
        if form == "ratio_of":
            text = str(written["ratio_of"])
            ratio = self._product(name, text)
            multiple = self._whole(name, "multiple_of", {"multiple_of": 1, **written})
        values = self._values(name, written, ("values",) if written is raw else ())
        self.axes[name] = Axis(name, values, ratio, text, multiple, given=given)

    def _values(self, name: str, written: Mapping[str, Any], key: KeyPath) -> tuple[Value, ...]:
        """Of a range, or of what is listed."""
        ranged = _form(written) == "from"
        return self._range(name, written) if ranged else self._listed(name, written, key)

    def _by_chip(self, name: str, written: Mapping[str, Any], *, given: bool) -> None:
        """An axis of which each chip has values of its own; software is always read so, since
        `current` is each chip's own."""
        chips = self.axes.get("chip")
        of: Any = written.get("of", {"default": written.get("values")})
        if written.get("values_by", "chip") != "chip" or not isinstance(of, Mapping) or not of:
            message = f"read {written.get('values_by')!r} with of: {written.get('of')!r}"
            accepted = "values_by: chip, of: {b200_sxm: [1, 2, 4, 8], default: [1, 2]}"
            self.wrong(name, message, accepted, "values_by")
            return
        if chips is None or AXES[name].section != "deployment" or name == "chip":
            message = "values by chip need the axis chip above them, and stand under deployment"
            self.wrong(name, message, "chip: [...] as the first axis", "values_by")
            return
        for chip in of:
            if chip not in (*chips.values, *self.left_out, "default"):
                hint = did_you_mean(chip, map(str, chips.values))
                accepted = f"default, {', '.join(map(str, chips.values))}"
                self.wrong(name, f"{chip!r} is no chip of this space{hint}", accepted, "of", chip)
        found = {chip: self._of_chip(name, str(chip), of) for chip in chips.values}
        union: list[Value] = list(dict.fromkeys(one for values in found.values() for one in values))
        if AXES[name].kind in ("size", "flag"):
            union.sort()
        may = [tuple(sorted(map(union.index, values))) for values in found.values()]
        alike = all(len(one) == len(union) for one in may)
        self.axes[name] = Axis(name, tuple(union), given=given, by_chip=() if alike else tuple(may))

    def _of_chip(self, name: str, chip: str, of: Mapping[str, Any]) -> tuple[Value, ...]:
        """The values of an axis on one chip."""
        key = chip if chip in of else "default"
        if key not in of:
            self.wrong(name, f"no values for {chip}", f"{chip}: [...], or default: [...]", "of")
            return ()
        raw = of[key]
        written = raw if isinstance(raw, Mapping) else {"values": raw}
        form = _form(written)
        if form not in ("values", "from") or (form == "from" and AXES[name].kind != "size"):
            self.wrong(name, f"{form} is not for a chip's own values", _accepted(name), "of", key)
            return ()
        found = self._values(name, written, ("of", key))
        if AXES[name].kind != "backend":
            return found
        own = self.software.own
        served = tuple(dict.fromkeys(own[chip] if one == CURRENT else str(one) for one in found))
        if len(served) > 1 and GENERIC in served:
            message = f"{GENERIC} is no software to choose: it stands for a current one"
            self.wrong(name, message, f"{GENERIC} alone, or ids of others", "of", key)
        return served

    def _whole(self, name: str, key: str, written: Mapping[str, Any], least: int = 1) -> int:
        value = written.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value:
            self.wrong(name, f"read {value!r}", f"a whole number, {least} or more", key)
            return least
        return value

    def _range(self, name: str, written: Mapping[str, Any]) -> tuple[Value, ...]:
        """Multiples, or powers, from `from` to `to`, both included."""
        steps = [key for key in ("multiple_of", "powers_of") if key in written]
        if len(steps) != 1:
            self.wrong(name, "a range needs one kind of step", "multiple_of: 256, or powers_of: 2")
            return ()
        least = AXES[name].least
        low, high = (self._whole(name, key, written, least) for key in ("from", "to"))
        step = self._whole(name, steps[0], written, 1 if steps[0] == "multiple_of" else 2)
        if high > AXES[name].most:
            self.wrong(name, f"read {high}", f"at most {AXES[name].most}", "to")
            return ()
        if steps[0] == "multiple_of":
            found: Sequence[int] = range(-(-low // step) * step, high + 1, step)
        else:
            found = [step**k for k in range(LARGEST_SIZE.bit_length()) if low <= step**k <= high]
        if not found:
            self.wrong(name, f"no value from {low} to {high}", f"from <= to with a {steps[0]}")
        if len(found) > MOST_VALUES:
            self.wrong(name, f"{len(found)} values", f"at most {MOST_VALUES}")
            return ()
        return tuple(found)

    def _listed(self, name: str, written: Mapping[str, Any], key: KeyPath) -> tuple[Value, ...]:
        raw = written.get("values")
        items = raw if isinstance(raw, list) else [raw]
        kind = "ratio" if "ratio_of" in written else AXES[name].kind
        if raw == "all" and kind == "chip":
            items = list(self.chips)
        if raw is None or not items:
            self.wrong(name, "no values", _accepted(name, kind))
            return ()
        if len(items) > MOST_VALUES:
            self.wrong(name, f"{len(items)} values", f"at most {MOST_VALUES}")
            return ()
        found: list[Value] = []
        for position, item in enumerate(items):
            place = (*key, position) if isinstance(raw, list) else key
            value = self._value(name, kind, item, place)
            if value is not None and value in found:
                self.wrong(name, f"{item!r} is listed twice", None, *place)
            elif kind == "chip" and value is not None and self.chips[str(value)]:
                self.left_out.append(str(value))
            elif value is not None:
                found.append(value)
        if kind == "chip" and self.left_out and not found:
            why = "; ".join(str(self.chips[chip]) for chip in self.left_out[:3])
            accepted = "chips with a price on the price_basis and every figure that is needed"
            self.wrong(name, f"no chip here can be compared: {why}", accepted)
        return tuple(sorted(found) if kind in ("size", "flag", "ratio", "tokens") else found)

    def _value(self, name: str, kind: str, item: Any, place: KeyPath) -> Value | None:
        """One value, or None where it is wrong."""
        accepted, hint = _accepted(name, kind), ""
        if kind == "flag" and isinstance(item, bool):
            return item
        if kind == "size":
            least, most = AXES[name].least, AXES[name].most
            whole = isinstance(item, int) and not isinstance(item, bool)
            if whole and least <= item <= most:
                return item
            accepted = f"a whole number from {least} to {most}"
        if kind == "ratio" and (value := ratio_of(item)) is not None:
            return value
        if kind == "tokens" and (value := tokens_of(item)) is not None:
            return value
        own = AXES[name].names
        names = {"name": own, "dtype": own or DTYPES, "chip": self.chips, "tier": TIERS}
        names |= {"backend": (CURRENT, *self.software.known)}
        if kind in names and isinstance(item, str):
            item = ALIASES.get(item, item) if kind == "dtype" else item
            if item in names[kind]:
                return item
            hint = did_you_mean(item, names[kind])
        self.wrong(name, f"read {item!r}{hint}", accepted, *place)
        return None

    def _product(self, name: str, text: str) -> Product | None:
        """`hidden_size / head_dim * 2` -> Product."""
        tokens = re.findall(r"[A-Za-z_][A-Za-z_0-9]*|[0-9.]+|\S", text)
        factor, times, over, good = Fraction(1), [], [], len(tokens) % 2 == 1
        for operator, term in zip(["*", *tokens[1::2]], tokens[0::2], strict=False):
            number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", term)
            good &= operator in ("*", "/") and (number is None or Fraction(term) > 0)
            if not good:
                break
            if number:
                factor = factor * Fraction(term) if operator == "*" else factor / Fraction(term)
            else:
                (times if operator == "*" else over).append(term)
                good &= term.isidentifier()
        if not good:
            accepted = "axes and numbers joined by * and /, such as hidden_size / head_dim"
            self.wrong(name, f"read {text!r}", accepted, "ratio_of")
            return None
        return Product(factor, tuple(times), tuple(over))

    def check_drafts(self) -> None:
        axis = self.axes.get("draft_tokens")
        if axis is not None and len(axis.values) > 1 and 0 not in axis.values:
            self.wrong("draft_tokens", "drafting is never off", "0 among the values, too")

    def finish(self, sections: Sequence[Section]) -> tuple[Axis, ...]:
        """Adds conditions and defaults, once every axis is known."""
        written = [name for name in self.seen if name in self.axes]
        for name, rule in AXES.items():
            left_out = rule.section in sections and name not in self.seen
            left_out &= not self.pool or name in POOL_AXES[self.pool]
            if left_out and rule.default is not None and self.may_count(name):
                self.axis(name, rule.default, given=False)
        for name in list(self.axes):
            axis = self.axes[name]
            for other in axis.ratio_of.names if axis.ratio_of else ():
                if other not in self.axes:
                    hint = did_you_mean(other, self.axes)
                    accepted = "a size that this file gives"
                    self.wrong(
                        name, f"a ratio over {other!r}, no axis here{hint}", accepted, "ratio_of"
                    )
                elif AXES[other].kind != "size" or AXES[other].least == 0:
                    accepted = "sizes that are never 0"
                    self.wrong(name, f"a ratio over {other}", accepted, "ratio_of")
                elif (axis.rule.section, AXES[other].section) == ("model", "deployment"):
                    message = f"a ratio over {other}: a shape cannot follow from its deployment"
                    self.wrong(name, message, "axes of the model", "ratio_of")
        for name in list(self.axes):
            self.axes[name] = replace(
                self.axes[name], when=tuple(dict.fromkeys(self._conditions(name)))
            )
        for name in written:
            needs = AXES[name].needs
            if needs and needs[0] not in self.seen and not self.may_count(name):
                self.wrong(name, *_lacks(*needs))
        return tuple(self.axes[name] for name in AXES if name in self.axes)

    def may_count(self, name: str) -> bool:
        """Whether what the axis needs holds somewhere in the space."""
        needs = AXES[name].needs
        if needs is None:
            return True
        other, wanted = needs
        if other not in self.axes:  # a name that is left out has its first value
            return wanted is not None and AXES[other].names[:1] == wanted[:1]
        axis = self.axes[other]
        held = (value in wanted if wanted else bool(value) for value in axis.values)
        return axis.ratio_of is not None or any(held)

    def _conditions(self, name: str) -> Iterator[Condition]:
        """Those that follow from what the axis needs, and those that are written."""
        written, rule = self.conditions[name], AXES[name]
        if not isinstance(written, Mapping):
            self.wrong(name, f"read {written!r}", "when: {axis: value or list}", "when")
            return
        if written and rule.unconditional:
            self.wrong(name, "counts in every point and takes no condition", None, "when")
        axis = rule.needs and self.axes.get(rule.needs[0])
        ratios = [other.ratio_of.names for other in self.axes.values() if other.ratio_of]
        shared = rule.shared and any(name in names for names in ratios)
        if rule.needs and axis and axis.ratio_of is None and not shared:  # a ratio is never 0
            wanted = rule.needs[1]
            held = [value in wanted if wanted else bool(value) for value in axis.values]
            yield Condition(axis.name, tuple(k for k, on in enumerate(held) if on))
        for other, wanted in written.items():
            controller = self.axes.get(other)
            if other not in self.seen:
                hint = did_you_mean(other, self.seen)
                self.wrong(name, f"a condition on {other!r}, no axis here{hint}", None, "when")
            elif self.seen.index(other) >= self.seen.index(name):
                message = f"a condition on {other}, which comes later"
                self.wrong(name, message, f"{other} above {name}", "when", other)
            elif controller is not None and controller.ratio_of is not None:
                message = f"a condition on {other}, which is a ratio"
                accepted = "a condition on an axis with listed values"
                self.wrong(name, message, accepted, "when", other)
            elif controller is not None:
                known, indices = controller.values, set[int]()
                for value in wanted if isinstance(wanted, list) else [wanted]:
                    value = ALIASES.get(value, value) if isinstance(value, str) else value
                    same = {k for k, v in enumerate(known) if v == value and type(v) is type(value)}
                    if not same:
                        message = f"{other} is never {_yaml(value)}"
                        self.wrong(name, message, ", ".join(map(_yaml, known)), "when", other)
                    indices |= same
                yield Condition(other, tuple(sorted(indices)))


def _in_order(axes: Sequence[Axis], reader: _Reader) -> tuple[Axis, ...]:
    """Each axis after those it depends on, else in the order of AXES."""
    waiting, done = {axis.name: axis for axis in axes}, {}
    while waiting:
        free = (
            axis for axis in waiting.values() if all(other in done for other in axis.depends_on)
        )
        axis = next(free, None)
        if axis is None:
            # Whatever still waits lies on a cycle or hangs on one.
            name = next(iter(waiting))
            round_trip = [name]
            while (
                name := next(n for n in waiting[name].depends_on if n in waiting)
            ) not in round_trip:
                round_trip.append(name)
            round_trip = round_trip[round_trip.index(name) :]
            reader.wrong(name, f"depends on itself: {' -> '.join([*round_trip, name])}")
            return tuple(axes)
        done[axis.name] = waiting.pop(axis.name)
    return tuple(done.values())


# What every model needs in which an axis has the value; without the axis its first value holds.
_REQUIRED: tuple[tuple[str, Value, tuple[str, ...]], ...] = (
    ("sparse", False, ("intermediate_size",)),
    ("sparse", True, ("num_experts", "num_experts_per_tok", "moe_intermediate_size")),
    ("attention", "gqa", ("head_dim", "num_key_value_heads")),
    ("attention", "mla", ("kv_lora_rank",)),
    *(("linear_attention", kind, ("full_attention_interval",)) for kind in LINEAR_KINDS),
)
_MODELS: Mapping[Value, str] = {True: "sparse", False: "dense"}


def _check_branches(axes: Sequence[Axis], reader: _Reader) -> None:
    """What only shows when the conditions are worked out: an axis that never counts, a ratio over
    one that does not always, a shape that lacks an axis or has an idle one."""
    found = reader.mistakes.attempt(lambda: branches(axes), ())
    if found is None:
        return
    position = {axis.name: j for j, axis in enumerate(axes)}

    def active(branch: Branch, name: str) -> bool:
        return name in position and branch.active[position[name]]

    for axis in axes:
        mine = [branch for branch in found if active(branch, axis.name)]
        if not mine and not reader.may_count(axis.name):
            other, wanted = axis.rule.needs or ("", None)
            kinds = f": {' or '.join(map(str, wanted))}" if wanted else " above 0"
            said = f"counts only with {other}{kinds}, which no point here has"
            reader.wrong(axis.name, said, f"another {other}, or no {axis.name}")
        elif not mine:
            said = "never counts: its conditions cannot hold together"
            reader.wrong(axis.name, said, None, "when")
        for other in axis.ratio_of.names if axis.ratio_of else ():
            if not all(active(branch, other) for branch in mine):
                said = f"a ratio over {other}, which does not always count here"
                reader.wrong(axis.name, said, f"the conditions of {other}", "when")
    if "hidden_size" not in position:
        return

    def having(controller: str, value: Value) -> Sequence[Branch]:
        """The branches in which an axis has a value; without the axis, its first value holds."""
        if controller not in position:
            return found if value == (*AXES[controller].names, False)[0] else ()
        values = axes[position[controller]].values
        if value not in values:
            return ()
        index = values.index(value)
        return [b for b in found if b.chosen.get(controller, index) == index]

    for controller, value, names in _REQUIRED:
        mine = having(controller, value)
        for name in names:
            if not all(active(branch, name) for branch in mine):
                there = ", which does not count in all of them" if name in position else ""
                message = f"{_MODELS.get(value, str(value))} models need {name}{there}"
                reader.wrong(name, message, f"{name}: {AXES[name].meaning}")
    if "intermediate_size" in position:
        width = axes[position["intermediate_size"]]
        first = axes[position["num_dense_layers"]].values if "num_dense_layers" in position else ()
        step = "interleave_moe_layer_step"
        between = step in position and max(map(float, axes[position[step]].values)) > 1
        idle = not any(first) and not between and len(width.values) > 1
        if idle and any(active(branch, width.name) for branch in having("sparse", True)):
            message = "has no effect in sparse models without dense layers"
            reader.wrong(width.name, message, "when: {sparse: false}")


def _form(written: Mapping[str, Any]) -> str:
    """Which of _FORMS the values are written in."""
    ranged = "from" in written or "to" in written
    marks = (("values_by", "values_by" in written), ("ratio_of", "ratio_of" in written))
    return next((form for form, here in (*marks, ("from", ranged)) if here), "values")


_ACCEPTED = {
    "size": "whole numbers",
    "flag": "true or false",
    "ratio": 'numbers above zero, or fractions such as "1/96"',
    "dtype": ", ".join(DTYPES),
    "chip": "chip ids, see `dse catalog chips list`",
    "tier": ", ".join(TIERS),
    "backend": "ids of hardware/backends, or current",
    "tokens": "numbers of tokens, such as 15T, from 1M",
}


def _accepted(name: str, kind: str | None = None) -> str:
    """What an axis takes; `kind` where its values are not of its own kind."""
    return ", ".join(AXES[name].names) or _ACCEPTED[kind or AXES[name].kind]


def _lacks(other: str, wanted: tuple[Value, ...] | None) -> tuple[str, str]:
    """(what is wrong, what would be right) of an axis that needs one the file does not have."""
    if other == "sparse":
        return "counts only in a sparse model", "also the axis sparse: true"
    if wanted is None:
        return f"counts only with {other}", f"also the axis {other}: {AXES[other].meaning}"
    named = " or ".join(map(str, wanted))
    return f"counts only with {other}: {named}", f"also the axis {other}: {wanted[0]}"


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# `prefill` and `decode` of a deployment: the axes of the workers of pools of their own.


def _read_pools(
    pools: Mapping[str, Any], own: Mapping[str, Any], beside: _Reader
) -> dict[str, _Reader]:
    """The axes of the workers of both pools, after those of the deployment itself, `own`; a pool
    without `chip` is on the chips of the deployment."""
    mistakes = beside.mistakes
    for pool in POOL_AXES:
        if not isinstance(pools.get(pool), Mapping):
            message = "not a mapping of axes" if pool in pools else "one pool without the other"
            mistakes.add(("deployment", pool), message, f"{pool}: with the axes of a worker")
            return {}
    if not own.keys() & {POOL_CHIPS, "chips"}:
        accepted = f"{POOL_CHIPS}: {AXES[POOL_CHIPS].meaning}; or chips, all of which they take"
        mistakes.add(("deployment",), f"the axis {POOL_CHIPS} is missing", accepted)
        return {}
    readers = {pool: _Reader(mistakes, beside.chips, beside.software, pool) for pool in POOL_AXES}
    for pool, reader in readers.items():
        if "chip" not in pools[pool] and "chip" in beside.axes:
            reader.on_chips_of(beside)
        reader.read("deployment", pools[pool])
        reader.required("deployment")
        reader.check_drafts()
    return readers


def _with_pools(
    axes: Sequence[Axis], reader: _Reader, readers: Mapping[str, _Reader]
) -> tuple[Axis, ...]:
    """The axes of the space: those of the deployment itself count where a point is aggregated,
    those of the pools where they are separate; some are shared (`_shared`). A worker's axis may
    depend on those of the model."""
    model = [axis for axis in axes if axis.rule.section == "model"]
    flat = [axis for axis in axes if axis not in model and axis.name != POOL_CHIPS]
    if not any(axis.given for axis in flat):  # degrees that a file leaves out
        flat = []
    kinds = (AGGREGATED, SEPARATE) if flat else (SEPARATE,)
    aggregated, separate = (Condition(POOLS, (k,)) for k in (0, len(kinds) - 1))
    shared = _shared(flat, reader, readers)
    found = [*model, Axis(POOLS, kinds, given=False)]
    found += [
        axis if axis.name in shared else replace(axis, when=(aggregated, *axis.when))
        for axis in flat
    ]
    found += [replace(axis, when=(separate,)) for axis in axes if axis.name == POOL_CHIPS]
    for pool, own in readers.items():
        own.below(reader, model)
        names = [name for name in POOL_AXES[pool] if name != "chip" or not own.shares]
        found += [
            axis.of_pool(pool, names, separate)
            for axis in own.finish(("deployment", "prefill"))
            if axis.name in names
        ]
    return tuple(found)


def _shared(
    flat: Sequence[Axis], reader: _Reader, readers: Mapping[str, _Reader]
) -> tuple[str, ...]:
    """The axes of the deployment that are those of separate pools, too: the chip where a pool names
    none, all chips where `pool_chips` does not bound them, the software. One software hands the
    cache to the other pool, so that of each chip is refused where a pool has chips of its own."""
    given = {axis.name: axis for axis in flat}
    on_own = [pool for pool, own in readers.items() if not own.shares]
    backend = given.get("backend")
    if on_own and backend is not None and (backend.by_chip or not backend.given):
        message = f"software by chip, and {on_own[0]} has chips of its own: both pools run one"
        accepted = "backend: current, or another, in the workload; or pools without chip"
        reader.mistakes.add(("deployment", on_own[0], "chip"), message, accepted)
    chip = ("chip",) if len(on_own) < len(readers) else ()
    chips = () if POOL_CHIPS in reader.axes else ("chips",)
    return (*chip, *chips, "backend")
