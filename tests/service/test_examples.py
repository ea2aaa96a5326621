"""Images to begin with."""

import numpy as np

from mue.service import examples


def test_a_phantom_is_the_same_every_time():
    first = examples._phantom(0)
    assert np.array_equal(first.image, examples._phantom(0).image)
    assert len(examples._PHANTOMS) + 4 == len(examples.examples())
