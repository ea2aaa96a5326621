"""The form in which clients send an image, and what they ask about it."""

from typing import Annotated, NamedTuple

from fastapi import Depends, File, Form, UploadFile

from mue.data.images.formats import FORMATS
from mue.modes import By


class Question(NamedTuple):
    """What is asked about an image: the fields of the form."""

    files: Annotated[
        list[UploadFile],
        File(
            alias="file",
            description=f"{', '.join(form.name for form in FORMATS)}: one file, or as several "
            "parts of this name the slices of one DICOM series, in any order.",
        ),
    ]
    model: Annotated[str, Form(description="A name of /api/models.", examples=["lidc-exact"])]
    slice_index: Annotated[
        int | None, Form(alias="slice", description="Of a volume, from 0; by default the middle.")
    ] = None
    k: Annotated[
        int, Form(ge=1, le=4096, description="How many to return at most.", examples=[3])
    ] = 8
    by: Annotated[
        By, Form(description="Whether answers that are alike are grouped, or each stands alone.")
    ] = "mode"
    coverage: Annotated[
        float | None,
        Form(
            gt=0,
            lt=1,
            description="Return what holds a new rater's answer with this probability.",
            examples=[0.9],
        ),
    ] = None
    cut: Annotated[
        float | None,
        Form(ge=0, le=1e6, description="Distance beyond which groups stay apart; else calibrated."),
    ] = None


QuestionForm = Annotated[Question, Depends()]
"""The question of a request, as a parameter of a route."""
