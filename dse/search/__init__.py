"""Search engines behind one protocol, and the study of record. The only place that imports
Optuna: `ParetoLocalSampler`, for studies of one's own, is imported when it is first asked for."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dse.search.pareto_local import ParetoLocalSampler

__all__ = ["ParetoLocalSampler"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dse.search' has no attribute {name!r}")
    from dse.search.pareto_local import ParetoLocalSampler  # noqa: PLC0415

    return ParetoLocalSampler
