"""What a folder of answers holds."""

from pathlib import Path


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def records(*names: str) -> set[str]:
    """What a folder holds beside the answers to images of these names."""
    return {"mue-predict.json", *(f"mue-predict/{name}.json" for name in names)}
