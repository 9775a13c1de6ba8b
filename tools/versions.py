"""Which Pythons and versions dse runs on: `python -m tools.versions [--write]`, with uv installed.

Builds the wheel and the sdist, installs each from a folder of its own into a new environment of
every Python that uv finds here (3.11 to 3.14), and once with the oldest versions that
pyproject.toml allows; then runs five commands from `/`. The front of `tiny` must be the same
everywhere. `--write` puts the table into docs/extending.md.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.written import markdown, write

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SHOWN = ("numpy", "scipy", "pandas", "optuna", "moocore", "sqlalchemy", "click")
OLDEST = ("--resolution", "lowest-direct", "--only-binary", ":all:", "--no-binary", "dse")
COMMANDS = (
    "--version",
    "estimate --model llama-3-8b --chip h100_sxm --json",
    "catalog chips list",
    "check llama-3-8b --chip h100_sxm",
    "run tiny --seed 1 --out STUDY",
)


def said(*words: object, check: bool = True) -> str:
    """What a command prints, run from `/` without this checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Pyenv's own shims run none but the chosen versions.
    pyenv = Path(environment.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
    environment["PATH"] = os.pathsep.join([*map(str, pyenv), environment.get("PATH", "")])
    ended = subprocess.run(  # noqa: S603 - commands of this file
        [str(word) for word in words],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and ended.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {ended.stderr[-500:]}")
    return ended.stdout.strip() if ended.returncode == 0 else ""


def tried(folder: Path, python: str, built: Path, *options: str) -> list[str]:
    """A row of the table: the versions, and the digest of the front."""
    said("uv", "venv", "--quiet", "--python", python, folder)
    into = ("uv", "pip", "install", "--quiet", "--python", folder / "bin" / "python")
    said(*into, *options, built)
    listed = said("uv", "pip", "list", "--python", folder / "bin" / "python").splitlines()
    versions = {line.split()[0]: line.split()[1] for line in listed if len(line.split()) == 2}
    study = folder / "study"
    for command in COMMANDS:
        words = [str(study) if word == "STUDY" else word for word in command.split()]
        said(folder / "bin" / "dse", *words)
    front = hashlib.sha256((study / "front.csv").read_bytes()).hexdigest()[:12]
    return [*(versions[name] for name in SHOWN), front]


def measure() -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        said("uv", "build", "--quiet", "--out-dir", root / "built", ROOT)
        (wheel,) = (root / "built").glob("*.whl")
        (sdist,) = (root / "built").glob("*.tar.gz")
        for python in PYTHONS:
            if not (found := said("uv", "python", "find", python, check=False)):
                rows.append([python, "not to be had", *[""] * (len(SHOWN) + 1)])
                continue
            sources: list[tuple[str, Path, tuple[str, ...]]]
            sources = [("wheel", wheel, ()), ("sdist", sdist, ())]
            if python == PYTHONS[0]:
                sources.append(("checkout, oldest versions", ROOT, OLDEST))
            for kind, built, options in sources:
                row = tried(root / f"{python} {kind}", found, built, *options)
                rows.append([python, kind, *row])
                print("; ".join(rows[-1]), flush=True)
    return rows


def main() -> int:
    rows = measure()
    text = markdown(["Python", "from", *SHOWN, "front of `tiny`"], rows)
    if "--write" in sys.argv[1:]:
        write("extending.md", "python -m tools.versions", text)
    print(text)
    return 0 if len({row[-1] for row in rows if row[-1]}) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
