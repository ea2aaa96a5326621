"""Data sets: inputs and answers, generated or read, as batches on the device.

`mue.data.new`, `import_folder`, `import_lidc`, `inspect` and `export_folder` are the commands of
these names. They are looked up when they are first used (PEP 562), the one exception from the
order of imports: commands are below data, and reading DICOM takes its time to import.
"""

import importlib
from typing import Any

_COMMANDS = ("export_folder", "import_folder", "import_lidc", "inspect", "new")


def __getattr__(name: str) -> Any:
    """The commands on data."""
    if name in _COMMANDS:
        return getattr(importlib.import_module(f"mue.commands.{name}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
