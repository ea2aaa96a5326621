"""The numbers of a step as they are logged, reduced over all processes."""

import math

from mue.runs.log import LogRecord, NonFiniteError
from mue.runtime import collectives
from mue.runtime.devices import peak_memory
from mue.training.loop import Step


def measure(step: Step, seconds: float) -> LogRecord:
    """The numbers of a step, reduced over all processes. Synchronizes with the device.

    A loss that is not finite, at this step or before, raises a NonFiniteError.
    """
    values = {name: collectives.all_mean(v).item() for name, v in step.terms.by_name().items()}
    non_finite, used = step.non_finite.clone(), step.used.clone()
    collectives.all_sum_(non_finite, used)
    if non_finite.item() > 0:
        term = next((k for k, v in values.items() if not math.isfinite(v)), "total")
        raise NonFiniteError(
            f"the loss is not finite at step {step.number}, or was not shortly before: "
            f"its term {term!r} is {values[term]}"
        )
    return LogRecord(
        step=step.number,
        **values,
        codes=int((used > 0).sum()),
        lr=step.lr,
        seconds=round(seconds, 3),
        memory=peak_memory(step.used.device) >> 20,
    )
