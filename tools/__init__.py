"""What maintainers run from the checkout; none of it is in the wheel, and `dse` imports none of it."""
