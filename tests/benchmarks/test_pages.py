import pytest

from pages import insert, markdown


def test_a_table_aligns_words_to_the_left_and_numbers_to_the_right():
    assert markdown(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_only_what_stands_between_the_marks_is_replaced(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n")
    insert(path, "new", "a")
    insert(path, "newer", "a")
    assert path.read_text() == "before\n<!-- a: begin -->\nnewer\n<!-- a: end -->\nafter\n"


@pytest.mark.parametrize("text", ["nothing", "<!-- a: begin --> no end", "<!-- a: end -->"])
def test_a_page_without_the_marks_is_left_as_it_is(tmp_path, text: str):
    path = tmp_path / "page.md"
    path.write_text(text)
    with pytest.raises(ValueError, match="must hold <!-- a: begin --> and then <!-- a: end -->"):
        insert(path, "new", "a")
    assert path.read_text() == text
