"""The ranked modes of an image, as a file for other programs."""

from typing import Annotated

from fastapi import APIRouter, Form, Response

from mue.errors import MueError
from mue.inference.writers import FORMATS
from mue.service.errors import responses
from mue.service.form import QuestionForm
from mue.service.service import Served
from mue.service.uploads import ExportFormat

router = APIRouter(tags=["answers"])


@router.post(
    "/api/export",
    responses={
        **responses(400, 404, 413, 422),
        200: {"content": {"application/octet-stream": {}}},
    },
    response_class=Response,
)
async def export_masks(
    service: Served,
    asked: QuestionForm,
    form: Annotated[ExportFormat, Form(alias="format", description="Kind of the file.")] = "nifti",
) -> Response:
    """The modes of a slice as masks in the space of its image: the first file of a format."""
    found, upload = await service.answer(asked)
    if form == "dicom-seg" and form not in upload.formats:
        raise MueError(
            "DICOM SEG is written for a slice that is a DICOM file of its own, with a position; "
            "take nifti or npz"
        )
    files = await service.run(FORMATS[form].encode, found)
    ending, content = next(iter(files.items()))
    headers = {"Content-Disposition": f'attachment; filename="answers{ending}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)
