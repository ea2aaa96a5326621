import json
import struct
from pathlib import Path

import pytest
import safetensors.torch
import torch

from mue.runs.folder import RunError, load_config, origin, save_config
from mue.runs.weights import export_run, load_network, load_tensors, load_weights, save_tensors

CPU = torch.device("cpu")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_tensors_of_every_kind_come_back_to_the_bit(tmp_path):
    torch.manual_seed(0)
    tensors = {
        "conv": torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last),
        "part": torch.randn(6, 6)[:, ::2],
        "half": torch.randn(7).half(),
        "number": torch.tensor(3.5),
        "none": torch.zeros(0, 3),
        "bytes": torch.arange(9, dtype=torch.uint8),
        "odd": torch.tensor([float("nan"), float("inf"), -0.0]),
    }
    save_tensors(tmp_path / "weights.safetensors", tensors)
    found = load_tensors(tmp_path / "weights.safetensors")
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].numpy().tobytes() == tensor.contiguous().numpy().tobytes(), name


def test_the_same_tensors_are_the_same_file(tmp_path):
    """So that weights can be compared by a digest of the file."""
    tensors = {name: torch.randn(3) for name in "abc"}
    for i in range(8):
        save_tensors(tmp_path / str(i), tensors)
        tensors = dict(reversed(tensors.items()))
    assert len(set(files(tmp_path).values())) == 1


def _truncate(content: bytes) -> bytes:
    return content[:-1]


def _cut_in_the_header(content: bytes) -> bytes:
    return content[:40]


def _empty(_: bytes) -> bytes:
    return b""


def _longer(content: bytes) -> bytes:
    return content + b"\0"


def _flip(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def _length(content: bytes) -> bytes:
    return struct.pack("<Q", 1 << 60) + content[8:]


def _header(content: bytes, change) -> bytes:
    """The file with something changed in the JSON in front of the data."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def _without_digest(content: bytes) -> bytes:
    return _header(content, lambda h: h.pop("__metadata__"))


def _swapped(content: bytes) -> bytes:
    """Two tensors of one shape have changed places."""

    def change(header):
        a, b = [n for n in header if n != "__metadata__" and header[n]["shape"] == [4]][:2]
        header[a], header[b] = header[b], header[a]

    return _header(content, change)


DAMAGED = r"weights.safetensors must be a whole safetensors file, and it is truncated or damaged"


OTHER = r"weights.safetensors does not hold what was saved: its sha256 differs"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_truncate, DAMAGED),
        (_cut_in_the_header, DAMAGED),
        (_empty, DAMAGED),
        (_longer, DAMAGED),
        (_length, DAMAGED),
        (_flip, OTHER),
        (_without_digest, OTHER),
        (_swapped, OTHER),
    ],
)
def test_a_damaged_file_is_refused(folder, damage, words):
    path = folder / "weights.safetensors"
    damaged = damage(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    with pytest.raises(RunError, match=words):
        load_network(folder, CPU)


def test_a_folder_without_a_configuration_is_no_run(tmp_path):
    words = "is no run folder: it must hold config.json; make one by `mue train`"
    with pytest.raises(RunError, match=words):
        load_network(tmp_path, CPU)


def test_weights_that_are_missing_are_asked_for(folder):
    (folder / "weights.safetensors").unlink()
    words = "has no weights.safetensors: train it first, or name another folder"
    with pytest.raises(RunError, match=words):
        load_network(folder, CPU)


def test_weights_of_another_configuration_are_refused_before_they_are_read(
    tiny, folder, monkeypatch
):
    save_config(folder, tiny("exact", codebook={"size": 7}), "1")
    monkeypatch.setattr("mue.runs.weights._digest", None)  # what reading would call
    words = r"of another configuration .*'codebook.codes' must be \(7, 3\), got \(6, 3\); restore"
    with pytest.raises(RunError, match=words):
        load_network(folder, CPU)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("codebook.codes"), r"'codebook.codes' must be \(6, 3\), got absent"),
        (lambda t: t.update(extra=torch.zeros(2)), r"'extra' must be absent, got \(2,\)"),
    ],
)
def test_weights_too_few_or_too_many_are_refused(folder, change, words):
    tensors = load_tensors(folder / "weights.safetensors")
    change(tensors)
    save_tensors(folder / "weights.safetensors", tensors)
    with pytest.raises(RunError, match=words):
        load_network(folder, CPU)


def test_nothing_in_a_run_folder_is_pickled(folder):
    for name in ("weights.safetensors", "state.safetensors"):
        content = (folder / name).read_bytes()
        assert content[8:9] == b"{"  # eight bytes of length, then JSON
        safetensors.torch.load(content)  # every byte is accounted for
    for name, content in files(folder).items():
        assert not content.startswith((b"\x80", b"PK")), name  # pickle, and torch.save's zip
        if name.endswith((".json", ".jsonl")):
            content.decode("ascii")


# --- half precision -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int32])
def test_weights_of_other_kinds_of_numbers_are_refused(folder, dtype):
    tensors = {name: t.to(dtype) for name, t in load_weights(folder).items()}
    save_tensors(folder / "weights.safetensors", tensors)
    with pytest.raises(RunError, match=f"must be real numbers of 16, 32 or 64 bits, got {dtype}"):
        load_weights(folder)


def test_weights_in_half_precision_are_loaded_as_the_nearest_float16(folder, tmp_path):
    export_run(folder, tmp_path / "half")
    whole, half = load_network(folder, CPU), load_network(tmp_path / "half", CPU)
    for (name, a), b in zip(whole.named_parameters(), half.parameters(), strict=True):
        assert b.dtype == torch.float32
        assert torch.equal(a.half().float(), b), name
    sizes = [p.stat().st_size for p in (folder.parent / "half").glob("weights*")]
    assert sizes[0] < (folder / "weights.safetensors").stat().st_size
    assert load_config(tmp_path / "half") == load_config(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_in_other_precisions_are_loaded_in_float32(folder, dtype):
    tensors = {name: t.to(dtype) for name, t in load_weights(folder).items()}
    save_tensors(folder / "weights.safetensors", tensors)
    for name, p in load_network(folder, CPU).named_parameters():
        assert p.dtype == torch.float32
        assert torch.equal(p, tensors[name].float()), name


def test_a_loaded_network_is_evaluated_and_not_trained(folder):
    network = load_network(folder, CPU)
    assert not network.training
    assert not any(p.requires_grad for p in network.parameters())


@pytest.mark.parametrize("change", [{"shape": [3, 2]}, {"dtype": "I32"}])
def test_numbers_in_another_form_are_not_what_was_saved(tmp_path, change):
    """The same bytes, of which the header says something else."""
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"a": torch.arange(6.0).view(2, 3)})
    path.write_bytes(_header(path.read_bytes(), lambda h: h["a"].update(change)))
    with pytest.raises(RunError, match=OTHER):
        load_tensors(path)


def test_an_export_holds_what_was_changed_and_says_how(folder, tmp_path):
    before, changed = load_weights(folder), {"prior.bias": torch.arange(6.0)}
    about = {"calibration": {"inputs": 3}}
    export_run(folder, tmp_path / "out", half=False, changed=changed, about=about)
    after = load_weights(tmp_path / "out")
    assert after.keys() == before.keys()
    for name, value in (before | changed).items():
        assert torch.equal(after[name], value), name
    assert origin(tmp_path / "out") == origin(folder) | about
