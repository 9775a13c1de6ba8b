"""The words that a reader may not know, each explained once: the rows of glossary.csv."""

from __future__ import annotations

from dse.data import rows_beside

GLOSSARY = {row["term"]: row["meaning"] for row in rows_beside(__file__, "glossary.csv")}
