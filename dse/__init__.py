"""dse: choose model architectures and hardware together."""

__version__ = "0.1.0"
