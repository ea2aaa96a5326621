import pytest
import torch

from mue.config.schema import DataConfig
from mue.data.build import build_source
from mue.data.synthetic.toy import KINDS, Bars

CPU = torch.device("cpu")


def test_the_answer_is_one_of_the_two_bars_in_the_image():
    """By hand: two full rows light up, one in each half, and the answer is one of them."""
    pair = Bars(seed=3).pair(torch.arange(100))
    lit = pair.x[:, 0] > 0
    assert torch.equal(lit, lit[:, :, :1].expand_as(lit))
    assert (lit[:, :4, 0].sum(dim=1) == 1).all()
    assert (lit[:, 4:, 0].sum(dim=1) == 1).all()
    chosen = pair.y[:, 0, 0]
    assert (chosen[:, :, 0].sum(dim=1) == 1).all()
    assert (chosen <= lit.float()).all()


def test_a_case_holds_every_answer_that_a_pair_may_have():
    bars, index = Bars(seed=3), torch.arange(100)
    pair, case = bars.pair(index), bars.case(index)
    assert torch.equal(case.x, pair.x)
    assert torch.equal(case.ys.sum(dim=1) > 0, case.x > 0)
    assert ((case.ys == pair.y).flatten(2).all(dim=2).sum(dim=1) == 1).all()
    light = {"dim": 0.4, "bright": 1.0}
    for x, q, group in zip(case.x, case.q, case.group, strict=True):
        assert q.tolist() == pytest.approx(KINDS[group])
        assert x.max().item() == pytest.approx(light[group])
    assert len(set(case.id)) == 100


def test_bars_are_the_answer_as_often_as_the_light_says():
    bars, index = Bars(seed=1), torch.arange(4000)
    pair, case = bars.pair(index), bars.case(index)
    lower = pair.y[:, 0, 0, 4:].flatten(1).any(dim=1)
    for name, (_, p) in KINDS.items():
        mine = lower[torch.tensor([group == name for group in case.group])]
        assert abs(len(mine) - 2000) < 4 * (4000 * 0.5 * 0.5) ** 0.5
        assert abs(mine.float().mean().item() - p) < 4 * (p * (1 - p) / len(mine)) ** 0.5


def test_bars_lie_in_each_row_equally_often():
    rows = Bars(seed=1).case(torch.arange(4000)).ys[:, :, 0, :, 0].mean(dim=0)
    for half, share in ((rows[0, :4], rows[0, 4:]), (rows[1, 4:], rows[1, :4])):
        assert not share.any()
        assert ((half - 0.25).abs() < 4 * (0.25 * 0.75 / 4000) ** 0.5).all()


def test_an_item_is_the_same_in_any_batch():
    bars, index = Bars(seed=7), torch.randperm(1000)[:20]
    pair, case = bars.pair(index), bars.case(index)
    for place, i in enumerate(index):
        alone = bars.pair(i[None])
        assert torch.equal(alone.x[0], pair.x[place])
        assert torch.equal(alone.y[0], pair.y[place])
        assert bars.case(i[None]).id[0] == case.id[place]


@pytest.mark.parametrize("name", ["toy", "vector"])
@pytest.mark.parametrize("other", [("test", 0), ("train", 1)])
def test_test_items_and_those_of_another_seed_are_others(name, other):
    config, index = DataConfig(name=name), torch.arange(200)
    one = build_source(config, "train", seed=0, device=CPU).pair(index)
    two = build_source(config, other[0], seed=other[1], device=CPU).pair(index)
    same = (one.x == two.x).flatten(1).all(dim=1).float().mean().item()
    chance = 1 / 32 if name == "toy" else 0  # two kinds of light, four rows for each bar
    assert abs(same - chance) <= 4 * (chance * (1 - chance) / 200) ** 0.5
