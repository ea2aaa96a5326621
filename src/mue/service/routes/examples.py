"""Images to begin with, and digits to compose some from."""

import base64
from typing import Annotated

from fastapi import APIRouter, Path, Response

from mue.service import examples as bundled
from mue.service import schema
from mue.service.answers import png
from mue.service.errors import responses
from mue.service.service import Served

router = APIRouter(tags=["examples"])


@router.get("/api/examples")
def list_examples(service: Served) -> list[schema.Example]:
    """Images to begin with, with the answers that are known to them."""
    tasks = {p.config.data.name for p in service.predictors.values() if p.config.model.c_in == 1}
    return [_example(e) for e in bundled.examples() if e.task in tasks]


@router.get(
    "/api/digits/{label}/{index}",
    responses={**responses(422), 200: {"content": {"image/png": {}}}},
    response_class=Response,
)
def digit(
    label: Annotated[int, Path(ge=0, le=9)],
    index: Annotated[int, Path(ge=0, lt=bundled.DIGITS)],
) -> Response:
    """A handwritten digit, to compose inputs of the guessing game from."""
    return Response(png(bundled.digit(label, index)), media_type="image/png")


def _example(example: bundled.Example) -> schema.Example:
    return schema.Example(
        id=example.id,
        task=example.task,
        name=example.name,
        note=example.note,
        image=base64.b64encode(png(example.image)).decode(),
        raters=[
            schema.Rater(weight=w, png=base64.b64encode(png(m)).decode())
            for m, w in zip(example.masks, example.weights, strict=True)
        ],
    )
