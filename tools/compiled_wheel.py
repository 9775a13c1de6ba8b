"""Compiles the shipped YAML files when a wheel is built, so that no command of it reads YAML.

Hatchling runs it (pyproject.toml); `dse.schema.loader` says what stands in the file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compiling(BuildHookInterface[Any]):
    """Adds the file to the wheel; what is installed in place reads its YAML."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from dse.schema.loader import NAME, compiled_line  # noqa: PLC0415 - of the source being built
        from dse.schema.yaml_text import parse  # noqa: PLC0415

        lines = []
        for folder in ("hardware", "search_spaces", "dse"):
            for path in sorted((Path(self.root) / folder).rglob("*.yaml")):
                content = path.read_bytes()
                lines.append(compiled_line(content, parse(content, str(path))[0]))
        self.folder = tempfile.TemporaryDirectory()
        file = Path(self.folder.name) / NAME
        file.write_bytes(b"".join(lines))
        build_data["force_include"][str(file)] = f"dse/_data/{NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self.folder.cleanup()
