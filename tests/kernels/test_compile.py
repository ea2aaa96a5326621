"""A compiled step is the plain one. In a process of its own: checked types do not compile."""

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


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="there is no compiler")
def test_a_compiled_step_learns_what_the_plain_one_learns():
    subprocess.run([sys.executable, "-c", STEPS], check=True)
