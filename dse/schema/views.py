"""Views of a space file: questions that a front alone does not answer.

views:
  - by: sparse                          # the cheapest of each value at equal predicted loss
    every_law: true                     # and what the other quality laws say of it
  - by: chip                            # the same, and over a map of two axes for each value
    map: [hidden_size, num_experts]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dse.schema.axes import Axis
from dse.schema.axis_reader import Mistakes
from dse.schema.loader import KeyPath, did_you_mean

QUALITY = "predicted_loss"
COSTS = (
    "usd_per_million_total_tokens", "usd_per_million_input_tokens",
    "usd_per_million_output_tokens", "usd_per_million_output_tokens_all_in",
)  # fmt: skip
_KEYS = ("by", "map", "every_law")
_EXAMPLE = "- by: sparse"


@dataclass(frozen=True, slots=True)
class View:
    """Compares the values of the axis `by`; `map` is empty or the two axes, rows then columns, over
    which the least price is drawn for each value. With `every_law` under all quality laws."""

    by: str
    map: tuple[str, ...] = ()
    every_law: bool = False


def read_views(
    written: Any, axes: Sequence[Axis], objectives: Mapping[str, str], mistakes: Mistakes
) -> tuple[View, ...]:
    """The views of a file; what is wrong goes to `mistakes`."""
    if not isinstance(written, list | tuple):
        mistakes.add(("views",), f"read {written!r}", f"a list: {_EXAMPLE}")
        return ()
    if written and not (
        objectives.get(QUALITY) == "minimize"
        and any(objectives.get(cost) == "minimize" for cost in COSTS)
    ):
        message = "a view is the least price at a predicted loss"
        mistakes.add(("views",), message, f"objectives {QUALITY} and one of {', '.join(COSTS)}")
    known = {axis.name: axis for axis in axes if axis.ratio_of is None and len(axis.values) > 1}
    return tuple(
        view
        for position, one in enumerate(written)
        if (view := _view(one, ("views", position), known, mistakes)) is not None
    )


def _view(written: Any, at: KeyPath, known: Mapping[str, Axis], mistakes: Mistakes) -> View | None:
    if not isinstance(written, Mapping) or "by" not in written:
        mistakes.add(at, f"read {written!r}", f"`{_EXAMPLE}`, and map where it is wanted")
        return None
    before = len(mistakes.errors)
    for key in written:
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS)
            mistakes.add((*at, str(key)), f"unknown key{hint}", ", ".join(_KEYS))
    over = written.get("map", [])
    if "map" in written and not (isinstance(over, list) and len(over) == 2):
        mistakes.add((*at, "map"), f"read {over!r}", "two axes: map: [hidden_size, num_experts]")
        over = []
    every = written.get("every_law", False)
    if not isinstance(every, bool):
        mistakes.add((*at, "every_law"), f"read {every!r}", "true or false")
    named = [(("by",), written["by"]), *((("map", k), axis) for k, axis in enumerate(over))]
    for path, axis in named:
        if not isinstance(axis, str) or axis not in known:
            hint = did_you_mean(str(axis), known)
            message = f"read {axis!r}, no axis of two values or more here{hint}"
            mistakes.add((*at, *path), message, ", ".join(known))
    names = [str(axis) for _, axis in named]
    if len(set(names)) < len(names):
        mistakes.add(at, f"an axis twice: {', '.join(names)}", "different axes")
    if len(mistakes.errors) > before:
        return None
    return View(names[0], tuple(names[1:]), every)
