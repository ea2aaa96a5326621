"""From a configuration to networks: the only place that knows numbers."""

from torch import nn

from mue.config import Config
from mue.models.learner import ExactLearner, VqLearner
from mue.models.modal import Modal
from mue.models.posterior import Posterior
from mue.nn.backbone import Decoder, Encoder
from mue.nn.codebook import Codebook, Usage
from mue.nn.mlp import MLPDecoder, MLPEncoder
from mue.nn.unet import Concatenate, ScaleShift, UNetDecoder, UNetEncoder


def build_modal(config: Config) -> Modal:
    """θ, with fresh weights."""
    m, book = config.model, config.codebook
    return Modal(
        encoder=_encoder(config, m.c_in),
        prior=nn.Linear(_pooled(config), book.size),
        codebook=Codebook(
            book.size, book.width, learned=config.method == "exact", spread=book.spread
        ),
        decoder=_decoder(config),
    )


def build_learner(config: Config) -> VqLearner | ExactLearner:
    """θ and, for `vq`, φ beside it."""
    modal = build_modal(config)
    if config.method == "exact":
        return ExactLearner(modal)
    m, book = config.model, config.codebook
    posterior = Posterior(
        encoder=_encoder(config, m.c_in + m.c_out),
        project=nn.Linear(_pooled(config), book.width),
        usage=Usage(book.size, decay=book.decay),
    )
    return VqLearner(modal, posterior)


def _pooled(config: Config) -> int:
    return [*config.model.levels, *config.model.tail][-1]


def _encoder(config: Config, c_in: int) -> Encoder:
    m = config.model
    if m.backbone == "mlp":
        return MLPEncoder(c_in, [*m.levels, *m.tail])
    return UNetEncoder(c_in, m.levels, m.tail, norm=m.norm)


def _decoder(config: Config) -> Decoder:
    m, width = config.model, config.codebook.width
    if m.backbone == "mlp":
        return MLPDecoder(_pooled(config), m.widths, m.c_out, code_width=width)
    return UNetDecoder(
        m.levels,
        m.widths,
        m.c_out,
        code_width=width,
        level=m.code_level,
        join=Concatenate if m.join == "concatenate" else ScaleShift,
        norm=m.norm,
    )
