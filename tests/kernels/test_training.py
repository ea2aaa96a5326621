"""An accelerated training learns what the plain one learns."""

import dataclasses
import functools
import importlib.util
import warnings

import pytest
import torch

from mue.acceleration import accelerated
from mue.config.presets import preset
from mue.config.schema import ComputeConfig, Config
from mue.data.build import build_source
from mue.data.synthetic.toy import Bars
from mue.kernels import Pieces, accelerate
from mue.kernels import training as accelerating
from mue.kernels.plan import Plan
from mue.kernels.training import AcceleratedAdamW
from mue.training.loop import fit
from mue.training.state import Training

CPU = torch.device("cpu")
NOTHING = Pieces(**dict.fromkeys((f.name for f in dataclasses.fields(Pieces)), False))
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def computed(config: Config, **compute) -> Config:
    return dataclasses.replace(config, compute=dataclasses.replace(config.compute, **compute))


def after(training: Training) -> dict[str, torch.Tensor]:
    list(fit(training, Bars()))
    return training.learner.state_dict()


def test_a_short_training_on_a_cpu_is_left_as_it_is(tiny):
    training = accelerate(Training(tiny(), CPU))
    assert training.make_step is None
    assert training.notes == ("float32",)


def test_a_compiler_that_fails_is_said_in_a_line_and_training_goes_on(tiny, monkeypatch):
    def broken(*_, **__):
        def call(*_):
            raise RuntimeError("no such instruction\nand forty lines more")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    config = tiny("exact", steps=3)
    plain = after(Training(config, CPU))
    monkeypatch.setattr(accelerating, "plan", lambda *_: Plan(False, compiled))
    training = accelerate(Training(config, CPU))
    with pytest.warns(UserWarning, match=r"compile is off: it failed \(no such instruction\)$"):
        found = after(training)
    assert all(torch.equal(plain[n], found[n]) for n in plain)
    training = accelerate(Training(computed(config, compile="on"), CPU))
    with pytest.raises(ValueError, match=r"compute.compile is on, and it failed: no such instr"):
        next(fit(training, Bars()))


compiled = dataclasses.replace(NOTHING, compiled=True)


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed")
def test_kernels_that_cannot_be_had_are_said_in_a_line(tiny, monkeypatch):
    blocks = dataclasses.replace(NOTHING, blocks=True)
    monkeypatch.setattr(accelerating, "plan", lambda *_: Plan(True, blocks))
    training = accelerate(Training(tiny(), CPU))
    assert training.make_step is None
    assert training.notes[0] == "bfloat16"
    assert training.notes[1].startswith("compute.kernels is off: it failed (No module")


def test_the_accelerated_optimizer_is_adamw_that_rounds_and_adds_to_its_buffers(tiny):
    training = Training(tiny("exact", clip=0.1, weight_decay=0.1), CPU)
    plain = Training(tiny("exact", clip=0.1, weight_decay=0.1), CPU)
    streams = accelerating.SideStreams()
    blocks = dataclasses.replace(NOTHING, blocks=True)
    optimizer = AcceleratedAdamW(training, blocks, streams)
    training.use_optimizer_(optimizer)
    for t in (training, plain):
        for p in t.parameters():
            (2 * p).sum().backward()
        t.update_(torch.tensor(0.9))
    for p, q, r in zip(training.parameters(), plain.parameters(), optimizer.rounded, strict=True):
        torch.testing.assert_close(p, q)
        assert torch.equal(r, p.to(torch.bfloat16))
        assert p.grad is not None
        assert not p.grad.any()


def test_a_training_without_the_folder_is_plain_and_refuses_what_only_it_has(tiny, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mue.kernels", None)
    training = Training(tiny(), CPU)
    assert accelerated(training) is training
    with pytest.raises(ValueError, match=r"compute.compile is on, and mue.kernels is not inst"):
        accelerated(Training(computed(tiny(), compile="on"), CPU))


# --- on a GPU -------------------------------------------------------------------------------------


def steps(name: str, *, pieces: Pieces | None) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of 20 steps, and the weights after them. The first may be compiled."""
    config, device = preset(name), torch.device("cuda")
    train = dataclasses.replace(config.train, steps=20, batch=32, lr=1e-3, warmup=0)
    compute = ComputeConfig(compile="off" if pieces is None else "on")
    config = dataclasses.replace(config, train=train, compute=compute)
    training = Training(config, device)
    if pieces is not None:
        training = accelerate(training, pieces=pieces)
        assert isinstance(training.make_step, functools.partial)
        assert training.make_step.keywords["pieces"].cuda_graph
        assert training.make_step.keywords["pieces"].blocks == (config.model.norm == "none")
    source = build_source(config.data, "train", seed=0, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a piece that fails is said in a warning
        losses = [step.terms.total.item() for step in fit(training, source)]
    return losses, training.export()


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["guess", "guess-exact"])
def test_twenty_steps_accelerated_are_twenty_plain_steps(name):
    """Side streams, prefetching and the graph would show as steps that differ by far."""
    plain, weights = steps(name, pieces=None)
    again, _ = steps(name, pieces=None)
    losses, found = steps(name, pieces=Pieces())
    noise = max(abs(a - b) / abs(a) for a, b in zip(plain, again, strict=True))
    for a, b in zip(plain, losses, strict=True):
        assert b == pytest.approx(a, rel=0.02 + 2 * noise)
    start = Training(preset(name), CPU).export()
    for key, value in weights.items():
        moved = (value.cpu() - start[key]).norm()
        assert (found[key] - value).norm().cpu() <= 0.35 * moved + 1e-4, key
