"""Images that are computed together."""

import pytest
import torch

from mue.service.batching import Batcher, QueueFullError


def test_an_image_has_the_same_answers_alone_and_in_a_batch(predictors):
    x = torch.rand(6, 1, 64, 64)
    sizes: list[int] = []
    batcher = Batcher(predictors, threads=1, on_batch=sizes.append)
    waiting = [batcher.submit("lidc-exact", image[None]) for image in x]
    found = [w.result() for w in waiting]
    batcher.close()
    assert max(sizes) > 1
    for image, modes in zip(x, found, strict=True):
        alone = predictors["lidc-exact"].modes(image)
        assert torch.allclose(modes.prob, alone.prob, atol=1e-4)


def test_images_of_a_model_that_samples_are_computed_alone(predictors):
    """Samples depend on the place in a batch."""
    x, sizes = torch.rand(5, 1, 28, 112), list[int]()
    batcher = Batcher(predictors, threads=1, on_batch=sizes.append)
    waiting = [batcher.submit("guess-probunet", image[None]) for image in x]
    found = [w.result() for w in waiting]
    batcher.close()
    assert sizes == [1] * 5
    alone = predictors["guess-probunet"].modes(x[4])
    assert torch.equal(found[4].answers, alone.answers)


def test_two_threads_give_the_answers_of_one(predictors):
    x, sizes = torch.rand(12, 1, 28, 112), list[int]()
    batcher = Batcher(predictors, threads=2, on_batch=sizes.append)
    waiting = [batcher.submit("guess-exact", image[None]) for image in x]
    batcher.close()
    assert sum(sizes) == 12
    for image, found in zip(x, waiting, strict=True):
        alone = predictors["guess-exact"].modes(image)
        assert torch.allclose(found.result().prob, alone.prob, atol=1e-4)


def test_an_image_that_fails_in_a_batch_fails_alone(predictors, monkeypatch):
    predictor, x = predictors["guess-exact"], torch.rand(6, 1, 28, 112)
    x[2] = float("nan")
    modes = predictor.modes

    def fails(images, **how):
        if images.isnan().any():
            raise ValueError("this one")
        return modes(images, **how)

    monkeypatch.setattr(predictor, "modes", fails)
    sizes: list[int] = []
    batcher = Batcher(predictors, threads=1, on_batch=sizes.append)
    waiting = [batcher.submit("guess-exact", image[None]) for image in x]
    batcher.close()
    assert max(sizes) > 1
    assert [w.exception() is not None for w in waiting] == [i == 2 for i in range(6)]


def test_the_service_stops_after_what_it_has(predictors):
    batcher = Batcher(predictors, threads=1)
    waiting = [batcher.submit("guess-exact", torch.rand(1, 1, 28, 112)) for _ in range(4)]
    batcher.close()
    assert all(w.done() for w in waiting)
    with pytest.raises(QueueFullError):
        batcher.submit("guess-exact", torch.rand(1, 1, 28, 112))
