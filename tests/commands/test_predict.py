from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import mue
from mue.data.synthetic.toy import Bars


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def images(tmp_path) -> list[Path]:
    paths = [tmp_path / "images" / f"{name}.png" for name in ("one", "two")]
    paths[0].parent.mkdir()
    for i, path in enumerate(paths):
        x = Bars(seed=i).case(torch.tensor([0])).x[0, 0]
        Image.fromarray((x * 255).round().byte().numpy()).save(path)
    return paths


def test_image_files_are_answered_as_arrays_are(trained, images, tmp_path):
    out = tmp_path / "out"
    written = mue.predict(trained, images, k=3, by="code", out=out, device="cpu")
    result = mue.predict(trained, images, k=3, by="code", device="cpu")
    assert written.report == result.report
    predictor = mue.load(trained, device="cpu")
    for prediction, path in zip(result.predictions, images, strict=True):
        with Image.open(path) as file:
            h = predictor.propose(np.array(file), k=3)
        assert prediction.image == path
        torch.testing.assert_close(prediction.modes.y, h.y)
        summary = prediction.summary()
        assert [a["rank"] for a in summary["answers"]] == [1, 2, 3]
        assert [a["code"] for a in summary["answers"]] == h.code[0].tolist()
        assert [a["prob"] for a in summary["answers"]] == pytest.approx(h.prob[0].tolist())
        assert summary["rest"] == pytest.approx(h.rest.item(), abs=1e-6)
        assert summary["entropy"] == pytest.approx(h.entropy().item(), abs=1e-5)
        for j in range(3):
            with Image.open(out / f"{path.stem}-{j + 1}.png") as file:
                y = torch.from_numpy(np.array(file)).float() / 255
            torch.testing.assert_close(y, h.y[0, j, 0], atol=0.51 / 255, rtol=0)
    names = {f"{p.stem}-{part}.png" for p in images for part in ("1", "2", "3", "answers")}
    assert set(files(out)) == {*names, "mue-predict.json"}
    assert {path.name for path in written.files} == names


def test_modes_are_of_all_codes_and_keep_their_whole_probability(trained, images):
    (found,) = mue.predict(trained, images[:1], k=2, device="cpu").predictions
    predictor = mue.load(trained, device="cpu")
    modes = predictor.modes(found.x)
    assert torch.equal(found.modes.prob, modes.prob[:, :2])
    answers = found.summary()["answers"]
    for i, answer in enumerate(answers):
        assert answer["rank"] == i + 1
        assert sum(m["prob"] for m in answer["members"]) == pytest.approx(answer["prob"], abs=1e-6)
        assert answer["code"] in [m["code"] for m in answer["members"]]
    known = sum(answer["prob"] for answer in answers) + found.summary()["rest"]
    assert known == pytest.approx(1, abs=1e-5)


def test_nothing_is_written_when_one_of_the_images_is_bad(trained, images, tmp_path):
    images[1].write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"two\.png must be an image file"):
        mue.predict(trained, images, k=2, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_images_of_one_name_cannot_share_a_folder(trained, images, tmp_path):
    with pytest.raises(ValueError, match="`images` must have different names"):
        mue.predict(trained, [images[0], images[0]], k=2, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_no_images_are_refused(trained):
    with pytest.raises(ValueError, match="`images` must name at least one image file, got none"):
        mue.predict(trained, [])


def test_answers_do_not_overwrite_what_is_there(trained, images):
    """The first answer to `one` would be `one-1`, which is somebody's image."""
    images[1].rename(images[1].with_name("one-1.png"))
    before = files(images[0].parent)
    with pytest.raises(ValueError, match="must be empty or not exist yet"):
        mue.predict(trained, images[:1], k=2, out=images[0].parent, device="cpu")
    assert files(images[0].parent) == before
