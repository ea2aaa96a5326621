from mue.data.prepared.item import Row, splits_of
from mue.data.prepared.splits import split_of


def test_an_image_is_named_by_patient_case_and_slice_without_repetition():
    assert Row(patient="p", case="c", slice="s", source="").id == "p/c/s"
    assert Row(patient="p", case="c", source="").id == "p/c"
    assert Row(patient="p", case="p", slice="s", source="").id == "p/s"
    assert Row(patient="p", case="p", source="").key == ("p", "p", "")


def test_the_split_of_the_source_comes_before_that_of_the_patient(patients):
    (name,) = patients("test", 1)
    rows = [
        Row(patient=name, case="a", source=""),
        Row(patient=name, case="b", source="", split="val"),
    ]
    assert splits_of(rows) == ["test", "val"]
    assert split_of(name) == "test"
