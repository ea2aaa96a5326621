"""Compiled is as plain. In processes of their own: checked types do not compile."""

import shutil
import subprocess
import sys

import pytest

STEPS = """
import dataclasses, warnings
import torch
from mue.config.schema import CodebookConfig, ComputeConfig, Config, DataConfig
from mue.config.schema import ModelConfig, TrainConfig
from mue.data.build import build_source
from mue.kernels import accelerate
from mue.training.state import Training
from mue.training.loop import fit

warnings.simplefilter("error", UserWarning)  # a compiler that fails is said in a warning
CPU = torch.device("cpu")
config = Config(
    method="vq",
    data=DataConfig(digit=14),
    model=ModelConfig(levels=(4, 8), tail=(8, 8), widths=(4,)),  # sides 14, 7, 4, 2: an odd one
    codebook=CodebookConfig(size=6, width=3),
    train=TrainConfig(steps=3, batch=4, lr=1e-2),
)

def learned(compile):
    compute = ComputeConfig(device="cpu", compile=compile)
    training = accelerate(Training(dataclasses.replace(config, compute=compute), CPU))
    assert (training.make_step is not None) == (compile == "on")
    before = {k: v.clone() for k, v in training.learner.state_dict().items()}
    for _ in fit(training, build_source(config.data, "train", seed=0, device=CPU)):
        pass
    return {k: v - before[k] for k, v in training.learner.state_dict().items()}

torch.testing.assert_close(learned("on"), learned("off"), rtol=1e-2, atol=1e-4)
"""

UPDATES = """
import dataclasses, functools, warnings
import torch
from mue.config.presets import preset
from mue.kernels.training import CompiledAdamW
from mue.training.state import Training

warnings.simplefilter("error", UserWarning)  # a compiler that fails is said in a warning
torch.compile = functools.partial(torch.compile, fullgraph=True)  # one graph, or it fails

def updated(ema, clip, optimizer=None):
    config = preset("toy")
    train = dataclasses.replace(config.train, ema=ema, clip=clip, weight_decay=0.1, lr=1e-2)
    training = Training(dataclasses.replace(config, train=train), torch.device("cpu"))
    if optimizer:
        training.use_optimizer_(optimizer(training, None))
    torch.manual_seed(0)
    for _ in range(4):
        for p in training.parameters():
            p.grad = torch.randn_like(p)
        training.update_(torch.tensor(ema))
    return training

for ema, clip in ((0.9, 1.0), (0.0, 0.0)):
    found, plain = updated(ema, clip, CompiledAdamW), updated(ema, clip)
    torch.testing.assert_close(found.parameters(), plain.parameters())
    torch.testing.assert_close(found.ema, plain.ema)
    torch.testing.assert_close(dict(found.optimizer.state), dict(plain.optimizer.state))
    for p, rounded in zip(found.parameters(), found.optimizer.rounded, strict=True):
        assert torch.equal(p.to(torch.bfloat16), rounded)
"""

TERMS = """
import torch
from mue.config.presets import preset
from mue.data.synthetic.toy import Bars
from mue.kernels.compiled import compiled_or_plain
from mue.training.step import TrainStep
from mue.training.state import Training

def never(error):
    raise error

for name in ("toy-unet", "toy-mheads"):  # a reconstruction and no other term
    training = Training(preset(name), torch.device("cpu"))
    plain, step = (TrainStep(training, Bars()) for _ in range(2))
    step.terms = compiled_or_plain(step.terms, never)
    _, terms = step.losses(0, step.prepare_(0))
    assert terms.total.requires_grad
    _, expected = plain.losses(0, plain.prepare_(0))
    torch.testing.assert_close(terms.total, expected.total)
"""
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="there is no compiler"
)


@needs_compiler
def test_a_compiled_step_learns_what_the_plain_one_learns():
    subprocess.run([sys.executable, "-c", STEPS], check=True)


@needs_compiler
def test_a_compiled_update_is_that_of_the_plain_optimizer():
    subprocess.run([sys.executable, "-c", UPDATES], check=True)


@needs_compiler
def test_a_compiled_objective_of_one_term_has_a_gradient():
    subprocess.run([sys.executable, "-c", TERMS], check=True)
