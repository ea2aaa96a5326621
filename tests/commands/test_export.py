from pathlib import Path

import pytest
import torch

import mue
from mue.errors import MueError
from mue.runs.folder import RunError, save_config
from mue.runs.weights import load_tensors, save_tensors


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_model_in_half_precision_answers_almost_alike(folder, tmp_path):
    found = mue.export(folder, tmp_path / "new" / "half")
    out = found.folder
    assert found.files == tuple(sorted(out.iterdir()))
    assert set(files(out)) == {"config.json", "weights.safetensors", "log.jsonl"}
    torch.manual_seed(0)
    x = torch.rand(4, 1, 8, 8)
    whole, half = (mue.load(f, device="cpu").propose(x, k=6) for f in (folder, out))
    torch.testing.assert_close(half.prob, whole.prob, atol=2e-3, rtol=0)
    for row, code in zip(half.y, half.code, strict=True):
        assert len(set(code.tolist())) == 6
        assert row.isfinite().all()


def test_a_model_exported_whole_is_the_same_to_the_bit(folder, tmp_path):
    out = mue.export(folder, tmp_path / "whole", half=False).folder
    for name in ("config.json", "weights.safetensors"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()


def test_exporting_does_not_overwrite(folder):
    before = files(folder)
    with pytest.raises(MueError, match="must be empty or not exist yet, and it holds files"):
        mue.export(folder, folder)
    assert files(folder) == before


def test_weights_of_another_configuration_are_not_exported(tiny, folder, tmp_path):
    save_config(folder, tiny("exact", codebook={"size": 7}), "1")
    with pytest.raises(RunError, match="holds the weights of another configuration"):
        mue.export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def changed(folder: Path, value: float) -> None:
    """Put a value into the weights, with a digest that fits."""
    weights = load_tensors(folder / "weights.safetensors")
    next(iter(weights.values())).view(-1)[0] = value
    save_tensors(folder / "weights.safetensors", weights)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_neither_exported_nor_loaded(folder, tmp_path, value):
    changed(folder, value)
    for use in (mue.load, lambda f: mue.export(f, tmp_path / "out"), mue.evaluate):
        with pytest.raises(RunError, match=r"must hold finite numbers, and '.*' has NaN or inf"):
            use(folder)
    assert not (tmp_path / "out").exists()


def test_weights_beyond_half_precision_are_exported_whole_only(folder, tmp_path):
    changed(folder, 7e4)
    with pytest.raises(RunError, match="beyond the largest of half precision, 65504; take --no-h"):
        mue.export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    mue.export(folder, tmp_path / "out", half=False)


def test_a_full_disk_while_exporting_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("mue.runs.weights.write_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        mue.export(folder, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
