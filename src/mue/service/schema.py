"""The form of what the service answers: the names are those of `mue predict --format json`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Error(BaseModel):
    """What is wrong, in one sentence."""

    error: str
    model_config = ConfigDict(
        json_schema_extra={"example": {"error": "`k` must be at least 1, got 0"}}
    )


class Health(BaseModel):
    """Whether the service is well."""

    status: str


class Model(BaseModel):
    """A model and what it can be asked."""

    name: str
    method: str
    task: str
    """What it was trained on."""
    channels: int
    classes: list[str]
    """Other than the background."""
    answers: Literal["probability", "labels"]
    """What the pixels of a PNG mask are: a probability times 255, or the number of a class."""
    codes: int
    samples: bool
    """Whether its answers are random samples."""
    cut: float
    """The calibrated cut of the tree of answers."""
    max_cut: float
    coverage: list[float]
    """For which coverage it was calibrated, and below, the limit of probability for each."""
    limits: list[float]


class Format(BaseModel):
    """A format of image files."""

    name: str
    beginnings: list[str]
    """One of these, bytes as Latin-1, is in a file from the byte `at` on; none of some formats."""
    at: int


class Inputs(BaseModel):
    """What may be uploaded."""

    formats: list[Format]
    bytes: int
    """Of the largest request."""


class Member(BaseModel):
    """An answer of a mode."""

    prob: float
    code: int
    """Row of the code book, or -1 for a model without codes."""


class Runs(BaseModel):
    """Run lengths as COCO has them, column by column."""

    size: tuple[int, int]
    counts: list[int]


class Mask(BaseModel):
    """A mask as PNG in base64, or as run lengths of each class."""

    png: str | None = None
    rle: dict[str, Runs] | None = None


class Mode(Member):
    """Answers that are alike, by the one of least expected distance to the others."""

    rank: int
    spread: float
    """Expected distance of a member to that answer."""
    members: list[Member]
    mask: Mask


class Answer(Member):
    """An answer by itself."""

    mask: Mask


class Tree(BaseModel):
    """How answers are joined into groups: parent of each, height, distance of every pair."""

    parent: list[int]
    height: list[float | None]
    distance: list[list[float]]


class Image(BaseModel):
    """The slice that was answered, in the values of its file: rows, columns, channels, base64."""

    width: int
    height: int
    channels: int
    slices: int
    slice: int
    spacing: tuple[float, float] | None
    formats: list[str]
    """What its masks can be exported as."""
    dtype: str
    low: float
    high: float
    window: tuple[float, float]
    values: str


class ImageModes(BaseModel):
    """The modes of an image, the most probable first. Probabilities and rest sum to 1."""

    model: str
    by: Literal["mode", "code"]
    seconds: float
    cut: float
    coverage: float | None
    modes: list[Mode]
    rest: float
    """Probability of what is in none of these modes."""
    entropy: float
    answers: list[Answer] | None = None
    tree: Tree | None = None
    image: Image | None = None
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "model": "lidc-exact",
                "by": "mode",
                "seconds": 0.08,
                "cut": 0.55,
                "coverage": None,
                "modes": [
                    {
                        "rank": 1,
                        "prob": 0.71,
                        "code": 3,
                        "spread": 0.12,
                        "members": [{"prob": 0.4, "code": 3}, {"prob": 0.31, "code": 8}],
                        "mask": {"png": "iVBORw0KGgo…"},
                    }
                ],
                "rest": 0.29,
                "entropy": 0.6,
            }
        }
    )


class Rater(BaseModel):
    """An answer that is known, and its weight."""

    weight: float
    png: str


class Example(BaseModel):
    """An image to begin with, as PNG in base64."""

    id: str
    task: str
    name: str
    note: str
    image: str
    raters: list[Rater]
