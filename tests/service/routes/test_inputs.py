"""What may be uploaded."""

from mue.data.images.formats import FORMATS, format_of


def test_what_may_be_uploaded_is_the_table_of_formats_and_the_limit(served):
    with served(body=12345) as client:
        found = client.get("/api/inputs").json()
    assert found["bytes"] == 12345
    assert [form["name"] for form in found["formats"]] == [form.name for form in FORMATS]
    for form in found["formats"]:
        for beginning in form["beginnings"]:
            head = b"\0" * form["at"] + beginning.encode("latin-1")
            read = format_of("", head)
            assert read is not None
            assert read.name == form["name"]
    dicom = next(form for form in found["formats"] if form["name"] == "DICOM")
    assert (dicom["beginnings"], dicom["at"]) == (["DICM"], 128)
