import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from mue.data.synthetic.digits import load_digits

ORIGINAL = Path(os.environ.get("MUE_DATA", Path(__file__).parents[4] / "shared" / "data")) / "mnist"


def test_every_digit_is_filed_under_its_label():
    for split, total in (("train", 60_000), ("test", 10_000)):
        pool = load_digits(split)
        assert pool.count.sum() == total == len(pool.image)
        assert torch.equal(pool.first[1:], pool.count.cumsum(0)[:-1])


@pytest.mark.data
@pytest.mark.skipif(not ORIGINAL.is_dir(), reason="the original MNIST files are not here")
@pytest.mark.parametrize(("split", "file"), [("train", "train"), ("test", "t10k")])
def test_the_packaged_digits_are_mnist(split, file):
    raw = gzip.decompress((ORIGINAL / f"{file}-images-idx3-ubyte.gz").read_bytes())
    label = gzip.decompress((ORIGINAL / f"{file}-labels-idx1-ubyte.gz").read_bytes())[8:]
    if split == "train":
        md5 = hashlib.md5(raw).hexdigest()
        assert md5 == "6bbc9ace898e44ae57da46a324031adb"  # as docs/data.md says
    order = np.frombuffer(label, np.uint8).argsort(kind="stable")
    image = np.frombuffer(raw[16:], np.uint8).reshape(-1, 28, 28)[order]
    assert np.array_equal(load_digits(split).image.numpy(), image)
