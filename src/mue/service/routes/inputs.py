"""What may be uploaded: which files, and how many bytes."""

from fastapi import APIRouter

from mue.data.images.formats import FORMATS
from mue.service import schema
from mue.service.service import Served

router = APIRouter(tags=["answers"])


@router.get("/api/inputs")
async def inputs(service: Served) -> schema.Inputs:
    """The formats that are read, how their files begin, and the bytes of the largest request."""
    formats = [
        schema.Format(name=f.name, beginnings=[b.decode("latin-1") for b in f.beginnings], at=f.at)
        for f in FORMATS
    ]
    return schema.Inputs(formats=formats, bytes=service.settings.body)
