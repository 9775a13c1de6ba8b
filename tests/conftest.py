"""For every test: no deadline on an example of hypothesis, which says how busy the machine is, not
whether the code is right."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("dse", deadline=None)
settings.load_profile("dse")
