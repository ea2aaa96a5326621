"""The ranked answers to an image, as a file for other programs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Response

from mue.service.errors import responses
from mue.service.export import export
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
    """The same answers as a file, where the source is in space."""
    found, upload = await service.answer(asked)
    ending, content = await service.run(export, found, upload, form)
    headers = {"Content-Disposition": f'attachment; filename="answers{ending}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)
