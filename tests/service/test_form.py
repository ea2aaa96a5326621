"""What may be asked about an image."""

import pytest
from asking import propose


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ({"k": 1}, 200),
        ({"k": 0}, 422),
        ({"k": 4096}, 200),
        ({"k": 4097}, 422),
        ({"coverage": 0.001}, 200),
        ({"coverage": 0}, 422),
        ({"coverage": 1}, 422),
        ({"cut": 0}, 200),
        ({"cut": -1e-9}, 422),
        ({"cut": 1e6}, 200),
        ({"cut": 1.1e6}, 422),
        ({"by": "mode"}, 200),
        ({"by": "codes"}, 422),
    ],
)
def test_limits_belong_to_what_may_be_asked(client, picture, question, status):
    found = propose(client, picture, masks="none", **question)
    assert found.status_code == status, found.text
    if status == 422:
        ((name, value),) = question.items()
        assert found.json()["error"].startswith(f"`{name}` must be")
        assert found.json()["error"].endswith(f"got {value}")


def test_what_is_not_asked_is_the_first_eight_modes_of_the_slice_in_the_middle(client, series):
    files = [("file", file) for file in series]

    def ask(**form):
        form = {"model": "lidc-exact", "details": "true", **form}
        found = client.post("/api/propose", files=files, data=form).json()
        del found["seconds"]
        return found

    plain = ask()
    assert plain == ask(k="8", by="mode", slice="3")
    assert plain["image"]["slice"] == 3
    assert ask(slice="0")["image"]["slice"] == 0
