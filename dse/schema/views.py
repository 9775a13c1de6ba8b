"""Views of a space file: questions that a front alone does not answer.

views:
  - by: sparse                          # the cheapest of each value at equal predicted loss
    every_law: true                     # and what the other quality laws say of it
  - by: chip                            # the same, and over a map of two axes for each value
    map: [hidden_size, num_experts]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.schema.axes import Axis
from dse.schema.loader import did_you_mean
from dse.schema.reader import Flag, Listed, Mistakes, Place, Raw, Refused, Schema, field

QUALITY = "predicted_loss"
COSTS = (
    "usd_per_million_total_tokens",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "usd_per_million_output_tokens_all_in",
)
_EXAMPLE = "- by: sparse"


class View(Schema):
    """Compares the values of the axis `by`; `map` is empty or the two axes, rows then columns, over
    which the least price is drawn for each value. With `every_law` under all quality laws."""

    says = f"`{_EXAMPLE}`, and map where it is wanted"

    by: str = field(Raw(), meaning="the axis whose values are compared", example="sparse")
    map: tuple[str, ...] = field(
        Listed(Raw(), 2, 2, says="two axes: map: [hidden_size, num_experts]"),
        default=(),
        meaning="two axes over which each value is drawn",
    )
    every_law: bool = field(Flag(), default=False, meaning="under all quality laws")


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
    known = {axis.name for axis in axes if axis.ratio_of is None and len(axis.values) > 1}
    found = ((View.read(one, Place(mistakes, ("views", k))), k) for k, one in enumerate(written))
    good = [(view, Place(mistakes, ("views", k))) for view, k in found if view is not None]
    for view, at in good:
        at.call(lambda view=view: _check(view, sorted(known)))
    return tuple(view for view, _ in good)


def _check(view: View, known: Sequence[str]) -> None:
    """Raises Refused where a view is over no axis of the space, or over one twice."""
    for path, axis in (
        (("by",), view.by),
        *((("map", k), axis) for k, axis in enumerate(view.map)),
    ):
        if not isinstance(axis, str) or axis not in known:
            message = (
                f"read {axis!r}, no axis of two values or more here{did_you_mean(axis, known)}"
            )
            raise Refused(message, ", ".join(known), *path)
    names = (view.by, *view.map)
    if len(set(names)) < len(names):
        raise Refused(f"an axis twice: {', '.join(names)}", "different axes")
