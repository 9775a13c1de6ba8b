"""The fewest chips that are had at once."""

from __future__ import annotations

from dse.schema.catalog import Catalog

LARGEST_DOMAIN = 72  # a larger scale-up domain is not sold whole
SERVERS_PER_RACK = 4


def server_of(catalog: Catalog, chip: str) -> int:
    """Chips of the scale-up domain, which up to LARGEST_DOMAIN is a server or a rack (assumed to be
    had whole)."""
    return catalog.systems[catalog.chip(chip).system].levels[0].size or 1


def rack_of(server: int) -> tuple[int, str]:
    """(chips of a rack, why) of servers of so many."""
    if server < LARGEST_DOMAIN:
        return SERVERS_PER_RACK * server, f"assumed: {SERVERS_PER_RACK} servers in a rack"
    return server, "a server that fills a rack"
