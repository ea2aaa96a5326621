"""How far one job of several is."""

from mue.commands.progress import progress_of


def test_the_progress_of_a_job_has_its_name():
    calls: list[tuple[str, int, int]] = []
    show = progress_of("health", lambda *call: calls.append(call))
    assert show is not None
    show(1, 4)
    show(4, 4)
    assert calls == [("health", 1, 4), ("health", 4, 4)]


def test_where_nobody_asks_there_is_none():
    assert progress_of("health", None) is None
