"""The notebooks of docs/notebooks/: `python -m tests.notebooks` runs them again and stores what
they print. Pictures of answers are not stored, as each is a page of a megabyte."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.command_blocks import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
CELLS = 15  # a notebook has fewer
BYTES = 100_000
SECONDS = 120


def read(path: Path) -> Any:
    import nbformat

    return nbformat.read(path, as_version=4)


def executed(path: Path, folder: Path) -> Any:
    """The notebook with what it prints now. It runs in `folder`, on this checkout. Raises
    CellExecutionError at the first cell that fails."""
    from nbclient import NotebookClient

    notebook = read(path)
    with patch.dict(os.environ, PYTHONPATH=str(ROOT)):
        NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    return notebook


def stored(notebook: Any) -> Any:
    """The notebook as the repository keeps it: no times, no messages of packages, no embedded
    pages."""
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    count = 0
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
            data = output.get("data", {})
            if "text/html" in data or "image/png" in data:
                data.pop("text/plain", None)
            if "text/html" in data:
                data["text/html"] = re.sub(
                    "<iframe .*?</iframe>", "", data["text/html"], flags=re.DOTALL
                )
    return notebook


def printed(notebook: Any) -> list[str]:
    """What each cell of code prints, as text; pictures left out."""
    return [
        "\n".join(
            str(text)
            for output in cell.outputs
            for kind, text in (*output.get("data", {}).items(), ("", output.get("text", "")))
            if not kind.startswith("image/")
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def main() -> None:
    import nbformat

    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(stored(executed(path, Path(folder))), path)


if __name__ == "__main__":
    main()
