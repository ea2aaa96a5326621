import pytest
import torch
import torch.nn.functional as F

from mue.data.synthetic.digits import load_digits
from mue.data.synthetic.guess import GuessingGame

PAPER = {
    "A": ((1, 2, 3, 4), (0.25, 0.25, 0.25, 0.25)),
    "B": ((3, 4, 5, 6), (0.1, 0.4, 0.1, 0.4)),
    "C": ((5, 6, 7, 8), (0.3, 0.5, 0.1, 0.1)),
    "D": ((7, 8, 9, 0), (0.1, 0.1, 0.1, 0.7)),
}


@pytest.fixture(scope="module")
def game() -> GuessingGame:
    return GuessingGame("test", seed=5, digit=14)


# --- digits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "counts"),
    [  # as MNIST's authors and everybody since count them
        ("train", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("test", [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    ],
)
def test_the_digits_are_mnist(split, counts):
    found = load_digits(split)
    assert found.count.tolist() == counts
    assert found.first.tolist() == [sum(counts[:label]) for label in range(10)]
    assert len(found.image) == sum(counts)


def test_digits_belong_to_their_labels():
    """The mean training digit of each label recognises test digits, as it has since 1998."""
    train, test = load_digits("train"), load_digits("test")
    rows = zip(train.first.tolist(), train.count.tolist(), strict=True)
    means = torch.stack([train.image[a : a + n].flatten(1).float().mean(dim=0) for a, n in rows])
    label = torch.arange(10).repeat_interleave(test.count)
    nearest = torch.cdist(test.image.flatten(1).float(), means).argmin(dim=1)
    assert (nearest == label).float().mean() > 0.8


# --- rounds ---------------------------------------------------------------------------------------


def test_the_answer_is_the_image_with_one_digit_left(game):
    pair = game.pair(torch.arange(200))
    x, y = (t.flatten(0, -3).unflatten(-1, (4, 14)) for t in (pair.x, pair.y))
    kept = (y == x).all(dim=(1, 3))
    blank = (y == 0).all(dim=(1, 3))
    assert (kept.sum(dim=1) == 1).all()
    assert torch.equal(kept, ~blank)


def test_a_case_holds_every_answer_that_a_pair_may_have(game):
    index = torch.arange(200)
    pair, case = game.pair(index), game.case(index)
    assert torch.equal(case.x, pair.x)
    assert torch.equal(case.ys.sum(dim=1), case.x)
    assert ((case.ys == pair.y).flatten(2).all(dim=2).sum(dim=1) == 1).all()
    for q, group in zip(case.q, case.group, strict=True):
        assert q.tolist() == pytest.approx(PAPER[group][1])
    assert len(set(case.id)) == 200


def test_a_round_is_the_same_in_any_batch(game):
    index = torch.randperm(1000)[:20]
    pair, case = game.pair(index), game.case(index)
    for place, i in enumerate(index):
        alone = game.pair(i[None])
        assert torch.equal(alone.x[0], pair.x[place])
        assert torch.equal(alone.y[0], pair.y[place])
        assert game.case(i[None]).id[0] == case.id[place]


def test_another_seed_deals_other_rounds(game):
    index = torch.arange(20)
    other = GuessingGame("test", seed=6, digit=14)
    assert not (other.pair(index).x == game.pair(index).x).flatten(1).all(dim=1).any()


def test_digits_are_held_as_often_as_the_category_says(game):
    index = torch.arange(4000)
    pair, case = game.pair(index), game.case(index)
    held = (case.ys == pair.y).flatten(2).all(dim=2).int().argmax(dim=1)
    for name, (_, prob) in PAPER.items():
        mine = held[torch.tensor([group == name for group in case.group])]
        assert abs(len(mine) - 1000) < 4 * (4000 * 0.25 * 0.75) ** 0.5
        for place, p in enumerate(prob):
            share = (mine == place).float().mean().item()
            assert abs(share - p) < 4 * (p * (1 - p) / len(mine)) ** 0.5, (name, place)


def test_each_category_shows_its_digits():
    """Every tile is one of MNIST's digits of the label that the paper puts there."""
    pool, game = load_digits("test"), GuessingGame("test")
    case = game.case(torch.arange(12))
    for x, group in zip(case.x[:, 0], case.group, strict=True):
        for tile, label in zip(x.split(28, dim=1), PAPER[group][0], strict=True):
            first, count = int(pool.first[label]), int(pool.count[label])
            same = pool.image[first : first + count].float() / 255 == tile
            assert same.flatten(1).all(dim=1).sum() == 1
    assert set(case.group) == set(PAPER)


def test_half_size_digits_are_the_mean_of_four_pixels(game):
    whole = GuessingGame("test", seed=5).pair(torch.arange(5))
    half = game.pair(torch.arange(5))
    torch.testing.assert_close(half.x, F.avg_pool2d(whole.x, 2))
    torch.testing.assert_close(half.y[:, 0], F.avg_pool2d(whole.y[:, 0], 2))


def test_several_answers_to_a_round_are_sampled_independently(game):
    """Each is held as often as ever, and two agree as often as independent samples do."""
    index = torch.arange(2000)
    several = GuessingGame("test", seed=5, digit=14, answers=3).pair(index)
    assert torch.equal(several.x, game.pair(index).x)
    assert torch.equal(several.y[:, :1], game.pair(index).y)
    case = game.case(index)
    match = (case.ys[:, None] == several.y[:, :, None]).flatten(3).all(dim=3)  # b r m
    assert (match.sum(dim=2) == 1).all()
    held, two = match.int().argmax(dim=2), case.q.square().sum(dim=1)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        agree = (held[:, i] == held[:, j]).float()
        error = (two * (1 - two)).mean().sqrt() / len(index) ** 0.5
        assert abs(agree.mean() - two.mean()) < 4 * error
