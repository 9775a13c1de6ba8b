"""Pareto fronts: non-dominated sets, hypervolume, and the points worth naming."""

from dse.pareto.choice import KNEE, choose
from dse.pareto.front import Archive, non_dominated
from dse.pareto.hypervolume import REFERENCE, Scale, additive_epsilon, hypervolume, share
from dse.pareto.resolution import resolved

__all__ = [
    "KNEE",
    "REFERENCE",
    "Archive",
    "Scale",
    "additive_epsilon",
    "choose",
    "hypervolume",
    "non_dominated",
    "resolved",
    "share",
]
