"""A folder of answers: the settings that gave them, and which image each of them is about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mue.errors import MueError
from mue.inference.files import SETTINGS, InputFile, input_digest
from mue.inference.json import json_bytes
from mue.inference.writers import FORMATS, Files, Format
from mue.runtime.atomic import UNFINISHED, check_folder, transaction, write_atomic

RECORDS = "mue-predict"
"""A folder in it: for the answers called NAME, NAME.json says which image they are about."""


@dataclass(frozen=True, slots=True)
class AnswersFolder:
    """A folder for answers that a model gives by some settings.

    Attributes:
        path: The folder, which need not exist yet.
        settings: The model and the settings, as JSON holds them.
    """

    path: Path
    settings: dict[str, Any]

    def require_same(self) -> None:
        """Refuse a folder that holds anything but answers by the same model and settings."""
        folder = self.path
        check_folder(folder)
        if not folder.exists() or all(p.name.startswith(UNFINISHED) for p in folder.iterdir()):
            return
        if not (folder / SETTINGS).is_file():
            raise MueError(
                f"{folder} must be empty or not exist yet, or hold answers, and it holds files"
            )
        try:
            before = dict(json.loads((folder / SETTINGS).read_bytes()))
        except (ValueError, TypeError, RecursionError):
            raise MueError(
                f"{folder / SETTINGS} must be what `mue predict` wrote, and it is damaged; "
                "take another folder"
            ) from None
        for name, value in self.settings.items():
            if name != "model" and before.get(name) != value:
                raise MueError(
                    f"{folder} holds answers with {name} = {before.get(name)}, and this is {value};"
                    " take another folder"
                )

    def is_answered(self, file: InputFile, formats: Sequence[Format]) -> bool:
        """Whether the answers to this image, not to another of its name, are there in all formats.

        The last file of a format says that all of them are.
        """
        names = {f"{file.name}{FORMATS[name].last}" for name in formats}
        record = self._record(file)
        there = names <= set(record.get("files", ())) and all(
            (self.path / n).exists() for n in names
        )
        return there and record.get("sha256") == input_digest(file)

    def write(self, file: InputFile, digest: str, content: Files) -> list[Path]:
        """Write the answers to an image of a digest, each file whole or not at all.

        Those to another image of its name are removed.
        """
        before = self._record(file)
        named = {f"{file.name}{ending}": data for ending, data in content.items()}
        if before.get("sha256") != digest:  # of another image, or there is none
            self._record_path(file).unlink(missing_ok=True)
        with transaction():
            settings = self.path / SETTINGS
            if not settings.exists():  # first, so that no other process is refused
                write_atomic(settings, json_bytes(self.settings))
            for name, data in named.items():
                write_atomic(self.path / name, data)
            names = set(named)
            if before.get("sha256") == digest:
                names.update(before["files"])
            else:
                self._remove(set(before.get("files", ())) - names)
            record = {
                "image": [str(path) for path in file.paths],
                "sha256": digest,
                "files": sorted(names),
            }
            write_atomic(self._record_path(file), json_bytes(record))
        return [self.path / name for name in named]

    def _record_path(self, file: InputFile) -> Path:
        return self.path / RECORDS / f"{file.name}.json"

    def _record(self, file: InputFile) -> dict[str, Any]:
        """Which image the answers of the name of an input are about; {} where that is not known."""
        path = self._record_path(file)
        try:
            found = json.loads(path.read_bytes()) if path.is_file() else {}
            known = isinstance(found, dict) and all(isinstance(n, str) for n in found["files"])
            return found if known else {}
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return {}

    def _remove(self, names: set[str]) -> None:
        """Remove files in this folder."""
        for name in names:
            if (self.path / name).resolve().is_relative_to(self.path.resolve()):
                (self.path / name).unlink(missing_ok=True)
