import numpy as np
import pytest
from prepared_items import item

from mue.data.prepared.open import open_prepared
from mue.data.prepared.splits import SPLITS, split_of
from mue.data.prepared.write import write_prepared


@pytest.mark.parametrize(
    ("patient", "sha256", "bucket", "split"),
    [  # by sha256sum(1)
        (
            "LIDC-IDRI-0116",
            "e1fa6ef8fdcaa39cee04db3ad1f3c7ddd3e73ea1de7bd12f243a3c8a35a0b0a0",
            0,
            "train",
        ),
        (
            "LIDC-IDRI-0017",
            "5171880d4ab014a4a326f920d16a942fed00c28370d87d4ebbdb3e6c49eb6f7f",
            59,
            "train",
        ),
        (
            "LIDC-IDRI-0046",
            "9744318ceb2276b54af03e85fbd584c7e95858287df6c4d7132a5abc297e5148",
            60,
            "val",
        ),
        (
            "LIDC-IDRI-0093",
            "9bbbee9ab970b07e2b1c569f64e1d50e72156d705e89443f73d2ff443ba96ef9",
            69,
            "val",
        ),
        (
            "LIDC-IDRI-0080",
            "1659a4887ba30d6cbe0ba9e0808b8e69d0a55ed0346518779da79564d5fa7a6e",
            70,
            "test",
        ),
        (
            "LIDC-IDRI-0072",
            "8254e4f826fc3d09c7a556be284b3a6537121e2c7ccc02483909ca53dbfa0b4b",
            99,
            "test",
        ),
    ],
)
def test_a_split_is_a_range_of_buckets_of_the_hash_of_the_patient(patient, sha256, bucket, split):
    assert int(sha256, 16) % 100 == bucket
    assert split_of(patient) == split


def test_splits_share_out_the_slices_and_no_patient(tmp_path):
    names = [f"p-{i}" for i in range(60)]
    items = [item(name, "n", str(k)) for name in names for k in range(1 + len(name) % 3)]
    write_prepared(items, tmp_path / "out", {})
    found = open_prepared(tmp_path / "out")
    members = {split: found.members(split) for split in SPLITS}
    every = np.concatenate(list(members.values()))
    assert sorted(every.tolist()) == list(range(len(items)))
    who = [{found.rows[i].patient for i in member} for member in members.values()]
    assert all(who)
    assert sum(map(len, who)) == len(names)
    assert all((np.diff(member) > 0).all() for member in members.values())


def test_the_split_of_a_patient_does_not_depend_on_the_others(tmp_path):
    names = [f"p-{i}" for i in range(30)]
    for folder, some in (("all", names), ("few", names[::3])):
        write_prepared([item(name) for name in some], tmp_path / folder, {})
    every, few = (open_prepared(tmp_path / folder) for folder in ("all", "few"))
    for split in SPLITS:
        who = {every.rows[i].patient for i in every.members(split)}
        assert {few.rows[i].patient for i in few.members(split)} == who & set(names[::3])
