from itertools import pairwise

from mue.data.order import natural


def test_numbers_in_names_are_ordered_as_numbers():
    names = ["10", "9", "slice-10", "slice-9", "slice-9b", "a10b2", "a10b10", ""]
    wanted = ["9", "10", "", "a10b2", "a10b10", "slice-9", "slice-9b", "slice-10"]
    assert sorted(names, key=natural) == wanted


def test_names_that_differ_by_zeros_alone_have_an_order():
    assert sorted(["r1", "r01", "r001"], key=natural) == ["r001", "r01", "r1"]


def test_several_names_are_compared_one_after_another():
    keys = [("p1", "z"), ("p1a", "a"), ("p2", "b9"), ("p2", "b10"), ("p10", "a")]
    for low, high in pairwise(keys):
        assert natural(*low) < natural(*high), (low, high)


def test_a_number_of_thousands_of_digits_is_compared():
    assert natural("1" * 9999) < natural("2" * 9999) < natural("1" * 10000)
