"""docs/api.md, from the public names of `dse`: `python -m tests.api_docs > docs/api.md`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, ForwardRef

import dse
from dse.schema import workloads
from dse.schema.metrics import EVERY, METRICS

HEAD = """\
# The library

Generated from the docstrings by `python -m tests.api_docs`; a test fails when this page is stale.

```python
{lines}
```

`import dse` imports nothing else until something is asked. What the command line does, it does by
these functions, and their arguments are its options. A space, a plan or a model may be a shipped
name, a path or a dict. `catalog=None` is the shipped catalog. Numbers are in SI units (the
[metrics](#metrics)), except where a name says otherwise.

`mine.csv` is a price file of yours, with the columns of `hardware/prices.csv`. Pictures of pandas
(`.plot`) and the notebooks need matplotlib and a kernel: `pip install '.[notebook]'`
from the top of a checkout.

- [Which shape should we train?](notebooks/which-shape-to-train.ipynb)
- [How should we serve this model?](notebooks/how-to-serve-a-model.ipynb)
- [What should we buy?](notebooks/what-to-buy.ipynb)
"""
TABLE = """\
## Metrics

A metric that applies is a column of `study.front.to_pandas()`, a key of an answer's `document` and
an attribute of an estimate. A space may name those with a star as objectives and in constraints;
a limit is written with a unit: `tpot_s <= 30 ms`, `training_usd <= 50 MUSD`, `mfu >= 40 %`.
"""
WIDTH = 100
# Units that are written out; the others say it themselves.
UNITS = {"s": "seconds", "count": "", "fraction": "", "J": "joules", "W": "watts"}


def public() -> list[tuple[str, Any]]:
    """Every public name with what it is, in the order of `dse.__all__`."""
    return [(name, getattr(dse, name)) for name in dse.__all__]


def first_paragraph(documented: Any) -> str:
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def example(documented: Any) -> str:
    """The first indented block of a docstring, as it stands there."""
    lines: list[str] = []
    for line in (inspect.getdoc(documented) or "").splitlines():
        if line.startswith("    "):
            lines.append(line[4:])
        elif line and lines:
            break
        elif lines:
            lines.append("")
    return "\n".join(lines).rstrip()


def signature(name: str, documented: Any) -> str:
    """How it is called: `dse.name(...)` on one line, or with a line for each argument; the type is
    left out where the default shows it. Empty for what only `dse` makes."""
    if documented is dse.Answer:
        return ""
    found = inspect.signature(documented)
    arguments: list[str] = []
    keyword_only = False
    for one in found.parameters.values():
        if one.name == "self":
            continue
        keyword_only |= one.kind is one.VAR_POSITIONAL
        if one.kind is one.KEYWORD_ONLY and not keyword_only:
            arguments.append("*")
            keyword_only = True
        if of := re.fullmatch(r"Unpack\[(\w+)\]", str(one.annotation)):
            fields = vars(workloads)[of[1]].__annotations__.items()
            arguments += [f"{field}: {_plain(kind)} = None" for field, kind in fields]
            continue
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "..." if callable(one.default) else repr(one.default)
        if one.annotation is one.empty or isinstance(one.default, int | float | str):
            given = "" if one.default is one.empty else f"={default}"
        else:
            given = f": {one.annotation}" + ("" if one.default is one.empty else f" = {default}")
        arguments.append(f"{stars}{one.name}{given}")
    returns = found.return_annotation
    end = ")" if inspect.isclass(documented) or returns is found.empty else f") -> {returns}"
    line = f"dse.{name}({', '.join(arguments)}{end}"
    if len(line) <= WIDTH:
        return line
    return f"dse.{name}(\n" + "".join(f"    {one},\n" for one in arguments) + end


def _plain(kind: Any) -> str:
    """The type of a field of a TypedDict."""
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else str(kind)


def members(documented: type) -> Iterator[str]:
    """The methods and properties of a class that have a docstring."""
    for name, member in vars(documented).items():
        said = first_paragraph(member) if not name.startswith("_") else ""
        if said and (callable(member) or hasattr(member, "__get__")):
            yield f"- `{name}{'()' if inspect.isfunction(member) else ''}`: {said}"


def entry(name: str, documented: Any) -> str:
    parts = [f"## dse.{name}", first_paragraph(documented)]
    if called := signature(name, documented):
        parts.append(f"```python\n{called}\n```")
    if shown := example(documented):
        parts.append(f"Example:\n\n```python\n{shown}\n```")
    if inspect.isclass(documented) and (listed := list(members(documented))):
        parts.append("\n".join(listed))
    return "\n\n".join(parts) + "\n"


def metrics() -> str:
    head = "| metric | unit | better | meaning |\n|---|---|---|---|\n"
    rows = []
    for name, row in EVERY.items():
        star = "*" if name in METRICS else ""
        unit = UNITS.get(row.dimension, row.dimension)
        better = "lower" if row.direction == "minimize" else "higher"
        meaning = re.sub(r"\|", r"\\|", row.meaning or row.title)
        rows.append(f"| `{name}`{star} | {unit} | {better} | {meaning} |\n".replace("|  |", "| |"))
    return f"{TABLE}\n{head}{''.join(rows)}"


def page() -> str:
    return "\n".join(
        [HEAD.format(lines=example(dse)), *(entry(*one) for one in public()), metrics()]
    )


if __name__ == "__main__":
    sys.stdout.write(page())
