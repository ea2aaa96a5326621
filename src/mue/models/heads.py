"""U-Nets without a latent: one, several, with several heads, or with dropout."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.models.network import Proposal, equally_probable
from mue.nn.across import ALONE, Across
from mue.nn.backbone import Decoder, Encoder
from mue.types import HeadsTrace, Trace


class Plain(nn.Module):
    """An encoder and a decoder that takes no code; it may have several heads at its end."""

    def __init__(self, encoder: Encoder, decoder: Decoder, heads: int = 1) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.heads = heads

    def forward(self, x: Float[Tensor, "b *x"]) -> Float[Tensor, "b k *y"]:
        """Logits of the answer of each head, in float32."""
        logits = self.decoder(self.encoder(x), x.new_zeros(len(x), 1, 0))[:, 0].float()
        return logits.unflatten(1, (self.heads, -1))


class Heads(nn.Module):
    """Answers that are not ranked: one per member, per head, or per dropout mask.

    One member with one head is the deterministic U-Net; several members are an ensemble; several
    heads on one member are the M-heads. With dropout, one member runs k times.
    """

    def __init__(self, members: Sequence[Plain], *, dropout: bool = False) -> None:
        super().__init__()
        self.axes = members[0].encoder.axes
        self.members = nn.ModuleList(members)
        self.dropout = dropout
        self.max_answers = None if dropout else sum(m.heads for m in members)

    def forward_passes(self, k: int) -> int:
        """One per member, or one per answer with dropout."""
        return k if self.dropout else len(self.members)

    def forward(self, x: Float[Tensor, "b *x"]) -> Float[Tensor, "b k *y"]:
        """Logits of every member's and head's answer."""
        return torch.cat([member(x) for member in self.members], dim=1)

    def propose(
        self,
        x: Float[Tensor, "b *x"],
        k: int,
        *,
        min_prob: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Proposal:
        """The first k answers, equally probable; with dropout, k samples."""
        del min_prob
        if not self.dropout:
            return equally_probable(self(x)[:, :k])
        seed = torch.initial_seed() if generator is None else generator.initial_seed()
        offset = 0 if generator is None else int(torch.randint(1 << 31, (), generator=generator))
        devices = [x.device] if x.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # dropout takes no generator
            torch.manual_seed((seed + offset) % (1 << 63))
            return equally_probable(torch.cat([self(x) for _ in range(k)], dim=1))


class HeadsLearner(nn.Module):
    """U-Nets and heads without a latent: every one answers."""

    def __init__(self, network: Heads) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> HeadsTrace:
        """The answers of every head; those of the raters enter only in the objective."""
        del y
        return HeadsTrace(self.network(x))

    def settle_(self, trace: Trace, across: Across = ALONE) -> None:
        """Nothing to do: there is no code book."""
