"""The address of the ranked answers."""

import time

import pytest
from asking import propose


def test_the_seconds_are_those_of_the_service_alone(client, picture):
    began = time.perf_counter()
    seconds = propose(client, picture).json()["seconds"]
    assert 0 < seconds < time.perf_counter() - began


def test_the_image_and_every_answer_are_sent_where_they_are_asked_for(client, picture):
    plain, detailed = (propose(client, picture, details=d).json() for d in (False, True))
    assert set(detailed) - set(plain) == {"answers", "tree", "image"}
    assert [m["prob"] for m in detailed["modes"]] == [m["prob"] for m in plain["modes"]]
    assert all(mode["mask"] == {} for mode in detailed["modes"])  # they are among the answers
    assert sum(a["prob"] for a in detailed["answers"]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("masks", "keys"), [("png", {"png"}), ("rle", {"rle"}), ("none", set())])
def test_masks_are_encoded_as_it_is_asked(client, picture, masks, keys):
    for mode in propose(client, picture, masks=masks).json()["modes"]:
        assert set(mode["mask"]) == keys
