from pathlib import Path

import pytest
import torch

import mue
from mue.training.checkpoint import RunError, save_config


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
    with pytest.raises(RunError, match="must be empty or not exist yet, and it holds files"):
        mue.export(folder, folder)
    assert files(folder) == before


def test_weights_of_another_configuration_are_not_exported(tiny, folder, tmp_path):
    save_config(folder, tiny("exact", codebook={"size": 7}), "1")
    with pytest.raises(RunError, match="holds the weights of another configuration"):
        mue.export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
