"""Runs every command block of the README: `python -m tests.readme_commands`.

Each line of a ```bash block is a command; lines of `make` are left to `make`. They run in order in
one temporary folder, with this interpreter's commands found first, and the first that fails ends
the run with its exit code.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(text: str) -> list[str]:
    """The content of every ```bash block."""
    return re.findall(r"^```bash\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def lines(text: str) -> list[str]:
    """The commands of every block, continued lines joined, without comments and `make`."""
    joined = "".join(blocks(text)).replace("\\\n", " ")
    stripped = (line.strip() for line in joined.splitlines())
    return [line for line in stripped if line and not line.startswith(("#", "make"))]


def main() -> int:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with tempfile.TemporaryDirectory() as folder:
        for line in lines(README.read_text(encoding="utf-8")):
            print(f"$ {line}", flush=True)
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", line],
                cwd=folder,
                env={**os.environ, "PATH": path},
                check=False,
            )
            if ended.returncode:
                print(f"failed with exit code {ended.returncode}: {line}", file=sys.stderr)
                return ended.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
