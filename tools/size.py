#!/usr/bin/env python3
"""Size by room: files, lines, code lines (without docstrings, blank lines, comments, imports), and
nodes of the syntax tree in thousands, which packing of lines does not change.

    python3 size.py [FOLDER ...]     from the top of a checkout; dse and tools if none is named
"""

import ast
import io
import pathlib
import sys
import tokenize


def code_lines(text: str) -> int:
    """Lines that hold a token of a statement that is neither docstring nor import."""
    tree, skip = ast.parse(text), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            skip.update(range(node.lineno, node.end_lineno + 1))
        body = getattr(node, "body", None)
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and body
        ):
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                skip.update(range(first.lineno, first.end_lineno + 1))
    lines = set()
    empty = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    )
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - skip)


def nodes(text: str) -> int:
    """Nodes of the syntax tree, of which docstrings and imports are few."""
    return sum(1 for _ in ast.walk(ast.parse(text)))


def main() -> None:
    rooms: dict[str, list[int]] = {}
    for name in sys.argv[1:] or ("dse", "tools"):
        top = pathlib.Path(name)
        for path in sorted(top.rglob("*.py")):
            inside = path.relative_to(top).parts
            room = inside[0] if len(inside) > 1 else "(top)"
            room = room if top.name == "dse" else top.name
            text = path.read_text(encoding="utf-8")
            sums = rooms.setdefault(room, [0, 0, 0, 0])
            sums[0] += 1
            sums[1] += text.count("\n")
            sums[2] += code_lines(text)
            sums[3] += nodes(text)
    total = [sum(column) for column in zip(*rooms.values())] if rooms else [0, 0, 0, 0]
    print(f"{'room':<12}{'files':>7}{'lines':>9}{'code':>9}{'nodes, k':>10}")
    for room, sums in [*sorted(rooms.items(), key=lambda item: -item[1][2]), ("sum", total)]:
        print(f"{room:<12}{sums[0]:>7}{sums[1]:>9,}{sums[2]:>9,}{sums[3] / 1000.0:>10,.0f}")


if __name__ == "__main__":
    main()
