"""What `dse export` answers: files that another tool reads, and what to know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dse.answer.answer import Answer, Notes
from dse.files import write_text


@dataclass(frozen=True)
class Export(Answer):
    """`files` by name, the first one first; `notes` what a reader has to know besides."""

    files: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def save(self, out: Path) -> list[Path]:
        """Writes the files into the folder `out`; as `out` itself where there is one file and `out`
        has its ending. Raises StorageError where they cannot be written."""
        first, *more = self.files
        if not more and out.suffix == Path(first).suffix and not out.is_dir():
            write_text(out.parent, out.name, self.files[first])
            return [out]
        for name, text in self.files.items():
            write_text(out, name, text)
        return [out / name for name in self.files]


def exported(document: Mapping[str, Any], files: Mapping[str, str], notes: Sequence[str]) -> Export:
    """The answer whose document is `document` with the notes and the files."""
    words = [] if "parameters" not in document else _parameter_words(document)
    return Export(
        question="export",
        title=f"{document['model']}: files for {document['format']}",
        headline=f"Checked against {document['checked_with']}.",
        sentences=words,
        blocks=(Notes("What to know", notes),) if notes else (),
        document={**document, "notes": list(notes), "files": dict(files)},
        files=files,
        notes=tuple(notes),
    )


def _parameter_words(document: Mapping[str, Any]) -> list[str]:
    counts = document["parameters"]
    lines = [f"{document['architecture']}: {counts['of_the_class']:,} parameters."]
    if counts["beyond"]:
        parts = ", ".join(f"{number:+,} {what}" for what, number in counts["beyond"].items())
        lines.append(f"The count of dse is {counts['counted']:,}; the class has {parts}.")
    else:
        lines.append("The count of dse is the same.")
    if document["other_architectures"]:
        names = ", ".join(document["other_architectures"])
        lines.append(f"The shape is also that of {names} (--architecture).")
    return lines
