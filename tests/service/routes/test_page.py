"""The page and what belongs to it."""

import re
from pathlib import Path

import pytest

from mue.service import routes

FOLDER = Path(routes.__file__).parents[1] / "page"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("index.html", "text/html"),
        ("style.css", "text/css"),
        ("viewer.js", "text/javascript"),
        ("controls/zoom.js", "text/javascript"),
    ],
)
def test_a_file_of_the_page_is_sent_as_it_is_with_its_kind(client, name, kind):
    found = client.get(f"/page/{name}")
    assert found.content == (FOLDER / name).read_bytes()
    assert found.headers["content-type"] == f"{kind}; charset=utf-8"
    assert found.headers["cache-control"] == "no-cache"


def test_the_first_address_is_the_page_and_all_that_it_names_is_there(client):
    page = client.get("/")
    assert page.content == (FOLDER / "index.html").read_bytes()
    named = re.findall(r'(?:src|href)="(/?page/[^"]+)"', page.text)
    assert len(named) >= 2
    for address in named:
        assert client.get(address).status_code == 200, address


def test_every_file_of_the_page_can_be_had(client):
    for path in (p for p in FOLDER.rglob("*") if p.is_file() and p.suffix != ".py"):
        found = client.get(f"/page/{path.relative_to(FOLDER).as_posix()}")
        assert found.content == path.read_bytes(), path


@pytest.mark.parametrize("name", ["none.js", "controls", "../routes/page.py", "%2e%2e/app.py", ""])
def test_nothing_else_is_sent(client, name):
    assert client.get(f"/page/{name}").status_code == 404
