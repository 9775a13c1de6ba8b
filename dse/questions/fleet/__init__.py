"""`dse fleet`: the options of a plan, the cheapest mix of them, and what would change it."""

from dse.questions.fleet.answer import Answer, answered

__all__ = ["Answer", "answered"]
