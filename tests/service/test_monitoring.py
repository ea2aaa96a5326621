"""Counters and the log."""

import json
import logging

from mue.service.monitoring import LogLines


def test_what_libraries_log_is_a_line_of_json_without_contents(logged):
    for name in ("python_multipart", "uvicorn.error"):
        record = logging.LogRecord(name, logging.WARNING, "f.py", 7, "got %r", ("Doe",), None)
        LogLines().emit(record)
    library, server = map(json.loads, logged().splitlines())
    assert (library["event"], library["at"]) == ("warning", "f.py:7")
    assert "message" not in library
    assert server["message"] == "got 'Doe'"
