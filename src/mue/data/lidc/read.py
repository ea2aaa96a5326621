"""One door to LIDC-IDRI in any of its forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mue.data.lidc import crops, dicom, pickled, slices
from mue.data.lidc.archive import PICKLES, Meter, expand, is_archive, walk, weigh
from mue.data.lidc.gather import gather
from mue.data.lidc.options import Form, Options
from mue.data.prepared.item import Bad, Item
from mue.errors import MueError

_LOOKED_FOR = (
    "LIDC-IDRI-XXXX/nodule-N/{images,mask-0..3}/slice-K.png, {train,val,test}/images/….png with "
    "gt/…_l0.png to _l3.png, a .pickle, and .dcm with XML, in a folder or a .tar.gz"
)


def recognise(sources: Sequence[Path]) -> Form:
    """The form that all the sources are in, by the names of their files.

    Raises:
        ValueError: If a source is in no form, or they are in several.
    """
    forms: list[tuple[Path, Form]] = [(source, _form(source)) for source in expand(sources)]
    if not forms:
        raise MueError("name at least one file or folder to import")
    first, form = forms[0]
    for source, other in forms:
        if other != form:
            raise MueError(
                f"import sources of one form at a time: {first.name} is {form}, "
                f"{source.name} is {other}"
            )
    return form


def _form(source: Path) -> Form:
    if source.is_file() and source.suffix.lower() in PICKLES:
        return "pickle"
    form: Form | None = None
    broken = ""
    if source.is_dir() or is_archive(source):
        for file in walk(source, lambda name: 1 if _named(name) else 0, Meter(0, None)):
            if isinstance(file, Bad):
                broken = f" ({file.what} {file.why})"
            else:
                form = _named(file.name)
                break
    if form is None:
        raise MueError(
            f"{source} is not LIDC-IDRI in a form that is known{broken}; looked for {_LOOKED_FOR}"
        )
    return form


def _named(name: str) -> Form | None:
    """The form that a file belongs to. A slice lies in `images` too, so it is asked for first."""
    if slices.parse(name) is not None:
        return "slices"
    if crops.parse(name) is not None:
        return "crops"
    return "dicom" if name.lower().endswith(".dcm") else None


def read(
    sources: Sequence[Path],
    form: Form,
    options: Options,
    watch: Callable[[int, int], None] | None = None,
) -> Iterator[Item | Bad]:
    """The slices of LIDC-IDRI with the masks of their raters.

    Items come as they are found and in no order that means anything. What cannot be imported comes
    between them as a `Bad`; one with a key takes back an item that came before.

    Args:
        sources: Folders, archives or pickles, all of one form. A folder that directly holds
            archives stands for these.
        form: What `recognise` said.
        options: Crop size and grey values.
        watch: Called with the bytes of the sources read so far and in all.

    Raises:
        ValueError: If a source is malicious: a path that leaves its archive, a pickle that names
            a function.
    """
    sources = expand(sources)
    if options.window is not None and form != "dicom":
        raise MueError(
            f"`window` needs Hounsfield units, which only DICOM has; the source is {form}"
        )
    meter = Meter(weigh(sources) * (2 if form == "dicom" else 1), watch)
    if form == "slices":
        yield from gather(sources, slices.parse, options, meter)
    elif form == "crops":
        yield from gather(sources, crops.parse, options, meter)
    elif form == "pickle":
        yield from pickled.read(sources, options, meter)
    else:
        yield from dicom.read(sources, options, meter)
