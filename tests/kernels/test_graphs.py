import pytest
import torch

from mue.config.presets import preset
from mue.inference.predictor import Predictor
from mue.kernels import accelerate
from mue.kernels.graphs import CudaGraph
from mue.models.build import build_modal
from mue.types import Hypotheses

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


def never(error: RuntimeError) -> None:
    raise AssertionError from error


@on_gpu
@pytest.mark.gpu
def test_a_replay_gives_what_the_work_gives():
    x, calls = torch.zeros(3, 2, device="cuda"), []

    def work() -> torch.Tensor:
        calls.append(len(x))
        return 2 * x

    graph = CudaGraph(work, x.device, warmup=1, on_failure=never)
    for i in range(4):
        x.fill_(i)
        assert graph().tolist() == [[2.0 * i] * 2] * 3
    assert len(calls) == 2  # once eagerly, once while it is captured


@on_gpu
@pytest.mark.gpu
def test_what_cannot_be_captured_runs_eagerly(monkeypatch: pytest.MonkeyPatch):
    def fail(_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(CudaGraph, "_capture", fail)
    x, failures = torch.ones(1, device="cuda"), []
    graph = CudaGraph(
        lambda: x + 1, x.device, warmup=1, on_failure=lambda error: failures.append(str(error))
    )
    assert [graph().item() for _ in range(3)] == [2.0] * 3
    assert failures == ["operation not permitted when stream is capturing"]


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", ["lidc-small", "lidc-exact"])
def test_answers_do_not_depend_on_being_captured(name: str, half: bool):
    config = preset(name)
    torch.manual_seed(0)
    predictor = Predictor(build_modal(config).eval().cuda(), config, half=half)
    fast = accelerate(predictor)
    assert fast is not predictor
    images = torch.rand(3, 1, config.model.c_in, 64, 64, device="cuda")
    for image in [images[0], *images]:
        found, alone = fast.propose(image, 4), predictor.propose(image, 4)
        torch.testing.assert_close(found.y, alone.y, atol=1e-2 if half else 1e-5, rtol=0)
        torch.testing.assert_close(found.prob, alone.prob, atol=1e-3 if half else 1e-5, rtol=0)
        assert torch.equal(found.code, alone.code)


@on_gpu
@pytest.mark.gpu
def test_modes_do_not_depend_on_being_captured():
    config = preset("toy")
    torch.manual_seed(0)
    predictor = Predictor(build_modal(config).eval().cuda(), config)
    fast = accelerate(predictor)
    for seed in (0, 1, 2, 3):
        g = torch.Generator("cuda").manual_seed(seed)
        masks = (torch.rand(5, 6, 1, 8, 8, device="cuda", generator=g) > 0.6).float()
        prob = torch.rand(5, 6, device="cuda", generator=g).softmax(dim=1)
        prob, code = prob.sort(dim=1, descending=True)
        h = Hypotheses(masks, prob, code)
        found, alone = fast.group(h), predictor.group(h)
        assert torch.equal(found.tree.parent, alone.tree.parent)
        assert torch.equal(found.tree.height, alone.tree.height)
        assert torch.equal(found.prob, alone.prob)


@on_gpu
@pytest.mark.gpu
def test_only_the_graphs_used_last_are_kept():
    config = preset("toy")
    predictor = accelerate(Predictor(build_modal(config).eval().cuda(), config))
    for k in [1, 2, 3, 4, 5, 6]:
        for b in (1, 2):
            predictor.propose(torch.rand(b, 1, 16, 16, device="cuda"), k)
    kept = list(vars(predictor)["_entries"])
    found = [(shape[0], k) for _, k, shape in kept]
    assert found == [(b, k) for k in (3, 4, 5, 6) for b in (1, 2)]


def test_on_a_cpu_a_predictor_is_left_as_it_is():
    config = preset("toy")
    predictor = Predictor(build_modal(config).eval(), config)
    assert accelerate(predictor) is predictor
