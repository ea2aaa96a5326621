"""Every metric accepts the same things, as users call it: without the check of types."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import mue.metrics
from mue.errors import MueError
from mue.metrics import (
    annotated,
    brier,
    coverage_k,
    dice,
    distances,
    door,
    ece,
    entropy,
    ged,
    ged_n,
    hm_iou,
    hm_iou_n,
    iou,
    iou_distance,
    mode_mae,
    mode_probabilities,
    mode_tv,
    modes_for,
    presence,
    ranked_before,
    rater_modes,
    reliability,
    top_dice,
)

pytestmark = pytest.mark.usefixtures("unchecked")

SETS: dict[str, Callable[[Any, Any, Any, Any], Tensor]] = {
    "iou": lambda s, _, ys, __: iou(s, ys),
    "iou_distance": lambda s, _, ys, __: iou_distance(s, ys),
    "dice": lambda s, _, ys, __: dice(s, ys),
    "distances": lambda s, _, ys, __: distances(s, ys).ss,
    "ged": ged,
    "ged_n": lambda s, p, ys, q: ged_n(s, p, ys, q, 16, torch.Generator().manual_seed(0)),
    "hm_iou_n": lambda s, p, ys, q: hm_iou_n(s, p, ys, 16, torch.Generator().manual_seed(0), q),
    "top_dice": lambda s, _, ys, q: top_dice(s, ys, q),
    "coverage_k": lambda s, _, ys, q: coverage_k(s, ys, q, 2),
    "presence": lambda s, p, _, __: presence(s, p),
    "annotated": lambda _, __, ys, q: annotated(ys, q),
}
"""Every metric of masks: answers s by p, raters ys by q."""
OF_ANSWERS = [name for name in SETS if name != "annotated"]
OF_BOTH = [name for name in OF_ANSWERS if name != "presence"]
BY_P = ["ged", "ged_n", "hm_iou_n", "presence"]
BY_Q = ["ged", "ged_n", "hm_iou_n", "top_dice", "coverage_k", "annotated"]


def masks(k: int, seed: int, c: int = 1) -> Tensor:
    return torch.rand(3, k, c, 5, 7, generator=torch.Generator().manual_seed(seed)) > 0.6


def weights(k: int, seed: int = 0) -> Tensor:
    return torch.rand(3, k, generator=torch.Generator().manual_seed(seed)).softmax(dim=1)


S, YS, P, Q = masks(4, 0), masks(3, 1), weights(4), weights(3, 1)


def test_every_metric_of_masks_is_tested_here():
    """But for `mode_probabilities`, which takes answers of any kind."""
    of_masks = {
        name
        for name in mue.metrics.__all__
        if inspect.isfunction(f := getattr(mue.metrics, name))
        and {"s", "ys", "a"} & set(inspect.signature(f).parameters)
    }
    assert of_masks - {"mode_probabilities"} == set(SETS)


# --- what is accepted -----------------------------------------------------------------------------

TYPES = [torch.uint8, torch.int64, torch.float16, torch.float32, torch.float64, torch.uint16]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_0_and_1_of_any_type_are_masks(name, kind):
    expected = SETS[name](S, P, YS, Q)
    assert torch.equal(SETS[name](S.to(kind), P, YS.to(kind), Q), expected)
    numbers = S.to(kind).numpy(), P.numpy(), YS.to(kind).numpy(), Q.numpy()
    assert torch.equal(SETS[name](*numbers), expected)


@pytest.mark.parametrize("name", SETS)
def test_numpy_is_accepted_however_it_lies_in_memory_and_is_not_written_to(name):
    s, ys = S.numpy()[:, :, :, ::-1], YS.numpy()[:, :, :, ::-1]
    for array in (s, ys):
        array.flags.writeable = False
    expected = SETS[name](S.flip(3), P, YS.flip(3), Q)
    assert torch.equal(SETS[name](s, P, ys, Q), expected)
    assert torch.equal(SETS[name](s, P.numpy(), torch.as_tensor(ys.copy()), Q.numpy()), expected)


@pytest.mark.parametrize("name", SETS)
def test_masks_of_one_class_need_no_axis_for_it(name):
    expected = SETS[name](S, P, YS, Q)
    assert torch.equal(SETS[name](S[:, :, 0], P, YS[:, :, 0], Q), expected)
    assert torch.equal(SETS[name](S[:, :, 0], P, YS, Q), expected)


@pytest.mark.parametrize("name", SETS)
def test_no_weights_are_equal_weights(name):
    equal = SETS[name](S, torch.full((3, 4), 1 / 4), YS, torch.full((3, 3), 1 / 3))
    assert torch.equal(SETS[name](S, None, YS, None), equal)


def test_weights_may_be_whole_numbers_or_of_double_precision():
    one = torch.tensor([[0, 1, 0, 0]]).expand(3, 4)
    torch.testing.assert_close(ged(S, one, YS, Q), ged(S[:, 1:2], None, YS, Q))
    torch.testing.assert_close(ged(S, P.double(), YS, Q.double()).float(), ged(S, P, YS, Q))


def test_boolean_tensors_are_not_copied():
    found = door.masks(s=S, ys=YS)
    assert found[0] is S
    assert found[1] is YS


# --- what is refused: masks -----------------------------------------------------------------------


def test_probabilities_are_not_read_as_masks():
    """The bytes of these were read as words: 0.007 where thresholded masks have 0.342."""
    torch.manual_seed(0)
    s, ys = torch.rand(1, 4, 1, 8, 8), torch.rand(1, 4, 1, 8, 8)
    with pytest.raises(MueError, match=r"`s` must be masks, .*; threshold first: s > 0\.5$"):
        ged(s, None, ys)
    assert ged(s > 0.5, None, ys > 0.5).item() == pytest.approx(0.342, abs=1e-3)


@pytest.mark.parametrize("name", OF_ANSWERS)
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.float64], ids=str)
def test_probabilities_and_logits_are_refused(name, kind):
    for wrong in (torch.rand(3, 4, 1, 5, 7), 3 * torch.randn(3, 4, 1, 5, 7)):
        with pytest.raises(MueError, match=r"`[sa]` must be masks.*threshold first: [sa] > 0\.5"):
            SETS[name](wrong.to(kind), P, YS, Q)
        with pytest.raises(MueError, match=r"`[sa]` must be masks.*threshold first: [sa] > 0\.5"):
            SETS[name](wrong.to(kind).numpy(), P, YS, Q)


@pytest.mark.parametrize("name", OF_ANSWERS)
@pytest.mark.parametrize("kind", [torch.uint8, torch.int64, torch.uint16, torch.float32], ids=str)
def test_label_maps_are_refused(name, kind):
    labels = torch.arange(3).repeat(3, 4, 1, 5, 3)[..., :7].to(kind)
    words = r"`[sa]` must be masks.* up to 2; make a label map one-hot first"
    for wrong in (labels, labels[:, :, 0], labels.numpy()):
        with pytest.raises(MueError, match=words):
            SETS[name](wrong, P, YS, Q)


@pytest.mark.parametrize("name", OF_BOTH)
def test_the_raters_are_checked_too(name):
    with pytest.raises(MueError, match=r"`(ys|b)` must be masks.*threshold first"):
        SETS[name](S, P, torch.rand(3, 3, 1, 5, 7), Q)


@pytest.mark.parametrize("name", OF_ANSWERS)
def test_what_is_not_a_number_is_refused(name):
    wrong = S.float()
    wrong[1, 2, 0, 3, 4] = float("nan")
    for each in (wrong, wrong.numpy()):
        with pytest.raises(MueError, match=r"`[sa]` must be masks, .* got NaN"):
            SETS[name](each, P, YS, Q)


@pytest.mark.parametrize("name", OF_ANSWERS)
@pytest.mark.parametrize("wrong", [[[True]], None, np.array(["a"]), S.to(torch.complex64)])
def test_what_is_no_array_of_numbers_is_refused(name, wrong):
    with pytest.raises(MueError, match=r"`[sa]` must be a torch tensor or a numpy array"):
        SETS[name](wrong, P, YS, Q)


@pytest.mark.parametrize("name", OF_ANSWERS)
def test_a_single_image_is_refused_with_the_way_out(name):
    with pytest.raises(MueError, match=r"b k h w or b k c h w, got .* 5 7; .* take [sa]\[None\]"):
        SETS[name](S[0, 0], P, YS, Q)


@pytest.mark.parametrize("name", OF_BOTH)
@pytest.mark.parametrize(
    "other", [YS[:2], YS[..., :6], YS[..., :4, :], masks(3, 1, c=2)], ids=["b", "w", "h", "c"]
)
def test_masks_of_different_sizes_are_refused(name, other):
    with pytest.raises(MueError, match=r"must be masks of the same inputs, classes and size, got"):
        SETS[name](S, P, other, Q)


@pytest.mark.parametrize("name", OF_ANSWERS)
def test_no_masks_are_refused(name):
    with pytest.raises(MueError, match=r"`[sa]` must hold at least one mask for each input"):
        SETS[name](S[:, :0], None, YS, Q)


def test_masks_of_no_inputs_give_no_numbers():
    assert ged(S[:0], None, YS[:0]).shape == (0,)


# --- what is refused: weights ---------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_P)
@pytest.mark.parametrize("wrong", [P / 2, -P, P * float("nan"), P.log(), torch.zeros(3, 4)])
def test_weights_that_are_no_distribution_are_refused(name, wrong):
    words = r"`p` must be non-negative and sum to 1 for each input; renormalise it first"
    for each in (wrong, wrong.numpy()):
        with pytest.raises(MueError, match=words):
            SETS[name](S, each, YS, Q)


@pytest.mark.parametrize("name", BY_Q)
def test_weights_of_raters_that_are_no_distribution_are_refused(name):
    for wrong in (Q / 2, Q.numpy() * 2):
        with pytest.raises(MueError, match=r"`q` must be non-negative and sum to 1"):
            SETS[name](S, P, YS, wrong)


@pytest.mark.parametrize("name", BY_Q)
@pytest.mark.parametrize("wrong", [Q[0], Q[:2], Q[..., None], weights(4)])
def test_weights_for_other_masks_are_refused(name, wrong):
    with pytest.raises(MueError, match=r"`q` must be 3 3, a weight for each mask .* got "):
        SETS[name](S, P, YS, wrong)


# --- probabilities and shares ---------------------------------------------------------------------

OF_SHARES: dict[str, Callable[[Any, Any], Tensor]] = {
    "brier": brier,
    "ece": ece,
    "reliability": lambda p, share: reliability(p, share).count,
}
OF_MODES: dict[str, Callable[[Any, Any], Tensor]] = {"mode_tv": mode_tv, "mode_mae": mode_mae}


@pytest.mark.parametrize("name", OF_SHARES)
def test_shares_are_torch_or_numpy(name):
    p, share = torch.rand(20, dtype=torch.float64), torch.arange(20) % 2
    found = OF_SHARES[name](p.numpy(), share.numpy())
    assert torch.equal(found, OF_SHARES[name](p, share))
    assert torch.equal(found, OF_SHARES[name](p, share.double()))


@pytest.mark.parametrize("name", OF_SHARES)
@pytest.mark.parametrize("wrong", [-0.5, 1.5, float("nan")])
def test_what_is_no_share_is_refused(name, wrong):
    good, bad = torch.tensor([0.5, 0.5]), torch.tensor([0.5, wrong])
    for p, share, which in ((bad, good, "p"), (good, bad, "share")):
        with pytest.raises(MueError, match=f"`{which}` must be a probability, in"):
            OF_SHARES[name](p, share)


@pytest.mark.parametrize("name", OF_SHARES)
def test_as_many_shares_as_probabilities_are_needed(name):
    with pytest.raises(MueError, match=r"`share` must be b with b = 3, got the shape 2"):
        OF_SHARES[name](torch.zeros(3), torch.zeros(2))
    with pytest.raises(MueError, match=r"`p` must be b, got the shape 3 1"):
        OF_SHARES[name](torch.zeros(3, 1), torch.zeros(3))


@pytest.mark.parametrize("name", OF_MODES)
def test_probabilities_of_modes_are_torch_or_numpy(name):
    expected = OF_MODES[name](P, P.flip(1))
    assert torch.equal(OF_MODES[name](P.numpy(), P.flip(1).numpy()), expected)


@pytest.mark.parametrize("name", OF_MODES)
@pytest.mark.parametrize("wrong", [-P, 2 * P, P * float("nan")])
def test_what_are_no_probabilities_of_modes_is_refused(name, wrong):
    with pytest.raises(MueError, match="`p` must be non-negative and sum to at most 1"):
        OF_MODES[name](wrong, P)
    with pytest.raises(MueError, match="`q` must be non-negative and sum to at most 1"):
        OF_MODES[name](P, wrong)


@pytest.mark.parametrize("name", OF_MODES)
def test_probabilities_of_other_modes_are_refused(name):
    with pytest.raises(MueError, match=r"`q` must be b m with b = 3, m = 4, got the shape 3 3"):
        OF_MODES[name](P, Q)


# --- tables ---------------------------------------------------------------------------------------


def test_tables_are_torch_or_numpy():
    table, mode = iou(S, YS), torch.tensor([[0, 1, 0, -1]]).expand(3, 4)
    prob = torch.tensor([[0.6, 0.4]]).expand(3, 2)
    assert torch.equal(hm_iou(table.numpy(), Q.numpy()), hm_iou(table, Q))
    found = rater_modes(table.numpy(), mode.numpy(), 0.3)
    assert torch.equal(found, rater_modes(table, mode, 0.3))
    found = ranked_before(table.numpy(), mode.numpy(), prob.numpy(), 0.3)
    assert torch.equal(found, ranked_before(table, mode, prob, 0.3))
    assert torch.equal(modes_for(prob.numpy(), 0.9), modes_for(prob, 0.9))
    assert torch.equal(entropy(prob.numpy()), entropy(prob))
    s, ys = torch.rand(3, 4, 2, 5), torch.rand(3, 3, 2, 5)
    found = mode_probabilities(s.numpy(), P.numpy(), ys.numpy(), Q.numpy())
    assert torch.equal(found, mode_probabilities(s, P, ys, Q))


def test_tables_that_do_not_belong_together_are_refused():
    table = iou(S, YS)
    with pytest.raises(MueError, match=r"`mode` must be b k with b = 3, k = 4, got the shape 3 3"):
        rater_modes(table, torch.zeros(3, 3).long())
    with pytest.raises(MueError, match=r"`overlap` must be b n r, got the shape 4 3"):
        hm_iou(table[0])
    with pytest.raises(MueError, match="`overlap` must be the IoU of every answer and rater"):
        hm_iou(table * float("nan"))
    with pytest.raises(
        MueError, match=r"`ys` must be b m y with b = 3, y = 35, got the shape 3 3 30"
    ):
        mode_probabilities(S.float(), P, YS[..., :6].float())
    with pytest.raises(MueError, match=r"`s` must be answers, b k \*y, got the shape 3 4"):
        mode_probabilities(P, P, Q)
    with pytest.raises(MueError, match=r"`p` must be b k with b = 3, k = 4, got the shape 3 3"):
        mode_probabilities(S, Q, YS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_numpy_goes_where_the_masks_are_and_a_tensor_elsewhere_is_refused():
    expected = ged(S, P, YS, Q)
    torch.testing.assert_close(ged(S.cuda(), P.numpy(), YS.numpy(), Q.numpy()).cpu(), expected)
    with pytest.raises(MueError, match="`ys` is on cpu and what it belongs to on cuda"):
        ged(S.cuda(), None, YS)
