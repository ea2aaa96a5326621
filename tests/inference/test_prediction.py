import pytest
import torch

import mue


def test_modes_are_of_all_codes_and_keep_their_whole_probability(trained, images):
    (found,) = mue.predict(trained, images[:1], k=2, device="cpu").predictions
    predictor = mue.load(trained, device="cpu")
    modes = predictor.modes(found.x, normalized=True)
    assert torch.equal(found.modes.prob, modes.prob[:, :2])
    answers = found.summary()["modes"]
    for i, answer in enumerate(answers):
        assert answer["rank"] == i + 1
        assert sum(m["prob"] for m in answer["members"]) == pytest.approx(answer["prob"], abs=1e-6)
        assert answer["code"] in [m["code"] for m in answer["members"]]
    known = sum(answer["prob"] for answer in answers) + found.summary()["rest"]
    assert known == pytest.approx(1, abs=1e-5)
