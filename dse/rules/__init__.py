"""Rules: what software, hardware and arithmetic refuse, what fills a chip, what models usually do.

`dse.rules.registry` holds all that is refused, one row a rule, and is asked by the search and by
every question. `dse.rules.waste` needs the steps of `dse.physics.gemms`, `dse.rules.bands` a shape.
"""
