import dataclasses

import pytest

import ablation
from mue.kernels import Pieces

FOUND = {
    "guess": {"all": 0.002, "blocks": 0.004, "group_norm": 0.00202},
    "lidc-exact": {"all": 0.010, "blocks": 0.010, "group_norm": 0.0103},
    ablation.ANSWERS: {"all": 0.001, "cuda_graph": 0.003},
}


def test_the_table_has_a_row_for_each_piece_and_what_pays_is_bold():
    assert ablation.table(FOUND).splitlines() == [
        "| off | `guess`, ms | `lidc-exact`, ms | 16 answers of `lidc-exact`, ms |",
        "| --- | ---: | ---: | ---: |",
        "| nothing | 2.000 | 10.000 | 1.000 |",
        "| `blocks` | **4.000 (+100%)** | 10.000 (+0%) |  |",
        "| `group_norm` | 2.020 (+1%) | 10.300 (+3%) |  |",
        "| `cuda_graph` |  |  | **3.000 (+200%)** |",
    ]


def test_a_piece_is_not_needed_if_nothing_is_slower_without_it():
    assert ablation.unneeded(FOUND) == ["group_norm"]


def test_the_page_names_device_and_command():
    content = {"command": "python x", "device": "H", "torch": "2", "commit": "a" * 40}
    text = ablation.page(content | {"seconds": FOUND})
    assert text.startswith("    python x\n\n| off |")
    assert f"On H, torch 2, commit {'a' * 12}." in text
    assert text.endswith("Nothing is that much slower without `group_norm`.")


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Pieces)])
def test_one_piece_is_off_and_the_others_are_on(name: str):
    found = dataclasses.asdict(ablation.pieces_without(name))
    assert [k for k, on in found.items() if not on] == [name]
    assert all(dataclasses.asdict(ablation.pieces_without(ablation.ALL)).values())


def test_every_variant_of_a_preset_is_timed_in_turn(monkeypatch):
    asked: list[str] = []

    class Timer:
        def __init__(self, *_: str) -> None:
            self.job = ""

        def ask(self, job: str, calls: int) -> None:
            self.job = job
            asked.append(job)
            assert calls > 0

        def seconds(self) -> float:
            return 2.0 if self.job.endswith(ablation.ALL) else 3.0

        def close(self) -> None:
            pass

    names = ["blocks", "cuda_graph"]
    monkeypatch.setattr(ablation, "Timer", Timer)
    monkeypatch.setattr(ablation, "used_pieces", lambda _: names)
    assert ablation.measure_training("guess") == {"all": 2.0, "blocks": 3.0, "cuda_graph": 3.0}
    jobs = [f"train guess/{name}" for name in ("all", *names)]
    assert asked == jobs * (1 + ablation.REPEATS)
    assert ablation.measure_answers() == {"all": 2.0, "cuda_graph": 3.0}
