"""Readers of the LIDC-IDRI collection."""

RATERS = 4
"""Masks of each slice: four radiologists read every scan."""
MAX_SIDE = 4096
"""Pixels of the longest side of an image that is read."""
