"""The edge: every file that a user writes, checked and turned into frozen dataclasses."""
