"""Natural order of names: slice-10 comes after slice-9."""

import re


def natural(*names: str) -> list[tuple[int, int, str, str]]:
    """A key to sort by names, one after another. Numbers may have thousands of digits.

    >>> sorted(["r10", "r9", "a"], key=natural)
    ['a', 'r9', 'r10']
    """
    parts = [p for name in names for p in (*re.split(r"(\d+)", name), "")]
    numbers = [p.lstrip("0") if p.isdecimal() else "" for p in parts]
    return [(not p.isdecimal(), len(n), n, p) for p, n in zip(parts, numbers, strict=True)]
