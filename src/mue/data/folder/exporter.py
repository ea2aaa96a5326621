"""Prepared images as a folder in nnU-Net's layout: the inverse of its import."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import tifffile
from jaxtyping import Shaped
from PIL import Image

from mue.data.folder.description import DATASET
from mue.data.images.image import Geometry
from mue.data.prepared.format import KNOWN
from mue.data.prepared.item import Row
from mue.data.prepared.open import Prepared
from mue.data.prepared.splits import Split, split_of
from mue.errors import MueError
from mue.runtime.atomic import new_folder

SPLITS_TABLE = "splits.csv"
_JOIN = "+"  # between patient, case and slice in the name of a file


@dataclass(frozen=True, slots=True)
class _Case:
    """What becomes one image: a picture, or all slices of a volume."""

    name: str
    rows: tuple[int, ...]
    split: Split
    geometry: Geometry | None


def export_cases(
    prepared: Prepared, out: Path, *, progress: Callable[[int, int], None] | None = None
) -> list[str]:
    """Write prepared images to a new folder, whole or not at all, without loss.

    Pictures are PNG, or TIFF where their values do not fit into PNG; volumes are NIfTI. Returns the
    options by which an import finds the same patients, slices and splits.
    """
    cases = _cases(prepared)
    weights, meta = _rater_weights(prepared), prepared.meta
    labels = meta.labels or ("background", "foreground")
    values = meta.values or tuple(range(len(labels)))
    by_class = np.array(values, np.min_scalar_type(values[-1]))
    axes = {g.axis for case in cases if (g := case.geometry) and g.shape[2] > 1}  # else it is 2
    if len(axes) > 1:
        raise MueError(f"{prepared.folder} has volumes cut along several axes; import these apart")
    volumes, fits_png = cases[0].geometry is not None, meta.dtype in ("uint8", "uint16")
    ending = ".nii.gz" if volumes else ".png" if fits_png else ".tif"
    colour = ending == ".png" and meta.channels == 3 and meta.dtype == "uint8"
    with new_folder(out) as folder:
        for kind in {"Ts" if case.split == "test" else "Tr" for case in cases}:
            for name in ("images", "labels"):
                (folder / f"{name}{kind}").mkdir()
        for done, case in enumerate(cases, start=1):
            kind = "Ts" if case.split == "test" else "Tr"
            image = np.stack([prepared.image(i) for i in case.rows], axis=1)
            masks = np.stack([prepared.masks_of(i) for i in case.rows], axis=1)
            for j, channel in enumerate([image] if colour else image[:, None]):
                path = folder / f"images{kind}" / f"{case.name}_{j:04}{ending}"
                _write_image(path, channel, case.geometry)
            for j, mask in enumerate(by_class[masks][:, None]):
                path = folder / f"labels{kind}" / f"{case.name}_r{j}{ending}"
                _write_image(path, mask, case.geometry)
            if progress is not None:
                progress(done, len(cases))
        ct = meta.normalize.kind == "window"
        names = ["RGB"] if colour else ["CT" if ct else str(j) for j in range(meta.channels)]
        dataset = {
            "channel_names": dict(enumerate(names)),
            "labels": dict(zip(labels, values, strict=True)),
            "numTraining": sum(case.split != "test" for case in cases),
            "file_ending": ending,
            **({"rater_weights": weights} if weights else {}),
            **({KNOWN: True} if prepared.known else {}),
        }
        (folder / DATASET).write_text(json.dumps(dataset, indent=2) + "\n")
        table = _splits_table(prepared, cases)
        if table:
            (folder / SPLITS_TABLE).write_text(table)
    parts = cases[0].name.count(_JOIN)
    patient = ["--patient", _JOIN.join(["{patient}", *"*" * parts])] if parts else []
    axis = [option for a in axes - {2} for option in ("--axis", str(a))]
    return patient + axis + (["--splits", str(out / SPLITS_TABLE)] if table else [])


def _cases(prepared: Prepared) -> list[_Case]:
    """The images and volumes, with the names of their files."""
    rows, volumes = prepared.rows, prepared.volumes()
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[row.key[:2] if row.key[:2] in volumes else row.key].append(i)
    plain = all(row.patient == row.case for row in rows)
    sliced = any(row.slice for row in rows if row.key[:2] not in volumes)
    found: list[_Case] = []
    for key, members in groups.items():
        row, geometry = rows[members[0]], volumes.get((key[0], key[1]))
        name = _name(row, plain=plain, sliced=sliced)
        if geometry is not None and len(members) != geometry.shape[geometry.axis]:
            raise MueError(
                f"{row.patient}/{row.case} has {len(members)} of the "
                f"{geometry.shape[geometry.axis]} slices of its volume; import it whole"
            )
        if (geometry is None) != (not volumes):
            raise MueError(f"{row.id} is a picture among volumes; import these apart")
        found.append(_Case(name, tuple(members), row.split or split_of(row.patient), geometry))
    return found


def _name(row: Row, *, plain: bool, sliced: bool) -> str:
    parts = [row.case] if plain else [row.patient, row.case]
    parts += [row.slice] if sliced else []
    for part in parts:
        if not part.isprintable() or "/" in part or _JOIN in part or part.startswith("."):
            raise MueError(f"{row.id!r} must be a name without / and {_JOIN} to become a file's")
    return _JOIN.join(parts)


def _rater_weights(prepared: Prepared) -> dict[str, float]:
    """The weight of each rater, the same in all images; none where they are equal."""
    q, raters = prepared.q.astype(np.float64), prepared.items["raters"]
    here = np.arange(q.shape[1]) < raters[:, None]
    if np.allclose(q, here / raters[:, None]):
        return {}
    weights = q[np.argmax(raters)]
    expected = np.where(here, weights, 0)
    if not (weights > 0).all() or not np.allclose(
        q * expected.sum(axis=1, keepdims=True), expected, rtol=1e-4
    ):
        raise MueError(
            f"{prepared.folder} has weights of raters that differ from image to image, and the "
            "layout has one positive weight for each rater"
        )
    return {f"r{j}": float(np.float32(w)) for j, w in enumerate(weights)}


def _splits_table(prepared: Prepared, cases: Sequence[_Case]) -> str:
    """The split of each case, where it is not what an import would say by itself."""
    tested = any(case.split == "test" for case in cases)

    def by_itself(case: _Case) -> Split:
        split = split_of(prepared.rows[case.rows[0]].patient)
        if not tested:
            return split
        return "test" if case.split == "test" else "val" if split == "val" else "train"

    if all(by_itself(case) == case.split for case in cases):
        return ""
    lines = [f"{case.name},{case.split}" for case in cases]
    return "\n".join(["case,split", *lines]) + "\n"


def _write_image(
    path: Path, pixels: Shaped[np.ndarray, "c d h w"], geometry: Geometry | None
) -> None:
    """Write a picture of one or three channels, or a volume of one, by the ending of its name."""
    if geometry is not None:
        volume = np.moveaxis(pixels[0], 0, 2 - geometry.axis)  # k j i
        image: Any = nibabel.Nifti1Image(volume.transpose(2, 1, 0), geometry.affine)
        image.header.set_xyzt_units("mm")
        nibabel.save(image, path)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, pixels[0, 0])
    else:
        shown = pixels[:, 0].transpose(1, 2, 0) if len(pixels) == 3 else pixels[0, 0]
        Image.fromarray(np.ascontiguousarray(shown)).save(path, compress_level=1)
