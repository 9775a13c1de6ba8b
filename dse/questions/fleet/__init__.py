"""`dse fleet`: the options of a plan, the cheapest mix of them, and what would change it."""
