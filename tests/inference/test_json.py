import torch

from mue.inference.json import modes_json
from mue.modes import linkage, modes_of


def test_modes_are_written_with_their_members_and_the_rest_by_hand():
    """Three answers, of which the first and the last are one mode; 0.1 was left out."""
    prob, code = torch.tensor([[0.5, 0.25, 0.15]]), torch.tensor([[7, 3, 5]])
    distance = torch.tensor([[[0.0, 1.0, 0.2], [1.0, 0.0, 1.0], [0.2, 1.0, 0.0]]])
    y = torch.zeros(1, 3, 1, 2, 2)
    modes = modes_of(y, prob, code, linkage(distance, prob), 0.5)
    found = modes_json(modes, by="mode")
    first, second = found["modes"]
    assert (first["rank"], first["code"], second["rank"], second["code"]) == (1, 7, 2, 3)
    assert [round(m["prob"], 6) for m in (first, second)] == [0.65, 0.25]
    assert [m["code"] for m in first["members"]] == [7, 5]
    assert [round(m["prob"], 6) for m in first["members"]] == [0.5, 0.15]
    assert round(first["spread"], 6) == round(0.15 * 0.2 / 0.65, 6)
    assert round(found["rest"], 6) == 0.1
    assert found["entropy"] > 0
    keys = ["by", "cut", "coverage", "modes", "rest", "entropy"]
    assert (list(found), found["by"], found["cut"], found["coverage"]) == (keys, "mode", 0.5, None)
    assert list(first) == ["rank", "prob", "code", "spread", "members"]
