"""A shape on a chip: what refuses it, what it wastes, shapes near it."""
