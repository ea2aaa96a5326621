"""Requests that are generated from the description of the interface. `make test-browser`."""

import subprocess
import sys

import pytest

pytest.importorskip("schemathesis")
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
