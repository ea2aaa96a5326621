"""Requests that are generated from the description of the interface. `make test-browser`."""

import subprocess
import sys

import pytest

schemathesis = pytest.importorskip("schemathesis")
hypothesis = pytest.importorskip("hypothesis")
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)


@pytest.mark.browser
def test_the_service_does_as_it_describes_and_never_fails(served, tmp_path):
    with served(rate=0.0) as client:
        address = f"{str(client.base_url).rstrip('/')}/api/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli", "run", address, "--checks", CHECKS]
        done = subprocess.run(
            [*command, "--max-examples", "25", "--no-color"],
            capture_output=True,
            text=True,
            cwd=tmp_path,  # it keeps what it found in the current folder
        )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.browser
@pytest.mark.filterwarnings("default")
def test_every_question_about_an_image_is_answered_as_described(served, picture):
    """The same with values of k, cut, coverage, slice and by that are generated, and an image."""
    slow = [hypothesis.HealthCheck.too_slow]
    with served(rate=0.0) as client:
        found = schemathesis.openapi.from_url(f"{client.base_url}/api/openapi.json")
        statuses = set[int]()
        operation = found["/api/propose"]["POST"]

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(max_examples=40, deadline=None, suppress_health_check=slow)
        def ask(case):
            form = case.body if isinstance(case.body, dict) else {}
            names = ("k", "cut", "coverage", "slice", "by", "masks", "details")
            data = {n: str(form[n]) for n in names if form.get(n) is not None}
            data["model"] = "guess-exact"
            answer = client.post("/api/propose", files={"file": ("a.png", picture)}, data=data)
            statuses.add(answer.status_code)
            assert answer.status_code in (200, 422), (data, answer.text)

        ask()
    assert 200 in statuses
