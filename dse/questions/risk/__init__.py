"""How sure the best chip is."""
