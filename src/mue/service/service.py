"""The models, the threads that compute, and what is counted."""

import asyncio
import concurrent.futures
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from anyio.to_thread import run_sync
from fastapi import Depends, HTTPException, Request
from starlette.formparsers import MultiPartParser

from mue.inference.inputs import network_input
from mue.inference.prediction import Prediction
from mue.inference.predictor import Predictor
from mue.service.answers import rank
from mue.service.batching import Batcher, QueueFullError
from mue.service.errors import RefusedError
from mue.service.form import Question
from mue.service.monitoring import Monitor
from mue.service.settings import Settings
from mue.service.uploads import Upload, read_upload

Predictors = Mapping[str, Predictor]
Loading = concurrent.futures.Future[Predictors]


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

    async def start_(self, *, warm: bool) -> None:
        """Wait for the models, start the threads, and try each model."""
        given = self._given
        if isinstance(given, concurrent.futures.Future):
            try:
                given = await asyncio.wrap_future(given)
            except Exception:  # whoever loads them says why
                return
        self._batcher = Batcher(
            given,
            batch=self.settings.batch,
            queue=self.settings.queue,
            on_batch=self.monitor.batch_,
        )
        self.monitor.gauge_("mue_queue_length", lambda: self.batcher.waiting)
        self.monitor.gauge_("mue_models", lambda: len(self.predictors))
        await self.warm_up_(list(self.predictors) if warm else [])

    async def stop_(self) -> None:
        """Finish what waits, refuse what is new."""
        self.ready = False
        if self._batcher is not None:
            await run_sync(self._batcher.close)

    @property
    def predictors(self) -> dict[str, Predictor]:
        """The models by their names, once they are loaded."""
        return self.batcher.predictors

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

    async def answer(self, asked: Question) -> tuple[Prediction, Upload]:
        """The modes that are asked for, and the slice they are about."""
        predictor = self.predictor(asked.model)
        parts = [(file.filename or "", await file.read()) for file in asked.files]
        channels, normalization = predictor.config.model.c_in, predictor.config.data.normalize

        def decode() -> tuple[Upload, torch.Tensor]:
            upload = read_upload(parts, asked.slice_index, channels, self.settings)
            return upload, network_input(upload.raw.pixels, normalization, upload.raw.bits)

        upload, x = await self.run(decode)
        try:
            found = await asyncio.wrap_future(self.batcher.submit(asked.model, x))
        except QueueFullError:
            raise RefusedError(503, "too many images wait; try again", 1) from None
        how = {"by": asked.by, "k": asked.k, "cut": asked.cut, "coverage": asked.coverage}
        modes, raw = await self.run(rank, found, predictor, **how), upload.raw
        image, config = Path(str(raw.files[0])), predictor.config
        return Prediction(image, x[0], modes, raw, asked.by, asked.model, config), upload


async def _served(request: Request) -> Service:
    return request.app.state.service


Served = Annotated[Service, Depends(_served)]
"""The service, as a parameter of a route."""
