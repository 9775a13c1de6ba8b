"""Size by room: files, lines, code lines (without docstrings, blank lines, comments and imports),
and nodes of the syntax tree in thousands, which packing of lines does not change.

    python3 tools/size.py [FOLDER ...]     from the top of a checkout (default: dse and tools)
"""

from __future__ import annotations

import ast
import io
import pathlib
import sys
import tokenize
from collections import Counter

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SPACE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(text: str) -> int:
    """Lines that hold a token of a statement that is neither docstring nor import."""
    skip: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            skip.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            skip.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SPACE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - skip)


def main() -> None:
    rooms: dict[str, Counter[str]] = {}
    for name in sys.argv[1:] or ("dse", "tools"):
        top = pathlib.Path(name)
        for path in sorted(top.rglob("*.py")):
            inside = path.relative_to(top).parts
            room = inside[0] if len(inside) > 1 else "(top)"
            text = path.read_text(encoding="utf-8")
            sums = rooms.setdefault(room if top.name == "dse" else top.name, Counter())
            nodes = sum(1 for _ in ast.walk(ast.parse(text)))
            sums.update(files=1, lines=text.count("\n"), code=code_lines(text), nodes=nodes)
    rooms = dict(sorted(rooms.items(), key=lambda item: -item[1]["code"]))
    rooms["sum"] = sum(rooms.values(), Counter())
    print(f"{'room':<12}{'files':>7}{'lines':>9}{'code':>9}{'nodes, k':>10}")
    for room, sums in rooms.items():
        thousands = sums["nodes"] / 1000.0
        print(
            f"{room:<12}{sums['files']:>7}{sums['lines']:>9,}{sums['code']:>9,}{thousands:>10,.0f}"
        )


if __name__ == "__main__":
    main()
