import pytest
import torch

from mue.config.schema import DataConfig
from mue.data.build import build_source
from mue.errors import MueError
from mue.inference.load import load


@pytest.mark.parametrize(
    ("name", "side"), [("exact", 8192), ("exact", 1024), ("probunet", 1024), ("probunet", 8192)]
)
def test_an_image_beyond_the_memory_is_refused_before_it_is_full(
    baselines, monkeypatch, name, side
):
    """In strips an image takes less memory than in one pass, and either is bounded."""
    predictor, x = load(baselines[name], device="cpu"), torch.zeros(1, 1, side, side)
    maps = 2 if (name, side) == ("exact", 8192) else 7
    needed = 4 * maps * predictor.config.model.levels[0] * side**2
    monkeypatch.setattr("mue.inference.forward.physical_memory", lambda: needed - 1)
    with pytest.raises(MueError, match=f"1 image.* of {side} x {side} pixels take about .* GiB"):
        predictor.propose(x, k=1)


@pytest.mark.parametrize("model", ["guess", "guess-exact", "guess-probunet"])
def test_half_precision_gives_nearly_the_same_answers_in_float32(model):
    x = (
        build_source(DataConfig(), "test", seed=0, device=torch.device("cpu"))
        .case(torch.arange(2))
        .x
    )
    whole, half = (load(model, device="cpu", half=h).propose(x, 4) for h in (False, True))
    assert half.y.dtype == half.prob.dtype == torch.float32
    torch.testing.assert_close(half.prob, whole.prob, atol=0.02, rtol=0)
    near = half.code == whole.code
    assert near.float().mean() > 0.5  # codes of equal probability may change places
    assert (half.y - whole.y)[near].abs().mean() < 0.01
    assert not load(model, device="cpu").half
