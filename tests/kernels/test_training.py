"""An accelerated training learns what the plain one learns."""

import dataclasses
import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mue.acceleration import accelerated
from mue.config.schema import Config
from mue.data.synthetic.toy import Bars
from mue.kernels import Pieces, accelerate
from mue.kernels import training as accelerating
from mue.kernels.plan import Plan
from mue.kernels.training import AcceleratedAdamW, CompiledAdamW
from mue.training.loop import fit
from mue.training.state import Training

CPU = torch.device("cpu")
TWENTY_STEPS = Path(__file__).with_name("twenty_steps.py")
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


def broken(*_, **__):
    """In the place of torch.compile."""

    def call(*_):
        raise RuntimeError("no such instruction\nand forty lines more")

    return call


def test_a_compiler_that_fails_is_said_in_a_line_and_training_goes_on(tiny, monkeypatch):
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


@pytest.mark.parametrize("adamw", [AcceleratedAdamW, CompiledAdamW])
def test_the_accelerated_optimizer_is_adamw_that_rounds_and_adds_to_its_buffers(
    tiny, monkeypatch, adamw
):
    """Not compiled here: that is done in test_compile.py."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    config = tiny("exact", clip=0.1, weight_decay=0.1, ema=0.9)
    training, plain = Training(config, CPU), Training(config, CPU)
    optimizer = adamw(training, accelerating.SideStreams())
    training.use_optimizer_(optimizer)
    for _ in range(3):
        for t in (training, plain):
            for p in t.parameters():
                (2 * p).square().sum().backward()
            t.update_(torch.tensor(0.9))
    torch.testing.assert_close(training.ema, plain.ema)
    torch.testing.assert_close(dict(optimizer.state), dict(plain.optimizer.state))
    for p, q, r in zip(training.parameters(), plain.parameters(), optimizer.rounded, strict=True):
        torch.testing.assert_close(p, q)
        assert torch.equal(r, p.to(torch.bfloat16))
        assert p.grad is not None
        assert not p.grad.any()


def test_an_optimizer_step_that_does_not_compile_is_said_in_a_line_and_taken(tiny, monkeypatch):
    monkeypatch.setattr(torch, "compile", broken)
    training, plain = Training(tiny("exact"), CPU), Training(tiny("exact"), CPU)
    training.use_optimizer_(CompiledAdamW(training, None))
    for t in (training, plain):
        for p in t.parameters():
            p.sum().backward()
    with pytest.warns(UserWarning, match=r"compile is off: it failed \(no such instruction\)$"):
        training.update_(torch.tensor(0.0))
    plain.update_(torch.tensor(0.0))
    torch.testing.assert_close(training.parameters(), plain.parameters())


def test_a_training_without_the_folder_is_plain_and_refuses_what_only_it_has(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "mue.kernels", None)
    training = Training(tiny(), CPU)
    assert accelerated(training, training.config.compute) is training
    with pytest.raises(ValueError, match=r"compute.compile is on, and mue.kernels is not inst"):
        accelerated(training, computed(tiny(), compile="on").compute)


@pytest.mark.parametrize("name", ["toy-vq", "toy"])
def test_twenty_steps_with_a_fault_differ_by_more_than_rounding(name):
    """What the comparison on a GPU allows, for faults injected into a plain training on a CPU."""
    script = runpy.run_path(str(TWENTY_STEPS))
    plain = script["train"](name, CPU, batch=8, data_seed=2)

    def gap(**options: Any) -> Any:
        run = script["train"](name, CPU, **{"batch": 8, "data_seed": 2, **options})
        return script["Gap"].between(plain, run)

    float32, other = gap(bfloat16="off"), gap(data_seed=3)
    assert not script["exceeded"](float32, float32, other)
    for fault, step in script["FAULTS"].items():
        assert script["exceeded"](gap(step=step), float32, other), fault


# --- on a GPU -------------------------------------------------------------------------------------


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["guess", "guess-exact"])
def test_twenty_steps_accelerated_are_twenty_plain_steps(name):
    """In a process of its own: checked types do not compile."""
    subprocess.run([sys.executable, str(TWENTY_STEPS), name], check=True)


TRAINED = """
import dataclasses, sys, torch
from mue.config.presets import preset
from mue.data.build import build_source
from mue.kernels import accelerate
from mue.training.loop import fit
from mue.training.state import Training

config = preset(sys.argv[1])
config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=6))
training = accelerate(Training(config, torch.device("cuda")))
assert training.make_step is not None
source = build_source(config.data, "train", seed=0, device=torch.device("cuda"))
assert all(step.terms.total.isfinite() for step in fit(training, source))
"""


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["probunet", "unet", "dropout", "ensemble", "mheads"])
def test_every_baseline_is_accelerated(kind):
    subprocess.run([sys.executable, "-c", TRAINED, f"guess-{kind}"], check=True)
