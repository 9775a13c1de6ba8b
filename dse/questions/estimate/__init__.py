"""One point: its metrics, where they come from, what would refuse it."""
