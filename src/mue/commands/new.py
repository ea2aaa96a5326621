"""`mue data new`: an example of own data to learn from."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from mue.commands.progress import Progress
from mue.data.folder.description import DATASET
from mue.data.images.walk import files_below
from mue.data.synthetic.digits import MnistSplit
from mue.data.synthetic.two_digits import LABELS, RATER_WEIGHTS, two_digits
from mue.errors import MueError
from mue.runtime.atomic import new_folder

README = "README.md"
_DICOM = 3  # test images that are written as DICOM, too
_README = """\
# Two digits, three raters

{train} images to learn from (imagesTr, labelsTr) and {test} to test (imagesTs, labelsTs), as PNG:
two digits of MNIST side by side, each red or blue, 32 x 64 pixels. The masks have the values 0
(background), 1 (red ink) and 2 (blue ink). Three of the test images are also there as DICOM.

Three raters disagree. Rater r0 annotates both digits, r1 the left one alone, r2 the red ones alone.
They weigh 0.5, 0.3 and 0.2 (`rater_weights` in dataset.json), so the true probability of each
answer is known:

| left | right | both | left alone | right alone | none |
|---|---|---|---|---|---|
| red | red | 0.7 | 0.3 | | |
| red | blue | 0.5 | 0.5 | | |
| blue | red | 0.5 | 0.3 | 0.2 | |
| blue | blue | 0.5 | 0.3 | | 0.2 |

The layout is that of nnU-Net with a mask for each rater. Replace the files by your own, and
`labels`, `channel_names` and `file_ending` in dataset.json by what they hold. Leave
`rater_weights` out where raters weigh the same, and `known_probabilities`, which says that the
raters give all answers there are.

    mue data import folder {name} --out {name}-prepared
    mue data inspect {name}-prepared
    mue train auto --data {name}-prepared --out runs/{name}
    mue evaluate runs/{name} --data {name}-prepared
    mue predict runs/{name} {name}/imagesTs --out answers --format png nifti
    mue predict runs/{name} {name}/dicom --out segmentations --format dicom-seg

The digits are those of MNIST (Y. LeCun, C. Cortes), CC BY-SA 3.0.
"""


@dataclass(frozen=True, slots=True)
class NewDataResult:
    """The folder of an example, its files, and how many cases there are to learn from and test."""

    folder: Path
    files: tuple[Path, ...]
    train: int
    test: int


def new(
    out: str | Path,
    *,
    cases: int = 400,
    seed: int = 0,
    progress: Progress | None = None,
) -> NewDataResult:
    """Write an example: digits in colour, two classes, three raters who disagree by a known rule.

    A quarter of the cases is the test set, with digits of its own. The folder is in the layout that
    `mue data import folder` reads, with a README.

    Args:
        out: The new folder.
        cases: How many images.
        seed: Of the digits, their colours and places.
        progress: Called with a name, the number of cases written so far, and of all.
    """
    folder = Path(out)
    if not 20 <= cases <= 100_000:
        raise MueError(f"`cases` must be 20 to 100000, got {cases}")
    test = cases // 4
    parts: dict[str, tuple[MnistSplit, range]] = {
        "Tr": ("train", range(cases - test)),
        "Ts": ("test", range(cases - test, cases)),
    }
    with new_folder(folder) as made:
        for kind, (split, indices) in parts.items():
            images, labels = (made / f"{name}{kind}" for name in ("images", "labels"))
            images.mkdir()
            labels.mkdir()
            for i in indices:
                example = two_digits(split, seed, i)
                _save(example.image.transpose(1, 2, 0), images / f"case-{i:05}_0000.png")
                for rater, mask in enumerate(example.masks):
                    _save(mask, labels / f"case-{i:05}_r{rater}.png")
                if i in indices[:_DICOM] and kind == "Ts":
                    _save_dicom(example.image.transpose(1, 2, 0), made / "dicom", f"case-{i:05}")
                if progress is not None:
                    progress("cases", i + 1, cases)
        dataset = {
            "channel_names": {"0": "RGB"},
            "labels": LABELS,
            "numTraining": cases - test,
            "file_ending": ".png",
            "rater_weights": {f"r{i}": weight for i, weight in enumerate(RATER_WEIGHTS)},
            "known_probabilities": True,
        }
        (made / DATASET).write_text(json.dumps(dataset, indent=2) + "\n")
        text = _README.format(train=cases - test, test=test, name=folder.name)
        (made / README).write_text(text)
    return NewDataResult(folder, tuple(files_below(folder)), cases - test, test)


def _save_dicom(pixels: np.ndarray, folder: Path, name: str) -> None:
    """A secondary capture in colour; its identifiers depend on its name and pixels alone."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    folder.mkdir(exist_ok=True)
    source = [name, pixels.tobytes().hex()]
    study, series, image = (generate_uid(entropy_srcs=[*source, part]) for part in ("1", "2", "3"))
    head = FileMetaDataset()
    head.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    head.MediaStorageSOPInstanceUID = image
    head.TransferSyntaxUID = ExplicitVRLittleEndian
    data = FileDataset(name, {}, file_meta=head, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = SecondaryCaptureImageStorage, image
    data.StudyInstanceUID, data.SeriesInstanceUID = study, series
    data.PatientID = data.PatientName = name
    data.PatientBirthDate = data.PatientSex = data.AccessionNumber = data.StudyID = ""
    data.ReferringPhysicianName = data.StudyDate = data.StudyTime = ""
    data.Modality, data.ConversionType, data.Manufacturer = "OT", "SYN", "mue"
    data.SeriesNumber = data.InstanceNumber = 1
    data.PatientOrientation = ["L", "P"]
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PlanarConfiguration = 3, "RGB", 0
    data.Rows, data.Columns = pixels.shape[:2]
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 8, 8, 7, 0
    data.PixelData = np.ascontiguousarray(pixels).tobytes()
    data.save_as(folder / f"{name}.dcm", enforce_file_format=True)


def _save(pixels: np.ndarray, path: Path) -> None:
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer := io.BytesIO(), "PNG")
    path.write_bytes(buffer.getvalue())
