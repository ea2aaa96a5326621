"""The finite latent space."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mue.errors import MueError
from mue.nn.across import ALONE, Across


@dataclass(frozen=True, slots=True)
class Quantized:
    """What became of a batch of encodings.

    Attributes:
        code: The nearest code, with the gradient of the encoding (straight-through).
        index: Its row in the code book.
        distance: Squared distance of the encoding to its code.
    """

    code: Float[Tensor, "b d"]
    index: Int[Tensor, " b"]
    distance: Float[Tensor, " b"]


class Codebook(nn.Module):
    """n codes in R^d: the modes that an answer may take.

    `exact` learns them by gradient, `vq` moves them with `Usage.update_`; `learned` says which.
    They start as independent normal numbers of deviation `spread`: wide enough apart that the
    answers they lead to differ from the first step on.
    """

    def __init__(self, n: int, d: int, *, learned: bool, spread: float = 1.0) -> None:
        super().__init__()
        if n < 1:
            raise MueError(f"`n`, the number of codes, must be at least 1, got {n}")
        if d < 1:
            raise MueError(f"`d`, the width of a code, must be at least 1, got {d}")
        codes = torch.empty(n, d)
        if not codes.is_meta:  # there, torch would import modules for a second
            codes.normal_().mul_(spread)
        self.codes = nn.Parameter(codes, requires_grad=learned)

    def forward(self, e: Float[Tensor, "b d"]) -> Quantized:
        """Replace each encoding by its nearest code [paper, section `method`].

        Distances decide an index, so they are taken in float32 whatever the encoder computes in.
        """
        with torch.autocast(e.device.type, enabled=False):
            e = e.float()
            codes = self.codes.detach()
            centre = codes[0]  # a common offset would drown the differences in rounding
            from_centre = codes - centre
            distance = from_centre.square().sum(dim=1) - 2 * (e.detach() - centre) @ from_centre.T
            index = distance.argmin(dim=1)
            code = codes[index]
            return Quantized(e + (code - e).detach(), index, (e - code).square().sum(dim=1))


class Usage(nn.Module):
    """How many encodings each code has had lately, and how the codes follow them.

    The paper's moving average keeps two running sums and reads the codes off their ratio:

        count_i <- g count_i + (1 - g) |{j : e_j goes to i}|
        total_i <- g total_i + (1 - g) sum{e_j : e_j goes to i}
        code_i   = total_i / count_i

    Putting total = count code into the second line leaves the code and one sum:

        code_i <- code_i + (1 - g) sum{e_j - code_i : e_j goes to i} / count_i

    So nothing is kept twice, and a code that nobody uses stays where it is: with two sums it would
    be 0/0 once both have underflowed, after some 10,000 steps.
    """

    count: Tensor

    def __init__(self, n: int, *, decay: float = 0.99) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise MueError(f"`decay` must be in [0, 1), got {decay}")
        self.decay = decay
        self.register_buffer("count", torch.ones(n))

    @torch.no_grad()
    def update_(
        self,
        codes: Tensor,
        e: Float[Tensor, "b d"],
        index: Int[Tensor, " b"],
        across: Across = ALONE,
    ) -> None:
        """Move each code towards the encodings assigned to it, those of the whole batch."""
        hits = torch.zeros_like(self.count).index_add_(0, index, torch.ones_like(e[:, 0]))
        sums = torch.zeros_like(codes).index_add_(0, index, e)
        across.sum_(hits, sums)
        self.count.lerp_(hits, 1 - self.decay)
        pull = (1 - self.decay) / self.count.clamp_min(torch.finfo(self.count.dtype).tiny)
        codes += pull[:, None] * (sums - hits[:, None] * codes)
