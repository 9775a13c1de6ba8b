"""Cost and energy per token."""

from dse.economics.cost import Cost, cost
from dse.economics.energy import energy_metrics

__all__ = ["Cost", "cost", "energy_metrics"]
