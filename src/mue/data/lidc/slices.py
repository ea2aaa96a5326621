"""The slices layout: LIDC-IDRI-XXXX/nodule-N/{images,mask-0..3}/slice-K.png."""

import re

from mue.data.lidc.gather import Part

_NAME = re.compile(
    r"(?:.*/)?(?P<patient>[^/]+)/(?P<nodule>nodule-[^/]+)"
    r"/(?:images|mask-(?P<mask>\d{1,3}))/(?P<slice>slice-[^/]+)\.png",
    re.IGNORECASE,
)


def parse(name: str) -> Part | None:
    """What a file of the slices layout is, by its path.

    >>> parse("LIDC-IDRI-0003/nodule-1/mask-2/slice-0.png")
    Part(key=('LIDC-IDRI-0003', 'nodule-1', 'slice-0'), mask=2)
    >>> parse("LIDC-IDRI-0003/nodule-1/notes.txt")
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    key = (found["patient"], found["nodule"], found["slice"])
    return Part(key, None if found["mask"] is None else int(found["mask"]))
