"""The page and what belongs to it."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, HTTPException, Response

router = APIRouter()
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


@cache
def _content() -> dict[str, bytes]:
    """The files of the page by their paths in its folder."""
    folder = Path(str(files("mue.service"))) / "page"
    found = sorted(p for p in folder.rglob("*") if p.suffix in _KINDS)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


@router.get("/", include_in_schema=False)
def index() -> Response:
    """The page."""
    return page("index.html")


@router.get("/page/{name:path}", include_in_schema=False)
def page(name: str) -> Response:
    """A file of the page."""
    if name not in _content():
        raise HTTPException(404, "there is no such page")
    kind = f"{_KINDS[Path(name).suffix]}; charset=utf-8"
    return Response(_content()[name], media_type=kind, headers={"Cache-Control": "no-cache"})
