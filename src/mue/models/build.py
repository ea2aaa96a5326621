"""From a configuration to networks: the only place that knows numbers."""

from mue.config.schema import Config
from mue.models.heads import Heads, Plain
from mue.models.learner import ExactLearner, HeadsLearner, LatentLearner, VqLearner
from mue.models.modal import Modal
from mue.models.posterior import Posterior
from mue.models.probunet import GaussianNet, ProbUNet
from mue.nn.affine import Affine
from mue.nn.backbone import Decoder, Encoder
from mue.nn.codebook import Codebook, Usage
from mue.nn.mlp import MLPDecoder, MLPEncoder
from mue.nn.unet import Concatenate, ScaleShift, UNetDecoder, UNetEncoder


def build_network(config: Config) -> Modal | ProbUNet | Heads:
    """θ, with fresh weights."""
    if config.method == "probunet":
        m = config.model
        return ProbUNet(
            encoder=_encoder(config, m.c_in),
            prior=_gaussian(config, m.c_in),
            decoder=_decoder(config, config.latent.width),
        )
    if config.method == "heads":
        latent = config.latent
        return Heads(
            [_plain(config) for _ in range(latent.members)], dropout=config.model.dropout > 0
        )
    return build_modal(config)


def build_modal(config: Config) -> Modal:
    """θ of the paper, with fresh weights."""
    m, book = config.model, config.codebook
    return Modal(
        encoder=_encoder(config, m.c_in),
        prior=Affine(_pooled(config), book.size),
        codebook=Codebook(
            book.size, book.width, learned=config.method == "exact", spread=book.spread
        ),
        decoder=_decoder(config, book.width),
    )


def build_learner(config: Config) -> VqLearner | ExactLearner | LatentLearner | HeadsLearner:
    """θ and, where training needs it, φ beside it."""
    network = build_network(config)
    if isinstance(network, Heads):
        return HeadsLearner(network)
    if isinstance(network, ProbUNet):
        return LatentLearner(network, _gaussian(config, config.model.c_in + config.model.c_out))
    if config.method == "exact":
        return ExactLearner(network)
    m, book = config.model, config.codebook
    posterior = Posterior(
        encoder=_encoder(config, m.c_in + m.c_out),
        project=Affine(_pooled(config), book.width),
        usage=Usage(book.size, decay=book.decay),
    )
    return VqLearner(network, posterior)


def _pooled(config: Config) -> int:
    return [*config.model.levels, *config.model.tail][-1]


def _encoder(config: Config, c_in: int) -> Encoder:
    m = config.model
    if m.backbone == "mlp":
        return MLPEncoder(c_in, [*m.levels, *m.tail])
    return UNetEncoder(c_in, m.levels, m.tail, norm=m.norm, dropout=m.dropout)


def _gaussian(config: Config, c_in: int) -> GaussianNet:
    return GaussianNet(_encoder(config, c_in), Affine(_pooled(config), 2 * config.latent.width))


def _plain(config: Config) -> Plain:
    heads = config.latent.heads
    return Plain(_encoder(config, config.model.c_in), _decoder(config, 0, heads), heads)


def _decoder(config: Config, width: int, heads: int = 1) -> Decoder:
    """The decoder for codes or latents of that width; 0 is none."""
    m = config.model
    if m.backbone == "mlp":
        return MLPDecoder(_pooled(config), m.widths, m.c_out * heads, code_width=width)
    return UNetDecoder(
        m.levels,
        m.widths,
        m.c_out * heads,
        code_width=width,
        level=m.code_level,
        join=Concatenate if m.join == "concatenate" else ScaleShift,
        norm=m.norm,
        readout=m.readout,
        dropout=m.dropout,
    )
