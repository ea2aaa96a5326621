"""Which files of a folder are the images and masks of which case.

nnU-Net's layout, with a mask for each rater, in any of the formats that are read:

    dataset.json                 channel_names, labels, file_ending; rater_weights if they differ
    imagesTr/CASE_0000.png       an image; _0001 and so on for further channels
    labelsTr/CASE_r0.png         the mask of a rater; CASE.png is that of the only one
    imagesTs, labelsTs           the same for the test set, where there is one

or whatever two patterns say, such as `{case}/image.nii.gz` and `{case}/seg{rater}.nii.gz`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mue.data.folder.description import Description
from mue.data.images.formats import image_ending
from mue.data.images.walk import walk
from mue.data.order import natural
from mue.data.prepared.item import Rejected
from mue.data.prepared.splits import Split
from mue.errors import MueError

_FIELD = re.compile(r"\{(\w*)\}|(\*\*?)")
_GROUP = re.compile(r"\(.*?\)")


@dataclass(frozen=True, slots=True)
class CaseFiles:
    """The files of a case, by their names relative to the source."""

    case: str
    patient: str
    split: Split | None
    images: tuple[str, ...]  # one, or one for each channel
    masks: tuple[str, ...]  # one for each rater
    weights: tuple[float, ...] | None  # of the raters

    @property
    def name(self) -> str:
        """What a message calls it: with its patient, where its own name does not begin so."""
        return self.case if self.case.startswith(self.patient) else f"{self.patient}/{self.case}"


def find_by_layout(source: Path, description: Description) -> list[CaseFiles | Rejected]:
    """The cases of a folder in nnU-Net's layout."""
    if not (source / "imagesTr").is_dir():
        raise MueError(
            f"{source} must hold imagesTr and labelsTr, or name its files by --image and --mask: "
            "--image 'images/{case}.png' --mask 'masks/{case}_{rater}.png'"
        )
    ending = _any_case(description.ending) if description.ending is not None else r"\.[^/]*|"
    found: list[CaseFiles | Rejected] = []
    strays: list[Rejected] = []
    tested = (source / "labelsTs").is_dir()
    for kind in ("Tr", "Ts") if tested else ("Tr",):
        image = re.compile(rf"images{kind}/(?P<case>[^/]+)_(?P<channel>\d{{4}})(?:{ending})")
        mask = re.compile(rf"labels{kind}/(?P<case>[^/]+?)(?:_r(?P<rater>\d+))?(?:{ending})")
        folders = [f"{name}{kind}" for name in ("images", "labels")]
        entries = [entry for folder in folders for entry in _entries(source, folder)]
        for case in _gather(entries, image, mask, description, numbered=True):
            test = kind == "Ts" and isinstance(case, CaseFiles)
            found.append(replace(case, split="test") if test else case)
        for entry in entries:
            folder, _, name = entry.rpartition("/")
            named = name.lower().endswith((description.ending or "").lower())
            shown = named if description.ending is not None else image_ending(name)
            if folder == folders[0] and shown and not image.fullmatch(entry):
                why = "has a name without a channel; rename it as CASE_0000"
                strays.append(Rejected(entry, why))
    if not found:
        ending = description.ending or ".png"
        raise MueError(
            f"{source} must hold cases such as imagesTr/CASE_0000{ending} with labelsTr/CASE_r0"
            f"{ending}, and has none; rename its files, or name them by --image and --mask"
        )
    return found + strays


def find_by_patterns(
    source: Path, image: str, mask: str, description: Description
) -> list[CaseFiles | Rejected]:
    """The cases of a folder whose paths have the form of the patterns.

    A pattern is a path with {case}, {rater} and {channel} in it, and * for what does not matter.
    With {patient} in both, cases of two patients may have one name. Without {rater} there is one.
    """
    images = pattern("--image", image, "case", "channel", "patient")
    masks = pattern("--mask", mask, "case", "rater", "patient")
    if ("patient" in images.groupindex) != ("patient" in masks.groupindex):
        raise MueError(
            f"{{patient}} must be in both --image and --mask, or in neither, got {image!r} and "
            f"{mask!r}"
        )
    entries = _entries(source)
    for flag, given, expression in (("--image", image, images), ("--mask", mask, masks)):
        if not any(expression.fullmatch(entry) for entry in entries):
            images_first = sorted(entries, key=lambda e: not image_ending(e))
            example = next((e for e in images_first if not (source / e).is_dir()), "nothing")
            raise MueError(
                f"{flag} {given!r} matches no file of {source}, which holds {example}; correct it"
            )
    return _gather(entries, images, masks, description)


def pattern(flag: str, text: str, needed: str, *optional: str) -> re.Pattern[str]:
    """A regular expression of a pattern, which `flag` gives.

    >>> pattern("--mask", "{case}/seg{rater}.nii", "case", "rater").fullmatch("a/seg1.nii").groups()
    ('a', '1')
    """
    names = {found[1] for found in _FIELD.finditer(text) if found[1] is not None}
    if needed not in names or names - {needed, *optional}:
        more = f", may have {' and '.join(f'{{{n}}}' for n in optional)}" if optional else ""
        raise MueError(f"{flag} must have {{{needed}}}{more}, and no other field, got {text!r}")
    seen: set[str] = set()

    def expression(found: re.Match[str]) -> str:
        if found[2]:
            return ".*" if found[2] == "**" else "[^/]*"
        again = found[1] in seen
        seen.add(found[1])
        return f"(?P={found[1]})" if again else f"(?P<{found[1]}>[^/]+)"

    parts, at = [], 0
    for found in _FIELD.finditer(text):
        parts += [re.escape(text[at : found.start()]), expression(found)]
        at = found.end()
    rest = text[at:]
    ending = image_ending(rest)
    return re.compile("".join(parts) + re.escape(rest.removesuffix(ending)) + _any_case(ending))


def _any_case(ending: str) -> str:
    """An expression for the ending of a name, as .png and .PNG."""
    return f"(?i:{re.escape(ending)})"


def _entries(source: Path, below: str = "") -> list[str]:
    """Files and folders below a folder, relative to `source`."""
    found: list[str] = []
    for here, folders, names in walk(source / below):
        prefix = here.relative_to(source).as_posix()
        found += [name if prefix == "." else f"{prefix}/{name}" for name in (*folders, *names)]
    return found


def _gather(
    entries: Iterable[str],
    image: re.Pattern[str],
    mask: re.Pattern[str],
    description: Description,
    *,
    numbered: bool = False,
) -> list[CaseFiles | Rejected]:
    """Cases by name, from the entries that the two patterns match.

    `numbered` says that channels are called 0000, 0001 and so on.
    """
    images: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    masks: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    kinds = [(image, "channel", images), (mask, "rater", masks)]
    kinds.sort(key=lambda kind: len(_GROUP.sub("", kind[0].pattern)), reverse=True)
    for entry in entries:
        for expression, name, into in kinds:  # where both match, the one with more of its own text
            if (match := expression.fullmatch(entry)) is not None:
                parts = match.groupdict()
                key = parts.get("patient") or parts["case"], parts["case"]
                into[key][parts.get(name) or ""].append(entry)
                break
    common = _common_channels(images.values(), description, numbered=numbered)
    found: list[CaseFiles | Rejected] = []
    for key in sorted(images.keys() | masks.keys()):
        raters = sorted(masks.get(key, {}), key=natural)
        weights = [description.weights.get(_rater(name), 0.0) for name in raters]
        patient, case = key
        files = CaseFiles(
            case,
            patient,
            None,
            tuple(images[key][name][0] for name in sorted(images.get(key, {}), key=natural)),
            tuple(masks[key][name][0] for name in raters),
            tuple(w / sum(weights) for w in weights) if sum(weights) else None,
        )
        why = _wrong(images.get(key, {}), masks.get(key, {}), description, common)
        found.append(files if why is None else Rejected(files.name, why))
    return found


def _common_channels(
    images: Iterable[Mapping[str, list[str]]], description: Description, *, numbered: bool
) -> list[str]:
    """The names of the channels that a case must have, where each has a file of its own."""
    counts = Counter(tuple(sorted(each, key=natural)) for each in images)
    common = list(max(counts, key=lambda names: (counts[names], len(names)), default=()))
    n = len(description.channels) if len(description.channels) > 1 else len(common)
    return [f"{i:04}" for i in range(n)] if numbered else common


def _wrong(
    images: Mapping[str, list[str]],
    masks: Mapping[str, list[str]],
    description: Description,
    common: list[str],
) -> str | None:
    """What keeps these files from being a case, as a clause that follows on its name."""
    for what, each in (("image", images), ("mask of a rater", masks)):
        for files in each.values():
            if len(files) > 1:
                return f"has two files for one {what}, {files[0]} and {files[1]}"
    if not images:
        return f"has a mask, {next(iter(masks.values()))[0]}, and no image"
    if not masks:
        return f"has an image, {next(iter(images.values()))[0]}, and no mask"
    if (n := len(description.channels)) and len(images) not in (1, n):
        return f"has images of {len(images)} channels; channel_names has {n}"
    channels = sorted(images, key=natural)
    if channels != common and channels not in (common[:1], [""]):  # one may hold all
        has, others = (", ".join(names) or "none" for names in (channels, common))
        return f"has files for the channels {has}, and must have them for {others}"
    if description.weights:
        for name in masks:
            if _rater(name) not in description.weights:
                return f"has a mask of the rater {_rater(name)}, whom rater_weights does not name"
    return None


def _rater(name: str) -> str:
    """What `rater_weights` calls a rater: r0 for CASE_r0."""
    return f"r{name}" if name.isdecimal() or not name else name
