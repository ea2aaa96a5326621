import pytest
import torch

from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.data.synthetic.toy import Bars
from mue.errors import MueError
from mue.evaluation.items import check_inputs, of_one_size, spaced_items, split_batches


def test_items_of_a_finite_data_set_are_at_equal_distances(lesions):
    source = Slices(open_prepared(lesions), "val")
    assert len(source) == 12
    assert spaced_items(source, 4).tolist() == [0, 3, 6, 9]
    assert spaced_items(source, 100).tolist() == list(range(12))
    assert spaced_items(Bars(), 3).tolist() == [0, 1, 2]


def test_items_of_one_size_are_split_by_number_alone():
    index = torch.arange(5)
    assert [part.tolist() for part in split_batches(Bars(), index, 2)] == [[0, 1], [2, 3], [4]]
    assert torch.equal(of_one_size(Bars(), index), index)


@pytest.mark.parametrize("inputs", [0, -1, 10**9 + 1])
def test_a_number_of_inputs_that_no_loop_could_count_is_refused(inputs):
    with pytest.raises(MueError, match=rf"`inputs` must be in 1..1000000000, got {inputs}"):
        check_inputs(inputs)
    check_inputs(1)
    check_inputs(10**9)
