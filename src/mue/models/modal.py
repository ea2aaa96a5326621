"""θ: all that inference needs."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mue.models.network import Proposal
from mue.nn.answer_score import AnswerScore
from mue.nn.backbone import Decoder, Encoder, Features
from mue.nn.codebook import Codebook


@dataclass(frozen=True, slots=True)
class View:
    """An input before any answer: its features, for the decoder, and log p(c | x)."""

    features: Features
    log_prior: Float[Tensor, "b n"]


class Modal(nn.Module):
    """Answers and their probabilities from a finite code book.

    `forward` encodes the input once and gives the probability of each code, E(x); `decode` gives
    the answers that codes lead to, D(c, x). The parts come from outside: any encoder and decoder
    that keep to the Protocols in `mue.nn.backbone`. With a `score` the probability of a code also
    depends on the answer it leads to.
    """

    def __init__(
        self,
        encoder: Encoder,
        prior: nn.Linear,
        codebook: Codebook,
        decoder: Decoder,
        score: AnswerScore | None = None,
    ) -> None:
        super().__init__()
        self.axes = encoder.axes
        self.max_answers = len(codebook.codes)
        self.encoder = encoder
        self.prior = prior
        self.codebook = codebook
        self.decoder = decoder
        self.score = score

    def forward_passes(self, k: int) -> int:
        """One, however many answers."""
        del k
        return 1

    def forward(self, x: Float[Tensor, "b *x"]) -> View:
        """Encode the inputs: features, and log p(c | x) in float32."""
        features = self.encoder(x)
        return View(features, self.prior(features.pooled).float().log_softmax(dim=1))

    def decode(self, view: View, codes: Float[Tensor, "b k d"]) -> Float[Tensor, "b k *y"]:
        """Logits of the answer that each of the k codes leads to, all in one batch, in float32."""
        return self.decoder(view.features, codes).float()

    def decode_all(self, view: View) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n *y"]]:
        """Log p(c | x) and the logits of the answer, for every code."""
        logits = self.decode(view, self.codebook.codes.expand(len(view.log_prior), -1, -1))
        if self.score is None:
            return view.log_prior, logits
        score = self.score(view.features.pooled, logits)
        return (view.log_prior + score).log_softmax(dim=1), logits

    def propose(
        self,
        x: Float[Tensor, "b *x"],
        k: int,
        *,
        min_prob: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Proposal:
        """The answers of the k most probable codes; those below `min_prob` are not decoded."""
        del generator
        view = self(x)
        log_prior, logits = (view.log_prior, None) if self.score is None else self.decode_all(view)
        prob, code = top_codes(log_prior, k, min_prob)
        if logits is None:
            return Proposal(self.decode(view, self.codebook.codes[code]), prob, code)
        return Proposal(logits[torch.arange(len(x), device=x.device)[:, None], code], prob, code)


def top_codes(
    log_prior: Float[Tensor, "b n"], k: int, min_prob: float = 0.0
) -> tuple[Float[Tensor, "b k"], Int[Tensor, "b k"]]:
    """Probabilities and rows of the k most probable codes, the others below `min_prob` left out.

    Where that is so for every input there are fewer; where for some, they have probability 0. The
    first is always kept.
    """
    log_prob, code = torch.topk(log_prior, k, dim=1)
    prob = log_prob.exp()
    if min_prob > 0:  # it waits for the device
        kept = enough(prob, min_prob)
        prob, code = prob.where(kept, 0), code[:, : int(kept.sum(dim=1).amax())]
    return prob[:, : code.shape[1]], code


def enough(prob: Float[Tensor, "b k"], min_prob: float) -> Bool[Tensor, "b k"]:
    """Whether codes, the most probable first, are at least so probable; the first always is."""
    return prob >= prob[:, :1].clamp(max=min_prob)


def in_use(prob: Float[Tensor, "*a"]) -> Bool[Tensor, "*a"]:
    """Whether codes of such probabilities for an input are in use: above 1 %."""
    return prob > 0.01
