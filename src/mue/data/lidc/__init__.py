"""Readers of the LIDC-IDRI collection."""

RATERS = 4
"""Masks of each slice: four radiologists read every scan."""
MAX_SIDE = 4096
"""Pixels of the longest side of an image that is read."""
Window = tuple[float, float] | None
"""Hounsfield units that become black and white; None scales each crop by its own range."""
