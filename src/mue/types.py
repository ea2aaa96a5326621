"""The values that flow from data to network to metric to page.

Axes, used throughout: b batch, k hypotheses kept, n codes, d code width, r raters, m true modes,
c h w channels, height and width. `*x` and `*y` are the axes of one input and of one answer:
c h w for images, c for vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.errors import MueError
from mue.metrics.modes import entropy


@dataclass(frozen=True, slots=True)
class Pair:
    """Inputs, each with one answer or, where several raters are used in one step, with r.

    Attributes:
        x: The inputs.
        y: Answers to each of them, in no order.
    """

    x: Float[Tensor, "b *x"]
    y: Float[Tensor, "b r *y"]


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs with every answer that is known and its weight: what a prediction is judged by.

    Attributes:
        x: The inputs.
        ys: The known answers.
        q: Weight of each answer; sums to 1 for each input.
        id: A name for each input, unique within its data set.
        group: What a report may group by: the category of a guessing game, the patient of a scan.
        known: Whether `ys` are all answers there are and `q` their true probabilities, and not
            what some raters answered.
        patients: Whether `group` is the patient; then inputs of one are not independent.
    """

    x: Float[Tensor, "b *x"]
    ys: Float[Tensor, "b m *y"]
    q: Float[Tensor, "b m"]
    id: tuple[str, ...]
    group: tuple[str, ...]
    known: bool = False
    patients: bool = False

    def __post_init__(self) -> None:
        """Refuse weights that are no distribution, and names that do not fit the inputs."""
        total = self.q.sum(dim=1)
        if (self.q < 0).any() or not torch.allclose(total, torch.ones_like(total), atol=1e-4):
            raise MueError("`q` must be non-negative and sum to 1 for each input of a Case")
        if not len(self.id) == len(self.group) == len(self.x):
            raise MueError(
                f"a Case of {len(self.x)} inputs needs as many `id` and `group`, "
                f"got {len(self.id)} and {len(self.group)}"
            )

    def cpu(self) -> Case:
        """The same cases in the memory of the host."""
        return replace(self, x=self.x.cpu(), ys=self.ys.cpu(), q=self.q.cpu())


@dataclass(frozen=True, slots=True)
class VqTrace:
    """What the networks made of a `Pair` when each answer chose its nearest code.

    Attributes:
        log_prior: log p(c | x).
        logits: D(c, x) for the code of each answer.
        encoding: e = E(x, y).
        index: Row of the nearest code.
        distance: Squared distance of the encoding to its code.
    """

    log_prior: Float[Tensor, "b n"]
    logits: Float[Tensor, "b r *y"]
    encoding: Float[Tensor, "b r d"]
    index: Int[Tensor, "b r"]
    distance: Float[Tensor, "b r"]


@dataclass(frozen=True, slots=True)
class ExactTrace:
    """What the network made of a `Pair` when every code was decoded: log p(c | x) and D(c, x)."""

    log_prior: Float[Tensor, "b n"]
    logits: Float[Tensor, "b n *y"]


@dataclass(frozen=True, slots=True)
class LatentTrace:
    """What a network with a Gaussian latent made of a `Pair`.

    Attributes:
        logits: D(z, x) for a latent sampled from the posterior of each answer.
        divergence: KL of that posterior and the prior, in nats.
    """

    logits: Float[Tensor, "b r *y"]
    divergence: Float[Tensor, "b r"]


@dataclass(frozen=True, slots=True)
class HeadsTrace:
    """What networks or heads without a latent made of a `Pair`: the answer of each."""

    logits: Float[Tensor, "b k *y"]


Trace = VqTrace | ExactTrace | LatentTrace | HeadsTrace


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of the objective, each with its weight in it.

    Attributes:
        prior: Cross entropy of the prior against the codes of the answers; with a Gaussian latent
            the divergence of its posterior and prior.
        reconstruction: Negative log-likelihood of the answers.
        commitment: How far the encodings are from their codes; 0 for `exact`.
        energy: Energy distance of all answers to the raters', without its constant; 0 for `vq`.
    """

    prior: Float[Tensor, ""]
    reconstruction: Float[Tensor, ""]
    commitment: Float[Tensor, ""]
    energy: Float[Tensor, ""]

    @property
    def total(self) -> Float[Tensor, ""]:
        """What is minimised."""
        return self.prior + self.reconstruction + self.commitment + self.energy

    def detached(self) -> Terms:
        """The same numbers without what their gradients need."""
        return Terms(*(t.detach() for t in self._values()))

    @classmethod
    def mean(cls, parts: Sequence[Terms]) -> Terms:
        """The terms of a batch that was computed in parts of the same size."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(p._values() for p in parts), strict=True)
        return cls(*(torch.stack(t).mean(dim=0) for t in columns))

    def _values(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))

    def by_name(self) -> dict[str, Tensor]:
        """Each term by its name, the total last."""
        names = [f.name for f in fields(self)]
        return {name: getattr(self, name) for name in (*names, "total")}


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """Answers to a batch of inputs, the most probable first.

    Attributes:
        y: The answers: for masks and images the probability of each pixel.
        prob: p(code | x) of each answer, descending along k; sums to at most 1.
        code: Row of the code book behind each answer, or -1 for a model without codes.
    """

    y: Float[Tensor, "b k *y"]
    prob: Float[Tensor, "b k"]
    code: Int[Tensor, "b k"]

    def __post_init__(self) -> None:
        """Refuse probabilities in a wrong order, or that are none."""
        self.check()

    @classmethod
    def unchecked(cls, y: Tensor, prob: Tensor, code: Tensor) -> Hypotheses:
        """The same without the checks, which wait for the device, for who checks or sorts later."""
        made = object.__new__(cls)
        for field, value in zip(fields(cls), (y, prob, code), strict=True):
            object.__setattr__(made, field.name, value)
        return made

    def check(self) -> None:
        """Refuse what is not valid."""
        if not (self.prob >= 0).all():
            raise MueError("`prob` must be a number of at least 0 for each answer")
        if (self.prob[:, 1:] > self.prob[:, :-1]).any():
            raise MueError("`prob` must be descending along k; sort before building Hypotheses")
        total = self.prob.sum(dim=1).amax()
        if total > 1 + 1e-4:
            raise MueError(f"`prob` must sum to at most 1 for each input, got {total:.4f}")

    def cpu(self) -> Hypotheses:
        """The same answers in the memory of the host."""
        return Hypotheses(self.y.cpu(), self.prob.cpu(), self.code.cpu())

    @property
    def rest(self) -> Float[Tensor, " b"]:
        """Probability left to the answers that were not kept."""
        return (1 - self.prob.sum(dim=1)).clamp_min(0)

    def top(self, k: int) -> Hypotheses:
        """The k most probable answers."""
        return Hypotheses(self.y[:, :k], self.prob[:, :k], self.code[:, :k])

    def normalized(self) -> Hypotheses:
        """Return the same answers with `prob` summing to 1, as the metrics need.

        >>> h = Hypotheses(torch.zeros(1, 2, 1, 4, 4), torch.tensor([[0.6, 0.2]]),
        ...                torch.tensor([[7, 3]]))
        >>> h.normalized().prob
        tensor([[0.7500, 0.2500]])
        """
        return Hypotheses(self.y, self.prob / self.prob.sum(dim=1, keepdim=True), self.code)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Hypotheses:
        """Sample n answers with replacement, each by its probability among those kept.

        >>> h = Hypotheses(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[1.0, 0.0]]),
        ...                torch.tensor([[0, 1]]))
        >>> h.sample(3).y.flatten(), h.sample(3).prob
        (tensor([1., 1., 1.]), tensor([[0.3333, 0.3333, 0.3333]]))
        """
        if n < 1:
            raise MueError(f"`n`, the number of samples, must be at least 1, got {n}")
        pick = torch.multinomial(self.prob, n, replacement=True, generator=generator)
        rows = torch.arange(len(pick), device=pick.device)[:, None]
        prob = torch.full_like(self.prob[:, :1], 1 / n).repeat(1, n)
        return Hypotheses(self.y[rows, pick], prob, self.code.gather(1, pick))

    def expected(self) -> Float[Tensor, "b *y"]:
        """The mean of the answers, weighted by their probability among those kept."""
        weight = self.prob / self.prob.sum(dim=1, keepdim=True)
        return torch.einsum("bk,bk...->b...", weight.to(self.y.dtype), self.y)

    def entropy(self) -> Float[Tensor, " b"]:
        """Entropy of the answers in nats; `rest` counts as one more answer.

        It is exact when nothing was left out and a lower bound otherwise.

        >>> h = Hypotheses(torch.zeros(1, 2, 1), torch.tensor([[0.5, 0.5]]),
        ...                torch.tensor([[0, 1]]))
        >>> h.entropy()
        tensor([0.6931])
        """
        return entropy(self.prob)
