import torch

from mue.evaluation.latents import latent_samples
from mue.inference.load import load


def test_latents_are_sampled_with_their_modes_and_densities(baselines):
    found = latent_samples(load(baselines["probunet"], device="cpu"), inputs=60, k=3, seed=1)
    assert found.mode.shape == found.log_density.shape == (60, 3)
    assert (found.log_density <= 0).all()
    assert set(found.group) == {"dim", "bright"}
    torch.testing.assert_close(found.frequency().sum(dim=1), torch.ones(60))
