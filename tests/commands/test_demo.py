import json

import mue


def test_the_demonstration_judges_both_bundled_models(tmp_path):
    calls: list[tuple[str, int, int]] = []
    found = mue.demo(tmp_path, inputs=8, progress=lambda *a: calls.append(a))
    reports = found.reports
    assert calls == [("guess", 8, 8), ("guess-exact", 8, 8)]
    assert json.loads((tmp_path / "report.json").read_text()) == reports
    for model, method in (("guess", "vq"), ("guess-exact", "exact")):
        assert reports[model]["method"] == method
        assert reports[model]["mode_tv"]["mean"] < 0.1
        for name in ("modes", "answers", "tree"):
            path = tmp_path / "figures" / model / f"{name}.png"
            assert path.is_file()
            assert path in found.files
    assert found.files[0] == tmp_path / "report.json"
