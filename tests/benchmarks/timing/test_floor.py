from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mue.config.presets import preset
from timing.floor import (
    Limits,
    Operator,
    Work,
    count,
    count_answers,
    count_step,
    update,
)


def named(work: Work, name: str) -> list[Operator]:
    return [o for o in work.operators if o.name == name]


def test_a_convolution_and_both_gradients_are_counted_as_by_hand():
    x = torch.ones(2, 3, 8, 8, requires_grad=True)
    weight = torch.ones(5, 3, 3, 3, requires_grad=True)
    found = count(lambda: F.conv2d(x, weight, padding=1).sum().backward())
    given, weights, out = 2 * 3 * 64, 5 * 3 * 9, 2 * 5 * 64
    operations = 2 * out * 27  # each of the outputs is a sum of 27 products
    assert [(o.name, o.numbers, o.operations) for o in found.operators] == [
        ("convolution", given + weights + out, operations),
        ("convolution, gradient of input", out + weights + given, operations),
        ("convolution, gradient of weights", out + given + weights, operations),
    ]
    assert found.operations == 3 * operations
    assert found.bytes(2) == 3 * 2 * (given + weights + out)


def test_the_gradient_of_an_image_is_not_counted_where_nobody_wants_it():
    x, weight = torch.ones(1, 1, 4, 4), torch.ones(2, 1, 3, 3, requires_grad=True)
    found = count(lambda: F.conv2d(x, weight, padding=1).sum().backward())
    names = [o.name for o in found.operators]
    assert names == ["convolution", "convolution, gradient of weights"]


def test_a_linear_layer_is_a_product_with_two_gradients():
    layer = nn.Linear(6, 4)
    x = torch.ones(3, 6, requires_grad=True)
    found = count(lambda: layer(x).sum().backward())
    assert [o.operations for o in found.operators] == [2 * 3 * 6 * 4] * 3
    assert [o.numbers for o in found.operators] == [3 * 6 + 6 * 4 + 3 * 4] * 3


def test_resampling_and_joining_move_what_they_read_and_write():
    x = torch.ones(1, 2, 4, 4)
    halved = count(lambda: F.avg_pool2d(x, 2))
    doubled = count(lambda: F.interpolate(x, scale_factor=2, mode="bilinear"))
    joined = count(lambda: torch.cat([x, x], dim=1))
    assert [w.operators for w in (halved, doubled, joined)] == [
        (Operator("pooling", 32 + 8),),
        (Operator("doubling", 32 + 128),),
        (Operator("concatenation", 64 + 64),),
    ]


def test_what_can_be_fused_counts_nothing():
    x = torch.ones(1, 8, 4, 4)
    assert count(lambda: F.group_norm(x, 2).relu().mul(2).sum()) == Work(())


def test_the_floor_is_the_slower_of_bytes_and_operations_operator_by_operator():
    limits = Limits(bandwidth=100.0, peak=1000.0)
    moves, computes = Operator("a", 50), Operator("b", 10, 3000)
    assert moves.floor(limits, 4) == 50 * 4 / 100
    assert computes.floor(limits, 4) == 3000 / 1000
    assert Work((moves, computes)).floor(limits, 4) == 2.0 + 3.0
    assert Work((moves, computes)).floor(limits, 2) == 1.0 + 3.0


def test_of_two_measurements_the_better_counts():
    assert Limits(1.0, 5.0).best(Limits(2.0, 4.0)) == Limits(2.0, 5.0)


def test_the_update_of_weights_stays_in_float32():
    assert update(10, averaged=False).bytes(2) == 10 * 7 * 4
    assert update(10, averaged=True).bytes(4) == 10 * 9 * 4


def test_a_step_counts_each_convolution_of_a_network_forward_and_backward():
    config = preset("toy-vq")
    config = replace(config, train=replace(config.train, batch=3))
    work = count_step(config, (16, 16))
    forward = len(named(work, "convolution"))
    assert forward > 0
    assert len(named(work, "convolution, gradient of weights")) == forward
    images = 2 * 2  # the first block of each encoder reads images: body and shortcut
    assert len(named(work, "convolution, gradient of input")) == forward - images
    assert len(named(work, "update of weights")) == 1


def test_the_work_of_a_step_is_proportional_to_the_batch():
    config = preset("toy-vq")
    few, many = (
        count_step(replace(config, train=replace(config.train, batch=b)), (16, 16)) for b in (2, 8)
    )
    assert many.operations == pytest.approx(4 * few.operations, rel=1e-3)


def test_more_answers_share_one_look():
    config = preset("toy-vq")
    one, four, seven = (count_answers(config, k, (16, 16)).operations for k in (1, 4, 7))
    assert seven - four == four - one
    assert four < 4 * one
