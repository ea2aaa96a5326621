"""Copies of a module that share its parameters, with some submodules replaced."""

import copy
from collections.abc import Callable

from torch import nn


def replace_modules(
    module: nn.Module, replacement: Callable[[nn.Module], nn.Module | None]
) -> nn.Module:
    """A copy of a module in which `replacement` has exchanged submodules, the innermost first.

    Parameters and buffers are those of the original, which itself is left as it is: its names stay
    the names of a checkpoint, and an optimizer of its parameters trains the copy too. None keeps a
    submodule.

    >>> import torch
    >>> plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> smooth = replace_modules(plain, lambda m: nn.SiLU() if isinstance(m, nn.ReLU) else None)
    >>> smooth[0].weight is plain[0].weight, type(smooth[1]).__name__, type(plain[1]).__name__
    (True, 'SiLU', 'ReLU')
    """
    shared = {id(t): t for t in [*module.parameters(), *module.buffers()]}

    def replaced(module: nn.Module) -> nn.Module:
        for name, child in list(module.named_children()):
            setattr(module, name, replaced(child))
        found = replacement(module)
        return module if found is None else found

    return replaced(copy.deepcopy(module, shared))
