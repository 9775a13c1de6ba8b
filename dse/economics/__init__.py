"""Prices, costs, demand and fleets."""
