from mue.cli.progress import progress_bars


def test_nothing_is_shown_before_there_is_progress_or_where_it_is_turned_off(capsys):
    with progress_bars():
        pass
    with progress_bars(disable=True) as show:
        show("job", 1, 2)
    assert capsys.readouterr().err == ""


def test_a_job_has_its_name_its_count_and_its_note(capsys):
    with progress_bars() as show:
        show("a[/b]\n", 1, 2, "loss 0.5")
        show("a[/b]\n", 2, 2, "loss 0.25")
    said = capsys.readouterr().err
    assert all(word in said for word in (r"a[/b]\n", "2/2", "loss 0.25"))
