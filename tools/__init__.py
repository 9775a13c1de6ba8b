"""What maintainers run from the checkout. The wheel leaves it out, and `dse` imports none of it."""
