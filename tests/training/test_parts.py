import dataclasses

import pytest

from mue.commands.train import train
from mue.data.synthetic.toy import Bars
from mue.errors import MueError


def test_data_that_the_network_cannot_take_are_refused_before_anything_is_written(tiny, tmp_path):
    config = tiny()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, c_in=3))
    with pytest.raises(ValueError, match=r"model\.c_in must be 1"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


class NoBars(Bars):
    """A data set of finite length that is empty."""

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("what", "own", "words"),
    [
        (
            {"validate_every": 5},
            {"source": Bars()},
            "`validation` must be a Source .* train.validate_every 5 and train.calibrate False;",
        ),
        ({"calibrate": True}, {"source": Bars()}, "`validation` must be a Source with inputs"),
        ({}, {"validation": Bars()}, "`validation` must be left out without `source`: inputs"),
        (
            {"validate_every": 5},
            {"source": Bars(), "validation": NoBars()},
            "`validation` must hold at least one input, got none",
        ),
    ],
)
def test_validation_that_cannot_be_is_refused_before_anything_is_written(
    tiny, tmp_path, what, own, words
):
    with pytest.raises(MueError, match=words):
        train(tiny("exact", **what), tmp_path / "run", **own)
    assert not (tmp_path / "run").exists()
