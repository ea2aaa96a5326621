import pytest

from pages import (
    COMPARISON,
    RESULTS,
    ROOT,
    SEEDS,
    between,
    headline,
    insert,
    markdown,
    over_seeds,
    tables,
)


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


def test_the_cells_of_all_tables_of_a_text_are_found_by_column():
    text = "words | here\n\n| a | b |\n|---|---:|\n| `x` | **1** |\n\n| c |\n| --- |\n| 2 |\n"
    assert tables(text) == [{"a": "x", "b": "1"}, {"c": "2"}]


def test_the_table_of_the_readme_has_the_numbers_of_the_pages():
    table = headline(between(RESULTS, "lidc")[1], between(COMPARISON, "compare-lidc")[1])
    assert table in (ROOT / "README.md").read_text()


def test_the_seeds_of_the_readme_are_those_of_their_page():
    assert over_seeds(between(SEEDS, "seeds")[1]) in (ROOT / "README.md").read_text()
