import torch
from torch import nn

from mue.nn.replace import replace_modules


def test_a_copy_trains_the_parameters_of_the_original():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Sequential(nn.ReLU()))
    copy = replace_modules(plain, lambda m: nn.Tanh() if isinstance(m, nn.ReLU) else None)
    assert [id(p) for p in copy.parameters()] == [id(p) for p in plain.parameters()]
    assert [id(b) for b in copy.buffers()] == [id(b) for b in plain.buffers()]
    copy(torch.randn(4, 3)).sum().backward()
    assert all(p.grad is not None for p in plain.parameters())
    kinds = [[type(m) for m in module.modules()][-1] for module in (plain, copy)]
    assert kinds == [nn.ReLU, nn.Tanh]


def test_the_module_itself_may_be_replaced_after_its_children():
    seen: list[str] = []
    replace_modules(nn.Sequential(nn.ReLU()), lambda m: seen.append(type(m).__name__))
    assert seen == ["ReLU", "Sequential"]
