"""Search spaces: index grids with conditional axes, and the candidates that an index stands for."""
