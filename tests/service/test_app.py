"""The application from its start, and its description."""

import asyncio
from concurrent.futures import Future

import httpx
from asking import TOKEN, lifespan

from mue.service.app import build_app, create_app
from mue.service.service import Service
from mue.service.settings import Settings


def test_a_model_that_fails_at_first_is_logged_and_not_ready(predictors, monkeypatch, logged):
    def fails(*_, **__):
        raise RuntimeError("secret")

    monkeypatch.setattr(predictors["guess-exact"], "modes", fails)
    service = Service({"guess-exact": predictors["guess-exact"]}, Settings())
    app = build_app(service)

    async def start() -> None:
        async with app.router.lifespan_context(app):
            await asyncio.sleep(0.2)
            assert not await service.is_ready()

    asyncio.run(start())
    said = logged()
    assert "cannot answer" in said
    assert "secret" not in said


def test_the_page_comes_before_the_models(predictors, picture):
    loading = Future()
    app = create_app(loading)
    form, files = {"model": "guess-exact"}, {"file": ("a.png", picture)}

    async def start() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            lifespan(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            assert (await client.get("/")).status_code == 200
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).status_code == 503
            for path in ("/api/models", "/api/examples"):
                found = await client.get(path)
                assert (found.status_code, found.headers["retry-after"]) == (503, "1")
                assert "loading" in found.json()["error"]
            assert (await client.post("/api/propose", data=form, files=files)).status_code == 503
            assert (await client.get("/metrics")).status_code == 200
            loading.set_result({"guess-exact": predictors["guess-exact"]})
            while (await client.get("/readyz")).status_code == 503:
                await asyncio.sleep(0.01)
            assert len((await client.get("/api/models")).json()) == 1
            assert (await client.post("/api/propose", data=form, files=files)).status_code == 200

    asyncio.run(start())


def test_models_that_are_not_there_are_no_defect(logged):
    loading = Future()
    loading.set_exception(ValueError("no such model"))

    async def start() -> None:
        async with lifespan(create_app(loading)):
            await asyncio.sleep(0.05)

    asyncio.run(start())
    assert not logged()


def test_the_description_of_the_interface_has_examples(client):
    found = client.get("/api/openapi.json").json()
    assert {"/api/propose", "/api/models"} <= set(found["paths"])
    assert "example" in found["components"]["schemas"]["ImageModes"]


def test_the_description_names_the_token_and_every_error(served, client):
    with served(token=TOKEN) as other:
        asked = other.get("/api/openapi.json", headers={"authorization": f"Bearer {TOKEN}"})
    secured, free = asked.json(), client.get("/api/openapi.json").json()
    assert secured["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert "securitySchemes" not in free["components"]
    for path, methods in secured["paths"].items():
        if path.startswith("/api/"):
            ((_, operation),) = methods.items()
            assert operation["security"] == [{"HTTPBearer": []}], path
            found = operation["responses"]
            assert {"401", "403", "421", "429", "500", "504"} <= set(found), path
            for status, said in found.items():
                content = said.get("content", {}).get("application/json", {})
                assert status == "200" or content["schema"]["$ref"].endswith("/Error"), path
