"""What the rules of `dse check` refuse is not exported: the same rules, one message."""

from __future__ import annotations

from collections.abc import Mapping

from dse.errors import InputError
from dse.questions.check.degrees import nearest_degrees, refused_by
from dse.space.candidates import CandidateBatch

FLAGS = {
    "tensor_parallel": "--tp", "pipeline_parallel": "--pp", "expert_parallel": "--ep",
}  # fmt: skip


def refuse_illegal(batch: CandidateBatch, stack: str, version: str) -> None:
    """Raises InputError, with the reasons and the nearest degrees, where `stack` (a name of
    `dse.rules.kinds`) does not take the one shape of `batch` with its degrees."""
    broken = refused_by(batch, stack)
    if not broken:
        return
    near = [_words(change) for change in nearest_degrees(batch, stack)]
    raise InputError(
        f"{stack} {version} refuses it: {'; '.join(broken)}",
        field="deployment",
        accepted=f"nearest: {', or '.join(near)}" if near else "another shape",
    )


def _words(change: Mapping[str, int]) -> str:
    return " ".join(f"{FLAGS[axis]} {degree}" for axis, degree in change.items())
