"""Cost and energy per token."""
