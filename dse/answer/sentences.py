"""Parts of sentences that several questions use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from dse.schema.metrics import METRICS
from dse.schema.prices import PRICE_TIERS

# Words of the command line and of files, for which a page has none or others.
_FIELDS = {
    " (`used_after_end`)": "",
    " (--as-of)": "",
    ", bought bought": ", bought",
    " <= ": " at most ",
    " >= ": " at least ",
    " &lt;= ": " at most ",
    " &gt;= ": " at least ",
}


_KERNELS = "kernels of "


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def never_measured(chip: str, kind: str, laws: str) -> str:
    """What an answer rests on where no kernel of a chip was measured; the terminal says these of
    the first chips, and counts what else an answer rests on."""
    return f"{_KERNELS}{chip} are {kind}, never measured in this format ({laws})"


def labelled(**texts: Sequence[str]) -> list[str]:
    """`assumed: ...`, `note: ...`: texts behind what they are."""
    return [f"{what.replace('_', ' ')}: {text}" for what, some in texts.items() for text in some]


def rests_in_short(rests: Sequence[str]) -> str:
    """How many assumptions there are, and which chips' kernels were never measured."""
    kernels = (text for text in rests if text.startswith(_KERNELS))
    named = [text.removeprefix(_KERNELS).partition(" are ")[0] for text in kernels]
    many = f"{len(rests)} assumption{'s' * (len(rests) > 1)}"
    among = f", among them the kernels of {listed(named)}, never measured" if named else ""
    return f"Rests on {many}{among}; --detail lists them and more tables."


def with_names(text: str, names: Mapping[str, str]) -> str:
    """`text` with the names for their ids; an id inside a longer word, a path or the name of an
    input (`chip.h100_sxm.price`) stays."""
    return _words(tuple(names)).sub(lambda found: names[found[1]], text) if names else text


@cache
def _words(ids: tuple[str, ...]) -> re.Pattern[str]:
    either = "|".join(sorted(map(re.escape, ids), key=len, reverse=True))
    return re.compile(rf"(?<![\w./=-])({either})(?![\w/-]|[.]\w)")


def spoken(text: str, names: Mapping[str, str]) -> str:
    """A text of a page: the makers' names of chips for their ids, and what a basis of prices or a
    metric means in place of its name. An option of a command stays as it is typed."""
    between = _OPTION.split(text)  # every second one is an option
    between[::2] = [_spoken(one, names) for one in between[::2]]
    return "".join(between)


def _spoken(text: str, names: Mapping[str, str]) -> str:
    text = with_names(_INPUT.sub(lambda found: _input_words(*found.groups()), text), names)
    if "_" in text or " on spot" in text:
        text = _ON.sub(lambda found: f" {PRICE_TIERS[found[1]].after}", text)
        text = _BASIS.sub(lambda found: f"the basis of {PRICE_TIERS[found[1]].alone}", text)
        text = with_names(text, _IDS)
    for field, words in _FIELDS.items():
        text = text.replace(field, words)
    return text


def _input_words(of: str, whose: str | None, name: str) -> str:
    """`memory bandwidth of h100_sxm` of `chip.h100_sxm.memory_bandwidth`, an input of a question,
    whose ids are yet to be named."""
    what = name.replace("_", " ")
    if of == "limit":
        what = f"limit on {METRICS[name].title if name in METRICS else what}"
    whose = "every chip" if (of, whose) == ("chip", "all") else whose
    return f"{what} of {whose}" if whose else what


# What may be changed of a study, by the names that the command line takes.
_INPUT = re.compile(
    r"(?<![\w./-])(chip|workload|limit|costs)\.(?:([\w-]+)\.)?(?!yaml|csv)([a-z]\w*)(?!\w|[.]\w)"
)
_OPTION = re.compile(r"(--[a-z][a-z-]*(?: [a-z0-9_]+_[a-z0-9_]+)?)")
_EITHER = "|".join(sorted(PRICE_TIERS, key=len, reverse=True))
_ON = re.compile(rf",? (?:rent )?on ({_EITHER})(?![\w-])")
_BASIS = re.compile(rf"(?:the )?basis ({_EITHER})(?![\w-])")
_IDS = {basis: tier.alone for basis, tier in PRICE_TIERS.items() if "_" in basis} | {
    name: row.title for name, row in METRICS.items() if "_" in name
}


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


def spans(values: Sequence[int]) -> str:
    """1, 2, 4 to 9: whole numbers, four or more in a row as a span."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 3 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(words) or "none"
