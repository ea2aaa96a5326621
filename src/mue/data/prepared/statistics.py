"""What `mue train auto` asks of prepared data."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mue.config.auto import DataStatistics
from mue.data.normalize import normalize
from mue.data.prepared.open import Prepared
from mue.data.prepared.splits import SPLITS

_LARGEST = np.iinfo(np.int32).max
_THUMBNAIL = 16
_PATIENTS, _FEWEST = 400, 30  # that orientation is judged by
_TOLD = 0.75  # share that chance does not explain: it would give a half


def statistics(prepared: Prepared) -> DataStatistics:
    """Count images and raters, measure sizes, and see whether images have an orientation."""
    member = {split: prepared.members(split) for split in SPLITS}
    train = member["train"]
    items, q = prepared.items[train], prepared.q[train]
    low, high = (
        [int(f(items[name], initial=start)) for name in ("h", "w", "raters")]
        for f, start in ((np.min, _LARGEST if len(items) else 0), (np.max, 0))
    )
    equal = (q == 0) | np.isclose(q, q.max(axis=1, keepdims=True), atol=1e-6)
    return DataStatistics(
        images={split: len(index) for split, index in member.items()},
        channels=prepared.meta.channels,
        labels=prepared.meta.labels,
        values=prepared.meta.values,
        normalize=prepared.meta.normalize,
        shortest=(low[0], low[1]),
        median=(_median(items["h"]), _median(items["w"])),
        longest=(high[0], high[1]),
        raters=(low[2], high[2]),
        weighted=not equal.all(),
        oriented=_oriented(prepared, train),
    )


def _median(sizes: np.ndarray) -> int:
    """The middle one of some sizes, the lower of two; 0 of none."""
    return int(np.sort(sizes)[(len(sizes) - 1) // 2]) if len(sizes) else 0


def _oriented(prepared: Prepared, member: np.ndarray) -> bool:
    """Whether the images can be told from their mirror images; one of each patient is looked at."""
    first = {prepared.rows[i].patient: i for i in reversed(member.tolist())}
    if len(first) < _FEWEST:
        return False
    small: list[Tensor] = []
    for i in sorted(first.values())[:_PATIENTS]:
        x = normalize(torch.from_numpy(np.array(prepared.image(i)))[None], prepared.meta.normalize)
        small.append(F.adaptive_avg_pool2d(x.mean(dim=1), _THUMBNAIL)[0])
    return orientation(torch.stack(small)) > _TOLD


def orientation(x: Float[Tensor, "n h w"]) -> float:
    """Share of the images that are more like another image than like a mirrored one.

    The largest over mirroring left to right, upside down, and both. Without an orientation, all are
    equally likely to be the most similar image, and it is near one half.
    """
    flat = F.normalize(x.flatten(1) - x.flatten(1).mean(dim=1, keepdim=True))
    alone = torch.eye(len(x), dtype=torch.bool, device=x.device)

    def nearest(other: Tensor) -> Tensor:
        return (flat @ other.mT).masked_fill(alone, -torch.inf).amax(dim=1)

    mirrored = (F.normalize(flat.view_as(x).flip(axes).flatten(1)) for axes in ((1,), (2,), (1, 2)))
    return max((nearest(flat) > nearest(m)).float().mean().item() for m in mirrored)
