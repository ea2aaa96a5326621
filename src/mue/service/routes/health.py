"""Whether the service is alive and ready, and what it has done."""

from typing import Annotated, Protocol, runtime_checkable

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from mue.service import schema
from mue.service.errors import responses
from mue.service.monitoring import Monitor

router = APIRouter(tags=["health"])


@runtime_checkable
class Health(Protocol):
    """What `/readyz` and `/metrics` tell."""

    monitor: Monitor

    async def is_ready(self) -> bool:
        """Whether images are answered."""
        ...


async def _watched(request: Request) -> Health:
    return request.app.state.service


Watched = Annotated[Health, Depends(_watched)]


@router.get("/healthz")
async def healthz() -> schema.Health:
    """Whether the process answers."""
    return schema.Health(status="ok")


@router.get("/readyz", responses={503: {"model": schema.Health}})
async def readyz(service: Watched) -> Response:
    """Whether images are answered: not before the models are loaded, nor while it stops."""
    ready = await service.is_ready()
    return JSONResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)


@router.get("/metrics", response_class=PlainTextResponse, responses=responses(401))
async def metrics(service: Watched) -> Response:
    """Counters in the text format of Prometheus."""
    return Response(service.monitor.render(), media_type="text/plain; version=0.0.4")
