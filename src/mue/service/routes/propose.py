"""The ranked modes of an image, as JSON."""

import time
from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import JSONResponse

from mue.service import schema
from mue.service.answers import MaskFormat, as_json
from mue.service.errors import responses
from mue.service.form import QuestionForm
from mue.service.service import Served

router = APIRouter(tags=["answers"])


@router.post("/api/propose", responses=responses(400, 404, 413, 422))
async def propose(
    service: Served,
    asked: QuestionForm,
    masks: Annotated[MaskFormat, Form(description="How masks are encoded.")] = "png",
    details: Annotated[
        bool, Form(description="Add every answer, their tree, and the image itself.")
    ] = False,
) -> schema.ImageModes:
    """The modes of an image, the most probable first, and the probability of the rest."""
    began = time.perf_counter()
    found, upload = await service.answer(asked)
    content = await service.run(as_json, found, upload, form=masks, details=details)
    return JSONResponse({**content, "seconds": time.perf_counter() - began})  # type: ignore
