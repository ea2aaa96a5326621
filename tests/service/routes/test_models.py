"""The models, and what each can be asked."""

import pytest


def test_each_model_is_described_by_its_own_configuration(client, predictors):
    found = {model["name"]: model for model in client.get("/api/models").json()}
    assert list(found) == list(predictors)
    for name, predictor in predictors.items():
        said, config = found[name], predictor.config
        assert said["method"] == config.method
        assert (said["task"], said["channels"]) == (config.data.name, config.model.c_in)
        assert (said["codes"], said["samples"]) == (predictor.codes, predictor.is_sampler)
        assert said["cut"] == pytest.approx(predictor.cut)
        assert said["coverage"] == list(config.modes.coverage)
        assert said["limits"] == list(config.modes.limits)


def test_the_page_can_ask_what_a_model_promises(client):
    found = {model["name"]: model for model in client.get("/api/models").json()}
    assert 0.9 in found["lidc-exact"]["coverage"]
    assert found["lidc-exact"]["codes"] > 0
    assert (found["guess-probunet"]["codes"], found["guess-probunet"]["samples"]) == (0, True)
    for model in found.values():
        assert model["answers"] == "probability"
        assert model["max_cut"] == 1  # 1 - IoU is at most that
