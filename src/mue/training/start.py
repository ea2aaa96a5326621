"""How a training starts: statistics of the data for standardized features and the code book."""

import torch

from mue.data.random import normal
from mue.data.source import Source
from mue.models.learner import ExactLearner, VqLearner
from mue.models.posterior import concatenate
from mue.nn.standardize import StandardizedLinear
from mue.training.state import Training

_CODEBOOK_SALT = 100  # other random numbers than those of the data


def start_(training: Training, source: Source) -> None:
    """Give the statistics of the data to standardized features, and to the codes of `vq`.

    The paper starts the code book with those of the encodings.
    """
    config, learner, device = training.config, training.learner, training.device
    if not isinstance(learner, (VqLearner, ExactLearner)):
        return
    network, book = learner.network, config.codebook
    if isinstance(learner, ExactLearner) and not isinstance(network.prior, StandardizedLinear):
        return
    pair = source.pair(torch.arange(max(256, config.train.batch), device=device))
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=training.bfloat16):
        if isinstance(network.prior, StandardizedLinear):
            network.prior.start_(network.encoder(pair.x).pooled)
        if isinstance(learner, VqLearner):
            if isinstance(learner.posterior.project, StandardizedLinear):
                both = concatenate(pair.x, pair.y)
                learner.posterior.project.start_(learner.posterior.encoder(both).pooled)
            rows = torch.arange(book.size, device=device)
            fresh = normal(config.train.seed, rows, book.width, salt=_CODEBOOK_SALT)
            learner.start_(pair.x, pair.y, fresh)
    training.reset_ema_()
