"""The addresses of the service: a file for each or for a few, and a line in one of two tables."""

from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.routing import APIRoute

from mue.service.routes import examples, export, health, inputs, models, page, propose

API: dict[str, APIRouter] = {
    "models": models.router,
    "inputs": inputs.router,
    "propose": propose.router,
    "export": export.router,
    "examples": examples.router,
}
"""Addresses below /api/, which ask for the token."""
OPEN: dict[str, APIRouter] = {"page": page.router, "health": health.router}
"""Addresses that a process in front of the replicas answers by itself."""
OPENAPI = "/api/openapi.json"


def addresses() -> Iterator[tuple[str, set[str]]]:
    """The path of each route with its methods; variables of a path are in braces."""
    yield OPENAPI, {"GET"}
    for router in (*API.values(), *OPEN.values()):
        for route in router.routes:
            if isinstance(route, APIRoute):
                yield route.path, set(route.methods or ())
