"""The crops of the Probabilistic U-Net: {train,val,test}/images/….png and gt/…_l0..l3.png."""

import re

from mue.data.lidc.gather import Part

_NAME = re.compile(
    r"(?:.*/)?(?:images/(?P<image>.+)|gt/(?P<truth>.+)_l(?P<mask>\d{1,3}))\.png", re.IGNORECASE
)
_STEM = re.compile(r"(?P<slice>.+?)(?:_(?P<crop>c\d+))?")
_PATIENT = re.compile(r"(?P<patient>LIDC-IDRI-\d+|[^_]+)_(?P<rest>.+)")


def parse(name: str) -> Part | None:
    """What a file of the crops is, by its path.

    The crops are numbered within a slice, not by lesion, so a `nodule` here is the crop's number
    and the same lesion may have another one in the next slice.

    >>> parse("train/gt/LIDC-IDRI-0001/z-105.0_c0_l3.png")
    Part(key=('LIDC-IDRI-0001', 'c0', 'z-105.0'), mask=3)
    >>> parse("train/images/LIDC-IDRI-0001_z-105.0_c1.png")
    Part(key=('LIDC-IDRI-0001', 'c1', 'z-105.0'), mask=None)
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    patient, _, stem = (found["image"] or found["truth"]).partition("/")
    if not stem:
        apart = _PATIENT.fullmatch(patient)
        patient, stem = (apart["patient"], apart["rest"]) if apart else (patient, patient)
    rest = _STEM.fullmatch(stem)
    assert rest is not None
    key = (patient, rest["crop"] or "c0", rest["slice"].replace("/", "_"))
    return Part(key, None if found["mask"] is None else int(found["mask"]))
