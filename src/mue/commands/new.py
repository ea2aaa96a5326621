"""`mue data new`: an example of own data to learn from."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from mue.atomic import new_folder
from mue.commands.report import Progress
from mue.data.folder.layout import DATASET
from mue.data.synthetic.digits import MnistSplit
from mue.data.synthetic.two_digits import LABELS, RATER_WEIGHTS, two_digits
from mue.errors import MueError

README = "README.md"
_README = """\
# Two digits, three raters

{train} images to learn from (imagesTr, labelsTr) and {test} to test (imagesTs, labelsTs), as PNG:
two digits of MNIST side by side, each red or blue, 32 x 64 pixels. The masks have the values 0
(background), 1 (red ink) and 2 (blue ink).

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
    mue predict runs/{name} {name}/imagesTs --out answers

The digits are those of MNIST (Y. LeCun, C. Cortes), CC BY-SA 3.0.
"""


@dataclass(frozen=True, slots=True)
class NewDataResult:
    """The folder of an example, and how many cases it has to learn from and to test."""

    folder: Path
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
    return NewDataResult(folder, cases - test, test)


def _save(pixels: np.ndarray, path: Path) -> None:
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer := io.BytesIO(), "PNG")
    path.write_bytes(buffer.getvalue())
