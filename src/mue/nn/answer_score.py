"""A score of answers by what they look like."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mue.nn.soft_iou import soft_iou


class AnswerScore(nn.Module):
    """Scores the answer of each code, for a prior that depends on the answers.

    A code decodes to something else for each input, and a linear layer on the input's features
    cannot know to what. The score is an MLP of these features and of three numbers of each mask:
    the logarithms of its area and of the entropy of its pixels, and its mean soft IoU distance to
    the other answers. It starts at 0, and the answers get no gradient from it.
    """

    def __init__(self, pooled: int, hidden: int = 32) -> None:
        super().__init__()
        self.input = nn.Linear(pooled, hidden)
        self.answer = nn.Linear(3, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(
        self, pooled: Float[Tensor, "b c"], logits: Float[Tensor, "b n *y"]
    ) -> Float[Tensor, "b n"]:
        """What is added to the logits of the codes, in float32."""
        z = logits.detach().flatten(2)
        y = z.sigmoid()
        area, entropy = y.sum(dim=2), (F.softplus(z) - y * z).sum(dim=2)
        unlike = 1 - soft_iou(y, y).mean(dim=2)
        seen = torch.stack([area.log1p() / 4, entropy.log1p() / 4, unlike], dim=2)
        hidden = self.answer(seen.to(pooled.dtype)) + self.input(pooled)[:, None]
        return self.score(hidden.relu())[:, :, 0].float()
