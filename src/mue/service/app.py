"""The application: the routes, the errors and the models, behind the middleware."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from starlette.types import ASGIApp

from mue.service.errors import add_errors, responses
from mue.service.middleware import guarded
from mue.service.monitoring import log_defect
from mue.service.routes import API, OPEN, OPENAPI
from mue.service.service import Loading, Predictors, Service
from mue.service.settings import Settings
from mue.version import __version__


def create_app(
    predictors: Predictors | Loading, settings: Settings | None = None, *, warm: bool = True
) -> ASGIApp:
    """The application as ASGI, which with `warm` tries each model before it is ready.

    While the models are still loading, it serves the page, and asks clients to wait.
    """
    service = Service(predictors, settings or Settings())
    return guarded(build_app(service, warm=warm), service.settings, service.monitor)


def build_app(service: Service, *, warm: bool = True) -> FastAPI:
    """The application without the middleware."""

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
        openapi_url=OPENAPI,
        lifespan=lifespan,
    )
    app.state.service = service
    for router in OPEN.values():
        app.include_router(router)
    # the middleware asks for the token; this describes it
    token = Security(HTTPBearer(auto_error=False, description="The token of `mue serve --token`."))
    secured = [token] if service.settings.token else []
    errors = responses(401, 403, 421, 429, 500, 503, 504)
    for router in API.values():
        app.include_router(router, dependencies=secured, responses=errors)
    add_errors(app)
    return app


def _log_failure(starting: asyncio.Task[None]) -> None:
    """Say that a model failed at its first image: the service is never ready then."""
    error = None if starting.cancelled() else starting.exception()
    if isinstance(error, Exception):
        log_defect(error, at_start="a model cannot answer; the service is not ready")
