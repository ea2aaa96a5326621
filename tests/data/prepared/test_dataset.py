import dataclasses

import numpy as np
import pytest
import torch

from mue.config.schema import AugmentConfig, DataConfig
from mue.data.build import build_source
from mue.data.prepared.dataset import Slices
from mue.data.prepared.item import Item
from mue.data.prepared.open import open_prepared
from mue.data.prepared.splits import Split, split_of
from mue.data.prepared.write import write_prepared

CPU = torch.device("cpu")
AUGMENT = AugmentConfig(rotate=180.0, scale=0.2, shift=0.1, flip=True, intensity=0.2)


@pytest.fixture(scope="module")
def prepared(lesions):
    return open_prepared(lesions)


@pytest.fixture(scope="module")
def striped(tmp_path_factory):
    """Slices of 5 x 7: rater j annotates the pixels j, j + 4, j + 8, …, and slice i is grey i."""
    masks = (np.arange(35) % 4 == np.arange(4)[:, None]).reshape(4, 5, 7)
    names = [name for name in (f"p-{i}" for i in range(100)) if split_of(name) == "train"][:10]
    items = [
        Item(
            patient=name,
            case="n",
            slice="0",
            source="",
            image=np.full((1, 5, 7), 10 * i, np.uint8),
            masks=masks.astype(np.uint8),
        )
        for i, name in enumerate(names)
    ]
    folder = tmp_path_factory.mktemp("striped") / "out"
    write_prepared(items, folder, {})
    return open_prepared(folder)


def rater(y: torch.Tensor) -> torch.Tensor:
    """Which rater of `striped` annotated each mask: b r."""
    return y.flatten(2)[:, :, :4].argmax(dim=2)


def test_only_the_training_split_must_give_pairs(lesion, patients, tmp_path):
    """Val may have images of several sizes, and fewer raters than are sampled in training."""
    items = [lesion(name, 1, k) for name in patients("train", 1) for k in (0, 1)]
    weights = (0.4, 0.3, 0.2, 0.1)
    items = [dataclasses.replace(item, weights=weights) for item in items]
    for name, side in zip(patients("val", 2), (16, 20), strict=True):
        found = lesion(name, 1, 0, side=side)
        items.append(dataclasses.replace(found, masks=found.masks[:1]))
    write_prepared(items, tmp_path / "out", {})
    config, options = DataConfig(name="slices", answers=6), {"seed": 0, "device": CPU}
    train = build_source(config, "train", data=tmp_path / "out", **options)
    assert train.pair(torch.arange(3)).y.shape[1] == 6
    val = build_source(config, "val", data=tmp_path / "out", **options)
    assert [val.case(torch.tensor([i])).x.shape[2] for i in range(2)] == [16, 20]


# --- cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_case_is_a_slice_as_it_was_written_with_every_rater(prepared, split: Split):
    source = Slices(prepared, split, DataConfig(augment=AUGMENT))
    member = prepared.members(split)
    assert len(source) == len(member) == (16 if split == "train" else 12)
    case = source.case(torch.arange(len(source)))
    for i, row in enumerate(member.tolist()):
        x = torch.from_numpy(np.array(prepared.image(row)))
        assert torch.equal(case.x[i], x / 255)
        assert torch.equal(case.ys[i, :, 0], torch.from_numpy(prepared.masks_of(row)).float())
        assert case.id[i] == prepared.rows[row].id
        assert case.group[i] == prepared.rows[row].patient
    assert torch.equal(case.q, torch.full((len(source), 4), 0.25))
    assert {split_of(patient) for patient in case.group} == {split}


def test_masks_whose_pixels_fill_no_whole_bytes_are_unpacked(striped):
    case = Slices(striped, "train").case(torch.tensor([3, 0]))
    j = torch.arange(35).view(5, 7) % 4
    for i in range(4):
        assert torch.equal(case.ys[:, i, 0], (j == i).float().expand(2, 5, 7))
    assert case.x[0].unique().tolist() == pytest.approx([30 / 255])
    assert not case.x[1].any()


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("raters", [1, 4])
def test_an_item_is_the_same_in_any_batch(prepared, raters):
    config = DataConfig(answers=raters, augment=AUGMENT)
    source = Slices(prepared, "train", config, seed=7)
    index = torch.tensor([3, 10**12, 0, 77])
    pair = source.pair(index)
    for place, i in enumerate(index):
        alone = source.pair(i[None])
        torch.testing.assert_close(alone.x[0], pair.x[place])
        assert torch.equal(alone.y[0], pair.y[place])
    again = Slices(prepared, "train", config, seed=7).pair(index)
    assert torch.equal(again.x, pair.x)
    assert torch.equal(again.y, pair.y)


def test_another_seed_and_another_index_are_other_items(prepared):
    one = Slices(prepared, "train", DataConfig(augment=AUGMENT), seed=0).pair(torch.arange(50))
    two = Slices(prepared, "train", DataConfig(augment=AUGMENT), seed=1).pair(torch.arange(50))
    assert (one.x != two.x).flatten(1).any(dim=1).all()
    assert len({x.numpy().tobytes() for x in one.x}) == 50  # a view of its own each time


def test_a_pair_without_views_is_a_slice_with_some_of_its_own_masks(prepared):
    source = Slices(prepared, "train", DataConfig(answers=2))
    pair, case = source.pair(torch.arange(100)), source.case(torch.arange(16))
    for x, y in zip(pair.x, pair.y, strict=True):
        (at,) = [i for i in range(16) if (case.x[i] - x).abs().max() < 1e-6]
        assert all((case.ys[at] == mask).flatten(1).all(dim=1).any() for mask in y)


def test_slices_are_sampled_equally_often(striped):
    """Of 10 slices, each in a tenth of 5,000 samples, up to 4 deviations of a binomial count."""
    grey = Slices(striped, "train").pair(torch.arange(5000)).x[:, 0, 2, 3]
    count = (grey * 255 / 10).round().long().bincount(minlength=10)
    assert count.shape == (10,)
    assert ((count - 500).abs() < 4 * (5000 * 0.1 * 0.9) ** 0.5).all()


@pytest.mark.parametrize("raters", [1, 2, 3, 4])
def test_raters_differ_within_an_item_and_turn_up_equally_often(striped, raters):
    pair = Slices(striped, "train", DataConfig(answers=raters)).pair(torch.arange(4000))
    assert pair.y.shape == (4000, raters, 1, 5, 7)
    who = rater(pair.y)
    assert (who.sort(dim=1).values.diff(dim=1) > 0).all()
    for place in range(raters):  # in no order
        count = who[:, place].bincount(minlength=4)
        assert ((count - 1000).abs() < 4 * (4000 * 0.25 * 0.75) ** 0.5).all()


def test_four_answers_are_all_the_raters(striped):
    who = rater(Slices(striped, "train", DataConfig(answers=4)).pair(torch.arange(50)).y)
    assert torch.equal(who.sort(dim=1).values, torch.arange(4).expand(50, 4))


# --- what is refused ------------------------------------------------------------------------------


def test_a_split_of_nobody_is_refused_by_name(striped):
    words = r"out has no slice of a patient of the split 'test'; it has 10 patients in all"
    with pytest.raises(ValueError, match=words):
        Slices(striped, "test")


@pytest.mark.parametrize("raters", [5, 64])
def test_more_raters_than_there_are_are_refused(striped, raters):
    words = rf"data.answers must be in 1..4 \(the raters of .*out\), got {raters}"
    source = Slices(striped, "train", DataConfig(answers=raters))
    with pytest.raises(ValueError, match=words):
        source.pair(torch.arange(2))


# --- from a configuration -------------------------------------------------------------------------


def test_prepared_data_needs_a_folder_and_generated_data_takes_none(lesions):
    slices, toy = DataConfig(name="slices", answers=4, augment=AUGMENT), DataConfig(name="toy")
    found = build_source(slices, "val", seed=3, device=CPU, data=lesions)
    own = Slices(open_prepared(lesions), "val", slices, seed=3)
    index = torch.arange(20)
    assert torch.equal(found.pair(index).x, own.pair(index).x)
    assert torch.equal(found.pair(index).y, own.pair(index).y)
    with pytest.raises(ValueError, match=r"--data must name a folder .*make one by `mue data imp"):
        build_source(slices, "val", seed=3, device=CPU)
    with pytest.raises(ValueError, match=r"--data must be left out for 'toy', whose inputs are"):
        build_source(toy, "val", seed=3, device=CPU, data=lesions)


@pytest.mark.parametrize("name", ["guess", "toy", "vector"])
def test_generated_inputs_of_val_are_others_than_those_of_train_and_test(name):
    config, index = DataConfig(name=name), torch.arange(40)
    seen = [
        build_source(config, split, seed=0, device=CPU).pair(index).x
        for split in ("train", "val", "test")
    ]
    for i, j in ((0, 1), (1, 2)):
        same = (seen[i] == seen[j]).flatten(1).all(dim=1).float().mean()
        assert same < 0.25  # there are 32 images of two bars, so a few are alike by chance


# --- streamed -------------------------------------------------------------------------------------


def test_slices_that_stay_in_their_files_are_the_same(prepared):
    config = DataConfig(answers=2, augment=AUGMENT)
    here = Slices(prepared, "train", config, seed=3)
    there = Slices(prepared, "train", config, seed=3, on_device=False)
    index = torch.arange(20)
    a, b = here.pair(index), there.pair(index)
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.y, b.y)
    a, b = here.case(index[:5]), there.case(index[:5])
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.ys, b.ys)
    assert here.on_device
    assert not there.on_device


def test_slices_stay_in_their_files_where_they_would_take_too_much_memory(lesions, monkeypatch):
    config = DataConfig(name="slices")

    def resident() -> bool:
        return build_source(
            config, "train", seed=0, device=CPU, data=lesions, resident="auto"
        ).on_device

    assert resident()
    monkeypatch.setattr("mue.data.build.os.sysconf", lambda _: 10)
    assert not resident()
    monkeypatch.undo()
    monkeypatch.delattr("mue.data.build.os.sysconf_names")  # as on Windows
    assert not resident()
