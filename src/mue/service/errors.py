"""Whatever is not answered is a status and a sentence."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from mue.errors import MueError
from mue.service.schema import Error

FAILED = "the service failed; its log names the place"
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": text}
    for status, text in {
        400: "No multipart form.",
        401: "The token is missing or wrong.",
        403: "The request comes from a page of another site.",
        404: "There is no such model or page.",
        413: "The request is too large.",
        421: "The service is not known under this name.",
        422: "The image or a value is wrong; the sentence says how.",
        429: "Too many requests; wait as long as Retry-After says.",
        500: "The service failed; its log names the place.",
        503: "The models load, or too many images wait; try again after Retry-After seconds.",
        504: "The request took too long.",
    }.items()
}
_SENTENCES = {  # of what Starlette says by itself
    "Not Found": "there is no such address; /api/openapi.json describes those there are",
    "Method Not Allowed": "this address takes another method; see /api/openapi.json",
}


class RefusedError(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry_after = status, retry_after


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the description of the interface."""
    return {status: _RESPONSES[status] for status in statuses}


def said(status: int, sentence: str, **headers: str) -> JSONResponse:
    """A status and a sentence as a response."""
    return JSONResponse({"error": sentence}, status, headers=headers)


def refusal(refused: RefusedError) -> JSONResponse:
    """The response to a request that is refused."""
    wait = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    asks = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
    return said(refused.status, str(refused), **wait, **asks)


def add_errors(app: FastAPI) -> None:
    """Answer the errors of an application."""

    @app.exception_handler(MueError)
    async def bad_input(_: Request, error: MueError) -> Response:
        return said(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def bad_form(_: Request, error: RequestValidationError) -> Response:
        return said(422, _wrong_value(**error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        sentence = _SENTENCES.get(str(error.detail), str(error.detail))
        return said(error.status_code, sentence, **dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def defect(_: Request, __: Exception) -> Response:  # it is raised again, and logged
        return said(500, FAILED)

    @app.exception_handler(RefusedError)
    async def busy(_: Request, error: RefusedError) -> Response:
        return refusal(error)


def _wrong_value(loc: Sequence[str | int], msg: str, input: object = None, **_: Any) -> str:  # noqa: A002
    """What pydantic says, with the thing, the contract and the value."""
    name = str(loc[1]) if len(loc) > 1 else "the request"
    if msg == "Field required":
        return f"`{name}` is missing; /api/openapi.json says what is sent"
    contract = msg.removeprefix("Input should be ").partition(", unable")[0]
    if "UploadFile" in contract:
        return f"`{name}` must be a file, got a text"
    must = f"must be {contract}" if contract != msg else f"is wrong: {msg.lower()}"
    return f"`{name}` {must}, got {str(input)[:40]}"
