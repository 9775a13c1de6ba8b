"""Cost and energy per token."""

from dse.economics.cost import Cost, cost
from dse.economics.energy import joules_per_output_token

__all__ = ["Cost", "cost", "joules_per_output_token"]
