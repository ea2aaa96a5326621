import functools
import itertools
import os
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jaxtyping
import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image

from mue.cli.main import main
from mue.commands.train import train
from mue.config.schema import (
    AugmentConfig,
    CodebookConfig,
    ComputeConfig,
    Config,
    DataConfig,
    LatentConfig,
    ModelConfig,
    ObjectiveConfig,
    TrainConfig,
)
from mue.data.prepared.item import Item
from mue.data.prepared.splits import Split, split_of
from mue.data.prepared.write import write_prepared
from mue.data.synthetic.toy import Bars
from mue.nn.unet import Concatenate, Join, UNetDecoder, UNetEncoder

if os.environ.get("MUE_WITHOUT_KERNELS"):  # as if the folder were not there
    sys.modules["mue.kernels"] = None  # pyright: ignore[reportArgumentType]
    collect_ignore = ["kernels", "benchmarks"]

torch.set_num_threads(1)  # the tensors here are tiny: threads would only wait for one another
os.environ["OMP_NUM_THREADS"] = "1"  # nor in the processes that tests start

Tiny = Callable[..., Config]


@pytest.fixture
def real_data() -> Callable[..., list[Path]]:
    """Files of the real data sets by their names; without them the test is skipped."""
    folder = Path(os.environ.get("MUE_DATA", Path(__file__).parents[2] / "shared" / "data"))

    def find(*names: str) -> list[Path]:
        found = [folder / name for name in names]
        if not all(path.exists() for path in found):
            pytest.skip(f"needs {' and '.join(names)} in {folder}")
        return found

    return find


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    """Makes a configuration whose training takes milliseconds a step."""

    def make(
        method: Literal["vq", "exact", "probunet", "heads"] = "vq",
        *,
        codebook: dict[str, Any] | None = None,
        latent: dict[str, Any] | None = None,
        dropout: float = 0.0,
        **train: Any,
    ) -> Config:
        late = method == "probunet"  # its latent enters after the U-Net
        return Config(
            method=method,
            data=DataConfig(name="toy"),
            model=ModelConfig(
                levels=(4, 8),
                tail=(8,) if method in ("vq", "exact") else (),
                widths=(4,),
                code_level=3 if late else 1,
                readout=3 if late else 2,
                dropout=dropout,
            ),
            codebook=CodebookConfig(**{"size": 6, "width": 3, "decay": 0.9, **(codebook or {})}),
            latent=LatentConfig(**(latent or {})),
            objective=ObjectiveConfig(reconstruction=0.1),
            train=TrainConfig(
                **{
                    "steps": 12,
                    "batch": 8,
                    "lr": 1e-2,
                    "save_every": 6,
                    "log_every": 1,
                    "validate_inputs": 8,
                    **train,
                }
            ),
            compute=ComputeConfig(device="cpu"),
        )

    return make


@pytest.fixture(scope="session")
def trained(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as training leaves it. Read it; for anything else take `folder`."""
    return train(tiny("exact", ema=0.9), tmp_path_factory.mktemp("trained") / "run").folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run folder, to do with as a test likes."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


BASELINES: dict[str, dict[str, Any]] = {
    "probunet": {"method": "probunet"},
    "unet": {"method": "heads"},
    "dropout": {"method": "heads", "dropout": 0.5},
    "ensemble": {"method": "heads", "latent": {"members": 3}},
    "mheads": {"method": "heads", "latent": {"heads": 3}},
}


@pytest.fixture(scope="session")
def baselines(
    tiny: Tiny, trained: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A run of each baseline, and of `exact`, by name. Read only."""
    root = tmp_path_factory.mktemp("baselines")
    runs = {name: train(tiny(**what), root / name).folder for name, what in BASELINES.items()}
    return {**runs, "exact": Path(shutil.copytree(trained, root / "exact"))}


# --- networks -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallUNet:
    """Builds an encoder and a decoder of three levels with the same weights each time."""

    levels: tuple[int, ...] = (4, 5, 6)
    widths: tuple[int, ...] = (5, 8)
    code_width: int = 2

    def __call__(
        self, level: int = 1, join: type[Join] = Concatenate, c_out: int = 1, readout: int = 2
    ) -> tuple[UNetEncoder, UNetDecoder]:
        """The codes enter at `level`, by `join`."""
        torch.manual_seed(0)
        encoder = UNetEncoder(1, self.levels, (7,))
        decoder = UNetDecoder(
            self.levels,
            self.widths,
            c_out,
            join=functools.partial(join, code_width=self.code_width),
            level=level,
            readout=readout,
        )
        return encoder, decoder


@pytest.fixture(scope="session")
def unet() -> SmallUNet:
    """Makes small U-Nets, each call a new one."""
    return SmallUNet()


# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: object
    out: str
    err: str


@pytest.fixture
def unchecked():
    """Without the check of types, as users call it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def mue(capsys, tmp_path, monkeypatch):
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Said:
        capsys.readouterr()
        try:
            main([str(a) for a in arguments])
            code = 0
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


@pytest.fixture
def images(tmp_path) -> list[Path]:
    """Two pictures of bars, one.png and two.png in a folder."""
    paths = [tmp_path / "images" / f"{name}.png" for name in ("one", "two")]
    paths[0].parent.mkdir()
    for i, path in enumerate(paths):
        x = Bars(seed=i).case(torch.tensor([0])).x[0, 0]
        Image.fromarray((x * 255).round().byte().numpy()).save(path)
    return paths


# --- slices ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def patients() -> Callable[[Split, int], list[str]]:
    """The names of the first patients of a split."""

    def first(split: Split, count: int) -> list[str]:
        names = (f"LIDC-IDRI-{i:04}" for i in itertools.count(1))
        return list(itertools.islice((n for n in names if split_of(n) == split), count))

    return first


@pytest.fixture(scope="session")
def lesion() -> Callable[..., Item]:
    """Makes a slice: a disc of light that the more raters draw, the brighter it is."""

    def make(patient: str, nodule: int, k: int, *, side: int = 16) -> Item:
        random = np.random.default_rng([*patient.encode(), nodule, k])
        top, left = random.uniform(0.4 * side, 0.6 * side, 2)
        at = np.hypot(*(np.indices((side, side)) - np.array([top, left])[:, None, None]))
        annotated = random.integers(5)  # of four raters
        light = np.where(at < side / 3.5, 50 + 50 * annotated, 20) + random.uniform(0, 20, at.shape)
        radius = random.uniform(0.7, 1.3, 4)[:, None, None] * side / 3.5
        masks = (at < radius) & (np.arange(4) < annotated)[random.permutation(4), None, None]
        name = f"nodule-{nodule}", f"slice-{k}"
        return Item(
            patient=patient,
            case=name[0],
            slice=name[1],
            source="made up",
            image=light.clip(0, 255).astype(np.uint8)[None],
            masks=masks.astype(np.uint8),
        )

    return make


@pytest.fixture(scope="session")
def ct_slice() -> Callable[..., Any]:
    """Makes a slice of a CT of whole numbers, at a height in mm."""

    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    def make(pixels: np.ndarray, z: float, series: str, **more) -> Dataset:
        data = Dataset()
        data.file_meta = FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = CTImageStorage
        data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        data.SeriesInstanceUID, data.PatientID = series, "somebody"
        data.ImagePositionPatient, data.PixelSpacing = [-30.0, -20.0, z], [0.5, 0.75]
        data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        data.SliceThickness = 2.5
        data.Rows, data.Columns = pixels.shape
        data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
        data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
        data.PixelRepresentation = 0
        data.RescaleSlope, data.RescaleIntercept = 1, -1024
        for name, value in more.items():
            setattr(data, name, value)
        data.PixelData = pixels.astype("<u2").tobytes()
        return data

    return make


@pytest.fixture(scope="session")
def lesions(patients, lesion, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared slices of 4 patients of train, 3 of val and 3 of test, each with 4. Read only."""
    names = patients("train", 4) + patients("val", 3) + patients("test", 3)
    folder = tmp_path_factory.mktemp("lesions") / "prepared"
    items = [lesion(name, nodule, k) for name in names for nodule in (1, 2) for k in (9, 10)]
    write_prepared(items, folder, {"form": "made up"})
    return folder


@pytest.fixture(scope="session")
def lesion_config() -> Config:
    """A configuration that learns from slices in milliseconds a step."""
    return Config(
        method="exact",
        data=DataConfig(
            name="slices",
            answers=4,
            augment=AugmentConfig(rotate=180.0, scale=0.1, shift=0.05, flip=True, intensity=0.1),
        ),
        model=ModelConfig(
            levels=(8, 16),
            tail=(16,),
            widths=(8,),
            norm="group",
            code_level=3,
            join="scale-shift",
        ),
        codebook=CodebookConfig(size=6, width=4, spread=1.5),
        objective=ObjectiveConfig(
            reconstruction=0.05, energy=10.0, temperature=5.0, balance_until=0.3
        ),
        train=TrainConfig(steps=60, batch=8, lr=3e-2, ema=0.5, save_every=30, log_every=10),
        compute=ComputeConfig(device="cpu"),
    )


@pytest.fixture(scope="session")
def lesion_model(
    lesions: Path, lesion_config: Config, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run folder of a model that has learned from `lesions`. Read only."""
    return train(lesion_config, tmp_path_factory.mktemp("models") / "lesion", data=lesions).folder


@pytest.fixture(scope="session")
def lesion_baselines(
    lesions: Path,
    lesion_config: Config,
    lesion_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """A Probabilistic U-Net and an ensemble of two that have learned from `lesions`. Read only."""
    root, c = tmp_path_factory.mktemp("lesion_baselines"), lesion_config
    plain = replace(c.model, tail=(), code_level=1, join="concatenate")
    late = replace(plain, code_level=3, readout=3)
    made = {
        "probunet": replace(c, method="probunet", model=late),
        "ensemble": replace(c, method="heads", model=plain, latent=LatentConfig(members=2)),
    }
    runs = {name: train(config, root / name, data=lesions).folder for name, config in made.items()}
    return {**runs, "exact": lesion_model}


# --- processes ------------------------------------------------------------------------------------


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[int], Any]], list[Any]]:
    """Calls a function with each rank, in threads that reduce like so many processes."""
    here = threading.local()

    def call(world: int, work: Callable[[int], Any]) -> list[Any]:
        shared, barrier = list[Any]([None] * world), threading.Barrier(world, timeout=30)

        def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> None:
            shared[here.rank] = tensor.clone()
            barrier.wait()
            together = torch.stack(shared)
            barrier.wait()
            tensor.copy_(together.sum(dim=0) if op == dist.ReduceOp.SUM else together.amax(dim=0))

        def one(rank: int) -> Any:
            here.rank = rank
            return work(rank)

        for name, value in {
            "is_initialized": lambda: True,
            "get_rank": lambda: here.rank,
            "get_world_size": lambda: world,
            "all_reduce": all_reduce,
        }.items():
            monkeypatch.setattr(dist, name, value)
        with ThreadPoolExecutor(world) as pool:
            return list(pool.map(one, range(world)))

    return call
