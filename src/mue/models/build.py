"""From a configuration to networks: the only place that knows numbers."""

import functools
from collections.abc import Callable

from torch import nn

from mue.config.schema import Config, ModelConfig
from mue.errors import MueError
from mue.models.heads import Heads, HeadsLearner, Plain
from mue.models.learner import ExactLearner, VqLearner
from mue.models.modal import Modal
from mue.models.posterior import Posterior
from mue.models.probunet import GaussianNet, LatentLearner, ProbUNet
from mue.nn.answer_score import AnswerScore
from mue.nn.backbone import Backbone
from mue.nn.codebook import Codebook, Usage
from mue.nn.mlp import MLPDecoder, MLPEncoder
from mue.nn.standardize import StandardizedLinear
from mue.nn.unet import Concatenate, ScaleShift, UNetDecoder, UNetEncoder


def unet(m: ModelConfig) -> Backbone:
    """A residual U-Net, for images."""
    join = Concatenate if m.join == "concatenate" else ScaleShift
    return Backbone(
        encoder=lambda c_in: UNetEncoder(c_in, m.levels, m.tail, norm=m.norm, dropout=m.dropout),
        decoder=lambda code_width, heads: UNetDecoder(
            m.levels,
            m.widths,
            m.c_out * heads,
            join=functools.partial(join, code_width=code_width),
            level=m.code_level,
            norm=m.norm,
            readout=m.readout,
            dropout=m.dropout,
        ),
        width=[*m.levels, *m.tail][-1],
    )


def mlp(m: ModelConfig) -> Backbone:
    """Linear layers, for vectors."""
    hidden = [*m.levels, *m.tail]
    return Backbone(
        encoder=lambda c_in: MLPEncoder(c_in, hidden),
        decoder=lambda code_width, heads: MLPDecoder(
            hidden[-1], m.widths, m.c_out * heads, code_width=code_width
        ),
        width=hidden[-1],
    )


BACKBONES: dict[str, Callable[[ModelConfig], Backbone]] = {"unet": unet, "mlp": mlp}
"""Backbones by `model.backbone`. A new one is added here."""


def build_backbone(config: ModelConfig) -> Backbone:
    """The backbone that the configuration names."""
    if config.backbone not in BACKBONES:
        raise MueError(
            f"model.backbone must be one of {', '.join(BACKBONES)}, got {config.backbone!r}; "
            "a model with parts of its own is trained by mue.train(..., backbone=...) or "
            "learner=..., and loaded by mue.load(folder, network=...)"
        )
    return BACKBONES[config.backbone](config)


def build_network(config: Config, backbone: Backbone | None = None) -> Modal | ProbUNet | Heads:
    """θ, with fresh weights. A given backbone replaces the one that the configuration names."""
    part, c_in = backbone or build_backbone(config.model), config.model.c_in
    latent = config.latent
    if config.method == "probunet":
        encoder, prior = part.encoder(c_in), _gaussian(config, part, c_in)
        return ProbUNet(encoder, prior, part.decoder(latent.width, 1))
    if config.method == "heads":
        members = [
            Plain(part.encoder(c_in), part.decoder(0, latent.heads), latent.heads)
            for _ in range(latent.members)
        ]
        return Heads(members, dropout=config.model.dropout > 0)
    return build_modal(config, part)


def build_modal(config: Config, backbone: Backbone | None = None) -> Modal:
    """θ of the paper, with fresh weights."""
    part, book = backbone or build_backbone(config.model), config.codebook
    return Modal(
        encoder=part.encoder(config.model.c_in),
        prior=_linear(config, part.width, book.size),
        codebook=Codebook(
            book.size, book.width, learned=config.method == "exact", spread=book.spread
        ),
        decoder=part.decoder(book.width, 1),
        score=AnswerScore(part.width) if book.reads_answers else None,
    )


def build_learner(
    config: Config, backbone: Backbone | None = None
) -> VqLearner | ExactLearner | LatentLearner | HeadsLearner:
    """θ and, where training needs it, φ."""
    part = backbone or build_backbone(config.model)
    network, both = build_network(config, part), config.model.c_in + config.model.c_out
    if isinstance(network, Heads):
        return HeadsLearner(network)
    if isinstance(network, ProbUNet):
        return LatentLearner(network, _gaussian(config, part, both))
    if config.method == "exact":
        return ExactLearner(network)
    posterior = Posterior(
        encoder=part.encoder(both),
        project=_linear(config, part.width, config.codebook.width),
        usage=Usage(config.codebook.size, decay=config.codebook.decay),
    )
    return VqLearner(network, posterior)


def _linear(config: Config, c_in: int, c_out: int) -> nn.Linear:
    """The layer that reads pooled features."""
    return (StandardizedLinear if config.model.standardize else nn.Linear)(c_in, c_out)


def _gaussian(config: Config, part: Backbone, c_in: int) -> GaussianNet:
    return GaussianNet(part.encoder(c_in), nn.Linear(part.width, 2 * config.latent.width))
