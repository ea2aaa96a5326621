import pytest
import torch

from mue.config.presets import preset
from mue.inference.predictor import Predictor
from mue.kernels import graphs as recording
from mue.kernels.graphs import Recorder
from mue.models.build import build_modal

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="recording needs a GPU")


@on_gpu
def test_a_recording_gives_what_the_work_gives():
    recorder, calls = Recorder(), []

    def work(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        calls.append(len(x))
        return 2 * x, x.sum(dim=0)

    kept = []
    for i in range(4):
        x = torch.full((3, 2), float(i), device="cuda")
        double, total = recorder(3, work, x)
        kept.append(double)
        assert torch.equal(double, 2 * x)
        assert total.tolist() == [3 * i, 3 * i]
    assert len(calls) == 3  # as it is, warming up, recording
    assert [k[0, 0].item() for k in kept] == [0, 2, 4, 6]


@on_gpu
def test_only_the_last_few_are_kept():
    recorder = Recorder(most=2)
    for n in (1, 2, 3, 1):
        x = torch.ones(n, device="cuda")
        assert recorder(n, lambda x: (x + 1,), x)[0].tolist() == [2.0] * n
    assert list(recorder._kept) == [3, 1]


@on_gpu
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", ["lidc-small", "lidc-exact"])
def test_answers_do_not_depend_on_being_recorded(name: str, half: bool):
    config = preset(name)
    torch.manual_seed(0)
    predictor = Predictor(build_modal(config).eval().cuda(), config, half=half)
    images = torch.rand(3, 1, config.model.c_in, 64, 64, device="cuda")
    first = [predictor.propose(image, 4) for image in images[:1]]
    again = [predictor.propose(image, 4) for image in images]
    for image, found in zip([images[0], *images], first + again, strict=True):
        alone = Predictor(predictor.network, config, half=half).propose(image, 4)
        torch.testing.assert_close(found.y, alone.y, atol=1e-2 if half else 1e-5, rtol=0)
        torch.testing.assert_close(found.prob, alone.prob, atol=1e-3 if half else 1e-5, rtol=0)
        assert torch.equal(found.code, alone.code)
    assert not torch.equal(again[0].y, again[1].y)


def test_what_cannot_be_recorded_is_done_as_it_comes(monkeypatch: pytest.MonkeyPatch):
    asked = []

    def fail(_: object, x: torch.Tensor) -> None:
        asked.append(x.tolist())
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(recording, "Recording", fail)
    recorder, one = Recorder(), torch.ones(1)
    assert recorder(1, lambda x: (x + 1,), one)[0].item() == 2
    with pytest.warns(UserWarning, match=r"not recorded: it failed \(operation .* capturing\)$"):
        assert recorder(1, lambda x: (x + 1,), 2 * one)[0].item() == 3
    assert recorder(1, lambda x: (x + 1,), 3 * one)[0].item() == 4
    assert asked == [[2.0]]  # once is enough


def test_nothing_is_recorded_where_nobody_wants_it():
    config = preset("toy")
    for record in (True, False):
        predictor = Predictor(build_modal(config).eval(), config, record=record)
        assert (predictor._recorder is not None) is record
