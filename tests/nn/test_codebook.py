import pytest
import torch
from jaxtyping import TypeCheckError

from mue.nn.codebook import Codebook, Usage


@pytest.fixture
def book() -> Codebook:
    torch.manual_seed(0)
    return Codebook(5, 3, learned=False)


# --- looking up -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e4])  # far from the origin, differences are small
def test_each_encoding_goes_to_its_nearest_code(book, offset):
    e = torch.randn(40, 3) + offset
    book.codes.data += offset
    nearest = [min(range(5), key=lambda i: (e_j - book.codes[i]).norm().item()) for e_j in e]
    found = book(e)
    assert found.index.tolist() == nearest
    torch.testing.assert_close(found.code, book.codes[nearest])
    torch.testing.assert_close(found.distance, (e - book.codes[nearest]).square().sum(dim=1))


def test_forward_does_not_move_the_codes(book):
    before = book.codes.clone()
    book.train()(torch.randn(8, 3))
    book.eval()(torch.randn(8, 3))
    assert torch.equal(book.codes, before)


def test_the_gradient_passes_straight_through(book):
    e = torch.randn(4, 3, requires_grad=True)
    slope = torch.randn(4, 3)
    (book(e).code * slope).sum().backward()
    torch.testing.assert_close(e.grad, slope)


@pytest.mark.parametrize("learned", [True, False])
def test_the_distance_pulls_the_encoding_and_not_the_code(learned):
    book = Codebook(1, 2, learned=learned)
    book.codes.data = torch.tensor([[1.0, 1.0]])
    e = torch.tensor([[3.0, 0.0]], requires_grad=True)
    book(e).distance.sum().backward()
    assert e.grad is not None
    assert e.grad.tolist() == [[4, -2]]  # 2 (e - c)
    assert book.codes.grad is None
    assert book.codes.requires_grad is learned


@pytest.mark.parametrize(("n", "d", "words"), [(0, 3, "`n`, .* got 0"), (5, 0, "`d`, .* got 0")])
def test_an_empty_code_book_is_refused(n, d, words):
    with pytest.raises(ValueError, match=words):
        Codebook(n, d, learned=True)


def test_shapes_are_checked_while_testing(book):
    with pytest.raises(TypeCheckError):
        book(torch.randn(4, 3, 1))


# --- following ------------------------------------------------------------------------------------


def test_one_update_by_hand():
    codes, usage = torch.tensor([[0.0], [10.0]]), Usage(2, decay=0.5)
    usage.update_(codes, torch.tensor([[4.0], [2.0]]), torch.tensor([0, 0]))
    # code 0: total (0/2 + 6/2) over count (1/2 + 2/2). code 1 got nothing: it stays, less used.
    assert codes.tolist() == [[2], [10]]
    assert usage.count.tolist() == [1.5, 0.5]


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.99])
def test_updates_are_the_papers_two_running_sums(decay):
    """Against the sums themselves, one encoding at a time, in double precision."""
    torch.manual_seed(0)
    start = torch.randn(4, 3)
    codes, usage = start.clone(), Usage(4, decay=decay)
    count, total = torch.ones(4, dtype=torch.double), start.double()
    for _ in range(20):
        e, index = torch.randn(16, 3), torch.arange(16) % 4
        usage.update_(codes, e, index)
        count, total = decay * count, decay * total
        for e_j, i in zip(e, index, strict=True):
            count[i] += 1 - decay
            total[i] += (1 - decay) * e_j
    torch.testing.assert_close(codes, (total / count[:, None]).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(usage.count, count.float())


def test_a_code_that_nobody_uses_stays_for_ever_and_then_follows():
    torch.manual_seed(0)
    codes, usage = torch.randn(2, 3), Usage(2, decay=0.99)
    idle = codes[1].clone()
    e, index = torch.randn(1, 3), torch.tensor([0])
    for _ in range(20_000):
        usage.update_(codes, e, index)
    assert usage.count[1] < torch.finfo(torch.float32).tiny  # 0.99 ** 20,000 is 5e-88
    assert torch.equal(codes[1], idle)
    usage.update_(codes, e, torch.tensor([1]))  # the past weighs nothing any more
    torch.testing.assert_close(codes[1], e[0])


@pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5])
def test_a_bad_decay_is_named_with_its_value(decay):
    with pytest.raises(ValueError, match=rf"`decay` must be in \[0, 1\), got {decay}"):
        Usage(5, decay=decay)
