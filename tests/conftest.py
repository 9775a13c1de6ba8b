"""For every test: no deadline on an example of hypothesis, which says how busy the machine is, not
whether the code is right. A test has the same examples in every run, so that a change fails for
what it changed. Fifty examples of a law find what a hundred find; `--hypothesis-profile search`
draws others at random, up to twenty times as many."""

from __future__ import annotations

import pytest
from hypothesis import settings

import dse

settings.register_profile("dse", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("search", deadline=None, derandomize=False, max_examples=1000)
settings.load_profile("dse")


@pytest.fixture(scope="session")
def catalog():
    """The shipped catalog."""
    return dse.load_catalog()
