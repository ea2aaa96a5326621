from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from mue.config.presets import preset
from mue.data.build import build_source
from mue.models.build import build_learner
from mue.objective import objective
from mue.training.schedule import weights_at
from timing.floor import (
    Limits,
    Operator,
    Work,
    count,
    count_answers,
    count_step,
    optimizer_step,
)


def named(work: Work, name: str) -> list[Operator]:
    return [o for o in work.operators if o.name == name]


def test_a_convolution_and_its_gradients_are_counted_as_by_hand():
    x = torch.ones(2, 3, 8, 8, requires_grad=True)
    weight = torch.ones(5, 3, 3, 3, requires_grad=True)
    found = count(lambda: F.conv2d(x, weight, padding=1).sum().backward())
    given, weights, out = 2 * 3 * 64, 5 * 3 * 9, 2 * 5 * 64
    operations = 2 * out * 27  # each of the outputs is a sum of 27 products
    assert found.operators == (
        Operator("convolution", given + weights + out, operations),
        Operator("convolution_backward", out + 2 * (given + weights), 2 * operations),
    )
    assert found.operations == 3 * operations
    assert found.bytes(2) == 2 * (3 * (given + weights) + 2 * out)


def test_the_gradient_of_an_image_is_not_counted_where_it_is_not_needed():
    x, weight = torch.ones(1, 1, 4, 4), torch.ones(2, 1, 3, 3, requires_grad=True)
    found = count(lambda: F.conv2d(x, weight, padding=1).sum().backward())
    (backward,) = named(found, "convolution_backward")
    assert backward.operations == 2 * 2 * 16 * 9
    assert backward.numbers == 2 * 16 + 16 + 2 * 18  # gradient, image, weight and its gradient


def test_a_linear_layer_is_a_product_with_two_gradients():
    layer = nn.Linear(6, 4, bias=False)
    x = torch.ones(3, 6, requires_grad=True)
    found = count(lambda: layer(x).sum().backward())
    assert [o.operations for o in found.operators] == [2 * 3 * 6 * 4] * 3
    assert [o.numbers for o in found.operators] == [3 * 6 + 6 * 4 + 3 * 4] * 3


def test_pooling_interpolation_and_concatenation_move_what_they_read_and_write():
    x = torch.ones(1, 2, 4, 4, requires_grad=True)
    pooled = count(lambda: F.avg_pool2d(x, 2).sum().backward())
    upsampled = count(lambda: F.interpolate(x, scale_factor=2, mode="bilinear"))
    joined = count(lambda: torch.cat([x, x], dim=1))
    assert [w.operators for w in (pooled, upsampled, joined)] == [
        (Operator("avg_pool2d", 32 + 8), Operator("avg_pool2d_backward", 32 + 8)),
        (Operator("upsample_bilinear2d", 32 + 128),),
        (Operator("cat", 64 + 64),),
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
    assert optimizer_step(10, ema=False).bytes(2) == 10 * 7 * 4
    assert optimizer_step(10, ema=True).bytes(4) == 10 * 9 * 4


def test_a_step_has_the_operations_that_torch_counts_and_one_update():
    config = preset("toy-vq")
    config = replace(config, train=replace(config.train, batch=3))
    learner = build_learner(config)
    source = build_source(config.data, "train", seed=0, device=torch.device("cpu"))
    pair = source.pair(torch.arange(3))
    with FlopCounterMode(display=False) as counter:
        trace = learner(pair.x, pair.y)
        objective(trace, pair.y, config.objective, weights_at(config, 0)).total.backward()
    work = count_step(config, (pair.x.shape[2], pair.x.shape[3]))
    assert work.operations == counter.get_total_flops()
    assert len(named(work, "convolution")) == len(named(work, "convolution_backward")) > 0
    assert len(named(work, "optimizer step")) == 1


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
