"""A predictor whose answers a test knows."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mue.config.schema import Config
from mue.inference.predictor import Predictor
from mue.types import Hypotheses


class Oracle(Predictor):
    """A predictor that answers as its test says. `asked` has the k and `min_prob` of each call."""

    def __init__(
        self,
        predictor: Predictor,
        answer: Callable[[Tensor], Hypotheses],
        config: Config | None = None,
    ) -> None:
        super().__init__(predictor.network, config or predictor.config)
        self.answer = answer
        self.asked: list[tuple[int | None, float]] = []

    def propose(
        self,
        image: Any,
        k: int | None = None,
        *,
        min_prob: float = 0.0,
        generator: Any = None,
        normalized: bool = False,
        coverage: Any = None,
    ) -> Any:
        del generator, normalized, coverage
        self.asked.append((k, min_prob))
        return self.answer(image)
