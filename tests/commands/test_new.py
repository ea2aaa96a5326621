import json

import numpy as np
from PIL import Image

from mue.data.images.reader import read_image_file
from mue.data.synthetic.two_digits import two_digits


def test_an_example_is_written_in_the_layout_with_a_readme(mue, tmp_path):
    said = mue("data", "new", "example", "--cases", 40)
    assert said.code == 0, said
    assert "example: 30 cases to learn from, 10 to test" in said.out
    assert "mue data import folder example --out example-prepared" in said.out
    folder = tmp_path / "example"
    content = json.loads((folder / "dataset.json").read_text())
    assert content["labels"] == {"background": 0, "red": 1, "blue": 2}
    assert content["rater_weights"] == {"r0": 0.5, "r1": 0.3, "r2": 0.2}
    counts = {path.name: len(list(path.iterdir())) for path in folder.iterdir() if path.is_dir()}
    assert counts == {"imagesTr": 30, "labelsTr": 90, "imagesTs": 10, "labelsTs": 30, "dicom": 3}
    wanted = two_digits("test", 0, 35)
    with Image.open(folder / "imagesTs" / "case-00035_0000.png") as file:
        assert np.array_equal(np.asarray(file).transpose(2, 0, 1), wanted.image)
    with Image.open(folder / "labelsTs" / "case-00035_r1.png") as file:
        assert np.array_equal(np.asarray(file), wanted.masks[1])
    assert "mue train auto --data example-prepared" in (folder / "README.md").read_text()


def test_three_test_images_are_also_dicom(mue, tmp_path):
    for folder in ("one", "two"):
        assert mue("data", "new", folder, "--cases", 40).code == 0
    files = sorted((tmp_path / "one" / "dicom").iterdir())
    assert [file.name for file in files] == [f"case-{i:05}.dcm" for i in (30, 31, 32)]
    for i, file in enumerate(files, start=30):
        assert np.array_equal(read_image_file(file).pixels[:, 0], two_digits("test", 0, i).image)
        assert file.read_bytes() == (tmp_path / "two" / "dicom" / file.name).read_bytes()


def test_a_folder_with_files_and_too_few_cases_are_refused(mue, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "image.png").touch()
    said = mue("data", "new", "mine", "--cases", 40)
    assert (said.code, said.err) == (
        2,
        "mue: mine must be empty or not exist yet, and it holds files\n",
    )
    said = mue("data", "new", "other", "--cases", 3)
    assert (said.code, said.err) == (2, "mue: `cases` must be 20 to 100000, got 3\n")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "image.png"]
