"""What the axes of a model must have together: which shape needs which axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dse.schema.axes import AXES, LINEAR_KINDS, Axis, Branch, Value
from dse.schema.reader import Mistakes

# What every model needs in which an axis has the value; without the axis its first value holds.
_REQUIRED: tuple[tuple[str, Value, tuple[str, ...]], ...] = (
    ("sparse", False, ("intermediate_size",)),
    ("sparse", True, ("num_experts", "num_experts_per_tok", "moe_intermediate_size")),
    ("attention", "gqa", ("head_dim", "num_key_value_heads")),
    ("attention", "mla", ("kv_lora_rank",)),
    *(("linear_attention", kind, ("full_attention_interval",)) for kind in LINEAR_KINDS),
)
_MODELS: Mapping[Value, str] = {True: "sparse", False: "dense"}


def check_shapes(
    axes: Sequence[Axis], position: Mapping[str, int], found: Sequence[Branch], mistakes: Mistakes
) -> None:
    """Dense shapes have a feed-forward, sparse ones have experts, and no axis is idle."""

    def active(branch: Branch, name: str) -> bool:
        return name in position and branch.active[position[name]]

    for controller, value, names in _REQUIRED:
        mine = _having(controller, value, axes, position, found)
        for name in names:
            if not all(active(branch, name) for branch in mine):
                what = _MODELS.get(value, str(value))
                message = f"{what} models need {name}" + (
                    ", which does not count in all of them" if name in position else ""
                )
                mistakes.add(("model", name), message, f"{name}: {AXES[name].meaning}")
    if "intermediate_size" in position:
        width = axes[position["intermediate_size"]]
        first = axes[position["num_dense_layers"]].values if "num_dense_layers" in position else ()
        step = "interleave_moe_layer_step"
        between = step in position and max(map(float, axes[position[step]].values)) > 1
        idle = not any(first) and not between and len(width.values) > 1
        mine = _having("sparse", True, axes, position, found)
        if idle and any(active(branch, "intermediate_size") for branch in mine):
            message = "has no effect in sparse models without dense layers"
            mistakes.add(("model", "intermediate_size"), message, "when: {sparse: false}")


def _having(
    controller: str,
    value: Value,
    axes: Sequence[Axis],
    position: Mapping[str, int],
    found: Sequence[Branch],
) -> Sequence[Branch]:
    """The branches in which an axis has a value; without the axis, its first value holds."""
    if controller not in position:
        first = AXES[controller].names[0] if AXES[controller].names else False
        return found if value == first else ()
    values = axes[position[controller]].values
    if value not in values:
        return ()
    index = values.index(value)
    return [b for b in found if b.chosen.get(controller, index) == index]
