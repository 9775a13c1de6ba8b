"""The fewest chips that are had at once."""

from __future__ import annotations

from dse.schema.catalog import Catalog

LARGEST_DOMAIN = 72  # a larger scale-up domain is not sold whole


def server_of(catalog: Catalog, chip: str) -> int:
    """Chips of the scale-up domain, which up to LARGEST_DOMAIN is a server or a rack (assumed to be
    had whole)."""
    return catalog.systems[catalog.chip(chip).system].levels[0].size or 1
