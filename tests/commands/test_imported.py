"""What every import returns."""

from mue.commands.imported import imported
from mue.data.prepared.item import Rejected
from mue.data.prepared.open import open_prepared


def test_the_result_of_an_import_counts_what_was_written_and_lists_its_files(lesions):
    left_out = (Rejected("a.png", "is empty"),)
    found = imported(lesions, left_out)
    assert (found.folder, found.rejected) == (lesions, left_out)
    assert set(found.files) == {path for path in lesions.rglob("*") if path.is_file()}
    about = found.summary
    assert (about.patients, about.cases, about.slices) == (10, 20, 40)
    assert about.digest == open_prepared(lesions).digest
