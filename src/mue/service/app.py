"""The application: models, answers, examples, the page."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import functools
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import torch
from anyio.to_thread import run_sync
from fastapi import (
    Depends,
    FastAPI,
    File,
    Form,
    HTTPException,
    Request,
    Response,
    Security,
    UploadFile,
)
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from starlette.datastructures import UploadFile as StarletteUploadFile
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.formparsers import MultiPartParser

from mue.errors import MueError
from mue.inference.predictor import Predictor
from mue.modes import By, Modes
from mue.service import examples as bundled
from mue.service import schema
from mue.service.answers import MaskFormat, as_json, class_names, is_label_map, png, rank
from mue.service.batching import Batcher, QueueFullError
from mue.service.export import export
from mue.service.guard import Guard, RefusedError, log_defect
from mue.service.monitoring import Monitor
from mue.service.settings import Settings
from mue.service.uploads import ExportFormat, Upload, as_input, read_upload
from mue.version import __version__

_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Error, "description": text}
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
_READING: dict[int | str, dict[str, Any]] = {
    status: _ERRORS[status] for status in (401, 403, 421, 429, 500, 503, 504)
}

_SENTENCES = {  # of what Starlette says by itself
    "Not Found": "there is no such address; /api/openapi.json describes those there are",
    "Method Not Allowed": "this address takes another method; see /api/openapi.json",
}

ImageForm = Annotated[
    list[UploadFile],
    File(
        description="PNG, JPEG, GIF, BMP, WebP, TIFF, NIfTI, DICOM or npy: one file, or as several "
        "parts of this name the slices of one DICOM series, in any order."
    ),
]
ModelForm = Annotated[str, Form(description="A name of /api/models.", examples=["lidc-exact"])]
SliceForm = Annotated[
    int | None, Form(alias="slice", description="Of a volume, from 0; by default the middle.")
]
KForm = Annotated[int, Form(ge=1, le=4096, description="How many to return at most.", examples=[3])]
ByForm = Annotated[
    By, Form(description="Whether answers that are alike are grouped, or each stands alone.")
]
CoverageForm = Annotated[
    float | None,
    Form(
        gt=0,
        lt=1,
        description="Return what holds a new rater's answer with this probability.",
        examples=[0.9],
    ),
]
CutForm = Annotated[
    float | None,
    Form(ge=0, le=1e6, description="Distance beyond which groups stay apart; else calibrated."),
]


Predictors = Mapping[str, Predictor]
Loading = concurrent.futures.Future[Predictors]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about an image."""

    files: Sequence[StarletteUploadFile]
    model: str
    index: int | None
    k: int
    by: By
    coverage: float | None
    cut: float | None


async def _question(
    file: ImageForm,
    model: ModelForm,
    slice_: SliceForm = None,
    k: KForm = 8,
    by: ByForm = "mode",
    coverage: CoverageForm = None,
    cut: CutForm = None,
) -> Question:
    return Question(file, model, slice_, k, by, coverage, cut)


QuestionForm = Annotated[Question, Depends(_question)]


def create_app(
    predictors: Predictors | Loading, settings: Settings | None = None, *, warm: bool = True
) -> Guard:
    """The application as ASGI, which with `warm` tries each model before it is ready.

    While the models are still loading, it serves the page, and asks clients to wait.
    """
    service = Service(predictors, settings or Settings())
    return Guard(build_app(service, warm=warm), service.settings, service.monitor)


def build_app(service: Service, *, warm: bool = True) -> FastAPI:
    """The application behind the guard."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        starting = asyncio.create_task(service.start_(warm=warm))
        starting.add_done_callback(_log_failure)
        await asyncio.sleep(0)  # models that are loaded are there with the first request
        yield
        starting.cancel()
        await service.stop_()

    app = FastAPI(
        title="mue",
        version=__version__,
        summary="Ranked answers with probabilities, for problems with more than one right answer",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    add_pages(app)
    add_health(app, service)
    _add_api(app, service)
    add_errors(app)
    return app


def _log_failure(starting: asyncio.Task[None]) -> None:
    """Say that a model failed at its first image: the service is never ready then."""
    error = None if starting.cancelled() else starting.exception()
    if isinstance(error, Exception):
        log_defect(error, at_start="a model cannot answer; the service is not ready")


@runtime_checkable
class Health(Protocol):
    """What `/readyz` and `/metrics` tell."""

    monitor: Monitor

    async def is_ready(self) -> bool:
        """Whether images are answered."""
        ...


class Service:
    """The models, the threads that compute, and what is counted."""

    def __init__(self, predictors: Predictors | Loading, settings: Settings) -> None:
        # a larger form would be written to a temporary file while it is parsed
        MultiPartParser.spool_max_size = max(MultiPartParser.spool_max_size, settings.body + 1)
        self._given, self.settings = predictors, settings
        self.monitor, self.ready = Monitor(), False
        # of decoding and encoding, so that memory does not grow with the number of clients
        self._slots = asyncio.Semaphore(max(2, os.cpu_count() or 1))
        self._batcher: Batcher | None = None
        self._predictors = dict[str, Predictor]()

    async def start_(self, *, warm: bool) -> None:
        """Wait for the models, start the threads, and try each model."""
        given = self._given
        if isinstance(given, concurrent.futures.Future):
            try:
                given = await asyncio.wrap_future(given)
            except Exception:  # whoever loads them says why
                return
        self._predictors = dict(given)
        self._batcher = Batcher(
            self._predictors,
            batch=self.settings.batch,
            queue=self.settings.queue,
            on_batch=self.monitor.batch_,
        )
        self.monitor.gauge_("mue_queue_length", lambda: self.batcher.waiting)
        self.monitor.gauge_("mue_models", lambda: len(self._predictors))
        await self.warm_up_(list(self._predictors) if warm else [])

    async def stop_(self) -> None:
        """Finish what waits, refuse what is new."""
        self.ready = False
        if self._batcher is not None:
            await run_sync(self._batcher.close)

    @property
    def predictors(self) -> dict[str, Predictor]:
        """The models by their names, once they are loaded."""
        if self._batcher is None:
            raise RefusedError(503, "the models are loading; try again", 1)
        return self._predictors

    @property
    def batcher(self) -> Batcher:
        """What computes, once the models are loaded."""
        if self._batcher is None:
            raise RefusedError(503, "the models are loading; try again", 1)
        return self._batcher

    async def warm_up_(self, models: list[str]) -> None:
        """Answer an image with each model, since the first takes longer than all others."""
        for name in models:
            config = self.predictors[name].config
            size = (28, 112) if config.data.name == "guess" else (128, 128)
            x = torch.zeros(1, config.model.c_in, *size)
            while True:
                try:
                    await asyncio.wrap_future(self.batcher.submit(name, x))
                    break
                except QueueFullError:  # of clients that did not wait until it is ready
                    await asyncio.sleep(0.1)
        self.ready = True

    async def is_ready(self) -> bool:
        """Whether the models are warm and it does not stop."""
        return self.ready

    def predictor(self, model: str) -> Predictor:
        """A model by its name."""
        if model not in self.predictors:
            raise HTTPException(
                404, f"there is no such model; there are {', '.join(self.predictors)}"
            )
        return self.predictors[model]

    async def run(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Decode or encode in a thread, which keeps its slot until it ends.

        A thread goes on when its request is over: its client has gone, or its time has.
        """
        call = functools.partial(function, *arguments, **options)
        await self._slots.acquire()
        working = asyncio.get_running_loop().run_in_executor(None, call)
        working.add_done_callback(self._free_)
        await asyncio.wait((working,))
        return working.result()

    def _free_(self, working: asyncio.Future[Any]) -> None:
        """Give the slot of a thread back; nobody may be left to ask for its error."""
        self._slots.release()
        working.exception()

    async def answer(self, asked: Question) -> tuple[Modes, Upload]:
        """The modes that are asked for, and the image they are about."""
        predictor = self.predictor(asked.model)
        parts = [(file.filename or "", await file.read()) for file in asked.files]
        channels, normalization = predictor.config.model.c_in, predictor.config.data.normalize

        def decode() -> tuple[Upload, torch.Tensor]:
            upload = read_upload(parts, asked.index, channels, self.settings)
            return upload, as_input(upload.pixels, normalization, upload.raw.bits)

        upload, x = await self.run(decode)
        try:
            found = await asyncio.wrap_future(self.batcher.submit(asked.model, x))
        except QueueFullError:
            raise RefusedError(503, "too many images wait; try again", 1) from None
        how = {"by": asked.by, "k": asked.k, "cut": asked.cut, "coverage": asked.coverage}
        return await self.run(rank, found, predictor, **how), upload


def add_pages(app: FastAPI) -> None:
    """The page and what belongs to it."""
    folder = Path(str(files("mue.service"))) / "page"
    content = {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in _KINDS}

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return page("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    def page(name: str) -> Response:
        if name not in content:
            raise HTTPException(404, "there is no such page")
        kind = f"{_KINDS[Path(name).suffix]}; charset=utf-8"
        return Response(content[name], media_type=kind, headers={"Cache-Control": "no-cache"})


def add_health(app: FastAPI, service: Health) -> None:
    """Whether it is alive and ready, and what it has done."""

    @app.get("/healthz", tags=["health"])
    async def healthz() -> schema.Health:
        """Whether the process answers."""
        return schema.Health(status="ok")

    @app.get("/readyz", tags=["health"], responses={503: {"model": schema.Health}})
    async def readyz() -> Response:
        """Whether images are answered: not before the models are loaded, nor while it stops."""
        ready = await service.is_ready()
        return JSONResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)

    @app.get(
        "/metrics", tags=["health"], response_class=PlainTextResponse, responses={401: _ERRORS[401]}
    )
    async def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(service.monitor.render(), media_type="text/plain; version=0.0.4")


def _add_api(app: FastAPI, service: Service) -> None:
    # the guard asks for the token; this describes it
    token = Security(HTTPBearer(auto_error=False, description="The token of `mue serve --token`."))
    secured = [token] if service.settings.token else []

    @app.get("/api/models", tags=["answers"], responses=_READING, dependencies=secured)
    async def models() -> list[schema.Model]:
        """The models, and what each can be asked."""
        return [_model(name, p) for name, p in service.predictors.items()]

    @app.post("/api/propose", tags=["answers"], responses=_ERRORS, dependencies=secured)
    async def propose(
        asked: QuestionForm,
        masks: Annotated[MaskFormat, Form(description="How masks are encoded.")] = "png",
        details: Annotated[
            bool, Form(description="Add every answer, their tree, and the image itself.")
        ] = False,
    ) -> schema.Proposal:
        """The answers to an image, the most probable first, and the probability of the rest."""
        began = time.perf_counter()
        found, upload = await service.answer(asked)
        config = service.predictor(asked.model).config
        content = await service.run(
            as_json, found, config, form=masks, details=details, upload=upload
        )
        seconds = time.perf_counter() - began
        return JSONResponse({"model": asked.model, "by": asked.by, "seconds": seconds, **content})  # type: ignore

    @app.post(
        "/api/export",
        tags=["answers"],
        responses={**_ERRORS, 200: {"content": {"application/octet-stream": {}}}},
        response_class=Response,
        dependencies=secured,
    )
    async def export_masks(
        asked: QuestionForm,
        form: Annotated[
            ExportFormat, Form(alias="format", description="Kind of the file.")
        ] = "nifti",
    ) -> Response:
        """The same answers as a file, where the source is in space."""
        found, upload = await service.answer(asked)
        config = service.predictor(asked.model).config
        ending, content = await service.run(export, found, upload, config, form)
        headers = {"Content-Disposition": f'attachment; filename="answers{ending}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    @app.get("/api/examples", tags=["examples"], responses=_READING, dependencies=secured)
    def list_examples() -> list[schema.Example]:
        """Images to begin with, with the answers that are known to them."""
        tasks = {
            p.config.data.name for p in service.predictors.values() if p.config.model.c_in == 1
        }
        return [_example(e) for e in bundled.examples() if e.task in tasks]

    @app.get(
        "/api/digits/{label}/{index}",
        tags=["examples"],
        responses={**_READING, 422: _ERRORS[422], 200: {"content": {"image/png": {}}}},
        response_class=Response,
        dependencies=secured,
    )
    def digit(
        label: Annotated[int, PathParameter(ge=0, le=9)],
        index: Annotated[int, PathParameter(ge=0, lt=bundled.DIGITS)],
    ) -> Response:
        """A handwritten digit, to compose inputs of the guessing game from."""
        return Response(png(bundled.digit(label, index)), media_type="image/png")


def _model(name: str, predictor: Predictor) -> schema.Model:
    config = predictor.config
    return schema.Model(
        name=name,
        method=config.method,
        task=config.data.name,
        channels=config.model.c_in,
        classes=class_names(config),
        answers="labels" if is_label_map(config) else "probability",
        codes=predictor.codes,
        samples=predictor.is_sampler,
        cut=predictor.cut,
        max_cut=1.0 if predictor.cut < 1 else 4 * predictor.cut,
        coverage=list(config.modes.coverage),
        limits=list(config.modes.limits),
    )


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


def add_errors(app: FastAPI) -> None:
    """Whatever goes wrong is a status and a sentence."""

    def said(status: int, sentence: str, **headers: str) -> JSONResponse:
        return JSONResponse({"error": sentence}, status, headers=headers)

    @app.exception_handler(MueError)
    async def bad_input(_: Request, error: MueError) -> Response:
        return said(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def bad_form(_: Request, error: RequestValidationError) -> Response:
        return said(422, _wrong_value(**error.errors()[0]))

    @app.exception_handler(StarletteHTTPException)
    async def refused(_: Request, error: StarletteHTTPException) -> Response:
        sentence = _SENTENCES.get(str(error.detail), str(error.detail))
        return said(error.status_code, sentence, **dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def defect(_: Request, __: Exception) -> Response:  # it goes on to the guard, which logs
        return said(500, "the service failed; its log names the place")

    @app.exception_handler(RefusedError)
    async def busy(_: Request, error: RefusedError) -> Response:
        return said(error.status, str(error), **{"Retry-After": str(error.retry_after or 1)})
