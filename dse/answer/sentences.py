"""Parts of sentences that several questions use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def with_names(text: str, names: Mapping[str, str]) -> str:
    """`text` with the names for their ids; an id inside a longer word stays."""
    if not names:
        return text
    ids = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(rf"(?<![\w-])({ids})(?![\w-])", lambda found: names[found[1]], text)


class Sources(Sequence[str]):
    """Sources by number, in the order of their first use: cells hold the numbers, and the texts
    are notes of the table, which grow while its rows are made."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, *texts: str | None) -> str:
        """`[1] [3]`."""
        named = dict.fromkeys(text for text in texts if text)
        return " ".join(f"[{self._known.setdefault(one, len(self._known) + 1)}]" for one in named)

    def __getitem__(self, k: Any) -> Any:
        return [f"[{number}] {text}" for text, number in self._known.items()][k]

    def __len__(self) -> int:
        return len(self._known)
