"""Everything that is done with a model works where images differ in size and number of raters."""

import dataclasses
from pathlib import Path

import pytest
import torch

import mue
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared
from mue.evaluation.health import health
from mue.evaluation.items import of_one_size, split_batches
from mue.evaluation.raters import evaluate_raters
from mue.metrics.energy import ged
from mue.runs.log import read_validations

SIDES = (12, 16, 20)


@pytest.fixture(scope="module")
def mixed(patients, lesion, tmp_path_factory) -> Path:
    """Prepared slices of three sizes, of one to four raters, some of them weighted."""
    names = patients("train", 4) + patients("val", 4) + patients("test", 4)
    items = []
    for i, name in enumerate(names):
        for k in range(3):
            item = lesion(name, 1, k, side=SIDES[(i + k) % 3])
            count = 1 + (i + 2 * k) % 4
            weights = tuple(float(j + 1) for j in range(count)) if k == 2 else None
            items.append(dataclasses.replace(item, masks=item.masks[:count], weights=weights))
    folder = tmp_path_factory.mktemp("mixed") / "prepared"
    write_prepared(items, folder, {"form": "made up"})
    return folder


def test_batches_hold_every_item_once_in_order_and_one_size_each(mixed):
    source = Slices(open_prepared(mixed), "test")
    index = torch.arange(len(source))
    parts = list(split_batches(source, index, 3))
    assert torch.equal(torch.cat(parts), index)
    assert [len({source.sizes[i] for i in part.tolist()}) for part in parts] == [1] * len(parts)
    assert [len(part) for part in parts] == [3, 1, 3, 1, 3, 1]
    alike = of_one_size(source, torch.tensor([5, 0, 4, 11, 6]))
    assert {source.sizes[i] for i in alike.tolist()} == {source.sizes[5]}
    assert alike[0] == 5


def test_an_evaluation_is_that_of_each_image_with_its_own_raters(mixed, lesion_model):
    predictor, prepared = mue.load(lesion_model, device="cpu"), open_prepared(mixed)
    found = evaluate_raters(predictor, mixed)
    source = Slices(prepared, "test", predictor.config.data)
    assert found.id == tuple(row.id for row in source.rows)
    for i, row in enumerate(source.rows):
        case = source.case(torch.tensor([i]))
        there = case.q[0] > 0
        h = predictor.propose(
            case.x, predictor.max_answers, min_prob=1e-4, normalized=True
        ).normalized()
        alone = ged(h.y > 0.5, h.prob, case.ys[:, there] > 0.5, case.q[:, there])
        torch.testing.assert_close(found.columns["ged"][i], alone[0], atol=1e-5, rtol=0)
        raters = int(prepared.items["raters"][prepared.rows.index(row)])
        assert there.sum() == raters
    one_by_one = evaluate_raters(predictor, mixed, batch=1)
    for name in ("ged", "dice_top", "coverage_1", "presence", "annotated", "hm_iou_16"):
        torch.testing.assert_close(found.columns[name], one_by_one.columns[name], atol=1e-5, rtol=0)


def test_a_model_is_trained_validated_calibrated_plotted_and_compared(
    mixed, lesion_config, tmp_path
):
    data = dataclasses.replace(lesion_config.data, patch=(12, 8), foreground=0.5)
    train = dataclasses.replace(
        lesion_config.train, steps=6, save_every=3, validate_every=3, calibrate=True
    )
    config = dataclasses.replace(lesion_config, data=data, train=train)
    run = mue.train(config, tmp_path / "run", data=mixed).folder
    assert mue.evaluate(run, data=mixed, device="cpu").report["slices"] == 12
    mue.calibrate(run, data=mixed, out=tmp_path / "calibrated", device="cpu")
    for by in ("mode", "code"):
        files = mue.figure(run, data=mixed, by=by, out=tmp_path / by, device="cpu").files
        assert all(path.is_file() for path in files)
    pair = [run, tmp_path / "calibrated"]
    mue.compare(pair, data=mixed, out=tmp_path / "compared", device="cpu")
    report = health(mue.load(run, device="cpu"), Slices(open_prepared(mixed), "val", data))
    assert report.inputs == 12


def test_a_model_of_whole_images_of_one_size_is_validated_on_several(
    patients, lesion, lesion_config, tmp_path
):
    items = [lesion(patients("train", 1)[0], 1, k) for k in range(4)]
    items += [lesion(patients("val", 1)[0], 1, k, side=side) for k, side in enumerate(SIDES)]
    write_prepared(items, tmp_path / "data", {"form": "made up"})
    train = dataclasses.replace(lesion_config.train, steps=2, validate_every=2)
    config = dataclasses.replace(lesion_config, train=train)
    run = mue.train(config, tmp_path / "run", data=tmp_path / "data").folder
    assert len(read_validations(run)) == 1


def test_models_of_whole_images_are_compared_on_images_of_several_sizes(
    mixed, lesion_baselines, tmp_path
):
    pair = [lesion_baselines["exact"], lesion_baselines["ensemble"]]
    found = mue.compare(pair, data=mixed, out=tmp_path / "compared", device="cpu").models
    for model, folder in zip(found, pair, strict=True):
        alone = evaluate_raters(mue.load(folder, device="cpu"), mixed)
        assert model.metrics["ged"].mean == pytest.approx(alone.columns["ged"].mean().item())


def test_whole_images_of_different_sizes_are_refused(mixed, lesion_config, tmp_path):
    with pytest.raises(ValueError, match=r"data.patch must be a size, got 0 0: images of 12 x 12"):
        mue.train(lesion_config, tmp_path / "run", data=mixed)
    assert not (tmp_path / "run").exists()
