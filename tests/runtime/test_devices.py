import subprocess
import sys

import pytest
import torch

import mue
from mue.runtime import devices
from mue.runtime.devices import choose_device, threads_for


@pytest.fixture(autouse=True)
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("preset", "shape", "threads"),
    [
        ("toy", (64, 1, 16, 16), 1),
        ("vector", (64, 2), 1),
        ("guess-quick", (32, 1, 14, 56), 3),
        ("guess-exact", (1, 1, 28, 112), 1),
        ("lidc-exact", (1, 1, 128, 128), 4),
        ("lidc-exact", (32, 1, 128, 128), 4),
    ],
)
def test_small_work_is_done_by_few_threads(preset, shape, threads):
    with threads_for(shape, mue.preset(preset).model.finest):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 4


def test_the_number_of_threads_is_back_after_an_error():
    with pytest.raises(ZeroDivisionError), threads_for((1, 1, 16, 16), 8):
        _ = 1 / 0
    assert torch.get_num_threads() == 4


def test_the_memory_of_a_container_is_what_it_may_use(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "_CONTAINER_LIMITS", ())
    machine = devices.physical_memory()
    assert machine is not None
    limits = [tmp_path / name for name in ("none", "max", "half", "all")]
    for path, text in zip(limits[1:], ("max\n", f"{machine // 2}\n", str(1 << 62)), strict=True):
        path.write_text(text)
    for count, wanted in ((2, machine), (3, machine // 2), (4, machine // 2)):
        monkeypatch.setattr(devices, "_CONTAINER_LIMITS", limits[:count])
        assert devices.physical_memory() == wanted


def test_the_package_works_without_the_module_resource():
    """Windows has none."""
    program = (
        "import sys; sys.modules['resource'] = None\n"
        "import mue, torch; from mue.runtime.devices import peak_memory\n"
        "print(peak_memory(torch.device('cpu')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused():
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="`device` is cuda, and torch finds no CUDA device here"):
        choose_device("cuda")


def test_a_process_without_a_device_of_its_own_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto", 1) == torch.device("cuda", 1)
    words = r"process 2 of this machine has no CUDA device of its own: torch finds 2; start as many"
    with pytest.raises(ValueError, match=words):
        choose_device("auto", 2)
