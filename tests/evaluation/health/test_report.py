import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Int
from torch import Tensor

import mue
import mue.evaluation.health.measured as judging
from mue.commands.import_lidc import import_lidc
from mue.config.schema import ModesConfig
from mue.data.build import build_source
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared
from mue.data.random import normal
from mue.data.source import Source
from mue.data.synthetic.guess import GuessingGame
from mue.data.synthetic.toy import SIDE, Bars
from mue.data.synthetic.vector import Rotations
from mue.errors import MueError
from mue.evaluation.health import HealthReport, health
from mue.evaluation.known import evaluate_modes
from mue.inference.predictor import Predictor
from mue.models.build import build_network
from mue.models.modal import Modal
from mue.types import Case, Hypotheses, Pair

CPU = torch.device("cpu")
Runs = Callable[..., Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Trains a preset with a number of codes, steps and a seed, each once."""
    made: dict[object, Path] = {}

    def make(name: str, *, codes: int | None = None, steps: int | None = None, seed: int = 0):
        if (key := (name, codes, steps, seed)) not in made:
            c = mue.preset(name)
            size, steps = codes or c.codebook.size, steps or c.train.steps
            train = replace(c.train, seed=seed, steps=steps)
            config = replace(c, codebook=replace(c.codebook, size=size), train=train)
            made[key] = mue.train(config, tmp_path_factory.mktemp("health") / "run").folder
        return made[key]

    return make


def judged(predictor: Predictor) -> HealthReport:
    held, train = (
        build_source(predictor.config.data, split, seed=0, device=CPU) for split in ("val", "train")
    )
    return health(predictor, held, train=train)


@pytest.fixture(scope="module")
def bundled() -> HealthReport:
    """The report of the bundled model of the guessing game, with whose weights tests play."""
    return judged(mue.load("bundled:guess", device="cpu"))


def kinds(report: HealthReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def edited(folder: Path | str, edit: Callable[[Modal], None], keep: Iterable[int]) -> Predictor:
    """A trained model after a change of its weights, with some of its codes alone."""
    predictor = mue.load(folder, device="cpu")
    modal, idle = predictor.network, torch.ones(predictor.codes, dtype=torch.bool)
    assert isinstance(modal, Modal)
    with torch.no_grad():
        edit(modal)
        idle[list(keep)] = False
        modal.prior.bias[idle] = -100
    return predictor


# --- nothing is said of good models ---------------------------------------------------------------


def test_a_good_run_is_healthy(run):
    """So are those of tests/test_recovers.py."""
    report = judged(mue.load(run("toy", seed=2), device="cpu"))
    assert report.findings == ()
    assert report.mode_tv is not None
    assert report.mode_tv.mean < report.mode_tv.p95 < 0.1
    about = f"mode_tv {report.mode_tv.mean:.3f}, 95th percentile {report.mode_tv.p95:.3f}"
    about = f"codes in use: {len(report.codes)}; {about}; held-back inputs: 256"
    assert report.verdict == f"healthy ({about})"


@pytest.mark.parametrize("name", ["guess", "guess-exact"])
def test_the_bundled_models_of_the_guessing_game_are_healthy(name, bundled):
    report = bundled if name == "guess" else judged(mue.load(f"bundled:{name}", device="cpu"))
    assert report.findings == ()
    assert len(report.codes) == 4
    for code in report.codes:
        assert code.frequency == pytest.approx(code.prior, abs=0.01)
        assert (code.blends, code.duplicates) == (0, ())


@pytest.mark.data
@pytest.mark.slow
def test_real_raters_who_disagree_are_no_finding(real_data, tmp_path):
    archives = real_data("lidc/lidc-slices-val.tar.gz", "lidc/lidc-slices-train-0.tar.gz")
    prepared = open_prepared(import_lidc(archives, out=tmp_path / "lidc").folder)
    predictor = mue.load("bundled:lidc-exact", device="cpu")
    val, train = (Slices(prepared, split) for split in ("val", "train"))
    report = health(predictor, val, train=train, inputs=100)
    assert report.findings == ()
    assert report.missed < 0.1


# --- each trouble has its name --------------------------------------------------------------------


def test_one_code_only_is_named(run):
    report = judged(mue.load(run("toy", codes=1, steps=100), device="cpu"))
    assert kinds(report) == ["one code"]
    assert "100% of the inputs differ" in report.findings[0].description


def test_one_code_is_enough_where_known_answers_agree(run):
    class Agreed(Bars):
        def case(self, index: Int[Tensor, " b"]) -> Case:
            c = super().case(index)
            return replace(c, ys=c.ys[:, :1], q=torch.ones(len(index), 1))

    alone = edited(run("toy", seed=2), lambda _: None, [0])
    assert kinds(judged(alone)) == ["one code"]
    agreed = health(alone, Agreed(seed=3))
    assert [c.code for c in agreed.codes] == [0]
    assert "one code" not in kinds(agreed)


def test_two_modes_in_one_code_are_named(run):
    report = judged(mue.load(run("vector", codes=2, steps=800), device="cpu"))
    assert set(kinds(report)) == {"blend"}
    codes = [c.code for c in report.codes if c.blends > 0.1]
    for code, finding in zip(codes, report.findings, strict=True):
        assert f"Code {code} stands for different" in finding.description


def test_four_codes_for_one_mode_are_named(run):
    good = run("toy", seed=0)
    first, *others = judged(mue.load(good, device="cpu")).codes
    other = next(c.code for c in others if c.code not in first.duplicates)
    same = [first.code, *(i for i in range(6) if i not in (first.code, other))][:4]

    def copy(modal: Modal) -> None:
        for parameter in (modal.codebook.codes, modal.prior.weight, modal.prior.bias):
            parameter[same] = parameter[first.code].clone()
        modal.prior.bias[same] -= math.log(4)

    report = judged(edited(good, copy, [*same, other]))
    assert kinds(report) == ["duplicates"]
    codes = ", ".join(map(str, sorted(same)))
    assert (
        report.findings[0].description == f"4 codes have the same answer to most inputs: {codes}."
    )


@pytest.mark.parametrize(("factor", "kind"), [(4.0, "too sure"), (0.2, "too unsure")])
def test_a_prior_too_sure_or_unsure_is_named_with_calibration_as_the_remedy(factor, kind, bundled):
    def scale(modal: Modal) -> None:
        modal.prior.weight *= factor
        modal.prior.bias *= factor

    used = [c.code for c in bundled.codes]
    report = judged(edited("bundled:guess", scale, used))
    assert kinds(report) == [kind]
    assert "`mue calibrate`" in report.findings[0].remedy
    assert (report.predicted > report.observed) == (kind == "too sure")


def test_calibration_is_no_remedy_for_a_model_that_is_calibrated_already():
    def scale(modal: Modal) -> None:
        for parameter in (modal.prior.weight, modal.prior.bias):
            parameter *= 4

    predictor = edited("bundled:guess", scale, range(512))
    modes = ModesConfig(coverage=(0.5,), limits=(0.4,))
    predictor = Predictor(predictor.network, replace(predictor.config, modes=modes))
    (finding,) = health(predictor, GuessingGame("test"), inputs=64).findings
    assert finding.kind == "too sure"
    assert "this model is calibrated already" in finding.remedy


class NoisyBars(Bars):
    """Images that can be told apart. Of the first `count` of them one answer each is known."""

    def __init__(self, count: int, *, seed: int) -> None:
        super().__init__(seed=seed)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        item = index % self.count
        pair, noise = super().pair(item), normal(self.seed, item, SIDE * SIDE, salt=1)
        return Pair(pair.x + 0.2 * noise.view(-1, 1, SIDE, SIDE), pair.y)

    def case(self, index: Int[Tensor, " b"]) -> Case:
        pair, case = self.pair(index), super().case(index)
        return replace(case, x=pair.x, ys=pair.y, q=torch.ones(len(index), 1))


def test_over_fitting_is_named(tmp_path):
    few, others = NoisyBars(16, seed=5), NoisyBars(200, seed=6)
    c = mue.preset("toy")
    config = replace(c, train=replace(c.train, validate_every=0))
    folder = mue.train(config, tmp_path / "run", source=few).folder
    predictor = mue.load(folder, device="cpu")
    report = health(predictor, others, train=few)
    assert kinds(report)[-1] == "over-fitting"
    assert report.train_ged is not None
    assert report.train_ged.high < 0.1 < report.ged.low
    assert health(predictor, others).findings == report.findings[:-1]  # nothing to compare with


@pytest.fixture
def too_sure(bundled: HealthReport) -> Predictor:
    """The bundled model with logits that are four times too large."""

    def scale(modal: Modal) -> None:
        for parameter in (modal.prior.weight, modal.prior.bias):
            parameter *= 4

    return edited("bundled:guess", scale, [c.code for c in bundled.codes])


@pytest.mark.parametrize("inputs", [1, 4])
def test_probabilities_and_over_fitting_are_not_judged_by_a_few_inputs(too_sure, inputs):
    game = GuessingGame("test")
    report = health(too_sure, game, train=game, inputs=inputs)
    note = f"{inputs} held-back inputs are too few to judge the probabilities and over-fitting"
    assert report.notes == (note,)
    assert not {"too sure", "prior", "over-fitting"} & set(kinds(report))
    assert report.report()["notes"] == [note]


def test_a_verdict_without_findings_says_that_not_all_was_judged():
    report = health(mue.load("bundled:guess", device="cpu"), GuessingGame("test"), inputs=4)
    assert report.notes == ("4 held-back inputs are too few to judge the probabilities",)
    assert report.verdict.startswith("healthy, as far as it was judged (codes in use: 4; ")


def test_probabilities_are_judged_by_more_than_a_few_inputs(too_sure):
    report = health(too_sure, GuessingGame("test"), inputs=40)
    assert report.notes == ()
    assert kinds(report) == ["too sure"]


def test_over_fitting_is_not_judged_by_a_few_training_inputs(run):
    predictor, held = mue.load(run("toy", seed=2), device="cpu"), NoisyBars(20, seed=6)
    few, enough = (health(predictor, held, train=NoisyBars(n, seed=5)) for n in (4, 5))
    assert few.notes == ("4 training inputs are too few to judge over-fitting",)
    assert enough.notes == ()


# --- what is measured -----------------------------------------------------------------------------


def test_a_prior_that_does_not_look_at_the_input_is_named(bundled):
    """Right on average, so that it is neither too sure nor too unsure."""
    codes = bundled.codes

    def constant(modal: Modal) -> None:
        modal.prior.weight.zero_()
        for c in codes:
            modal.prior.bias[c.code] = math.log(c.frequency)

    report = judged(edited("bundled:guess", constant, [c.code for c in codes]))
    assert kinds(report) == ["prior"]
    # on average the digits are the answer with probability .1875 .3125 .1375 .3625, which is at a
    # distance of .175, .125, .3 and .3375 from those of A, B, C and D
    assert report.mode_tv is not None
    assert report.mode_tv.mean == pytest.approx(0.234, abs=0.02)
    assert report.mode_tv.p95 == pytest.approx(0.3375, abs=0.04)
    assert f"has a mean of {report.mode_tv.mean:.3f}" in report.findings[0].description


def test_a_prior_that_takes_a_few_inputs_for_others_is_named():
    """For one input in twelve it is that of another one: right on average, not too sure."""

    class Mixed(GuessingGame):
        def case(self, index: Int[Tensor, " b"]) -> Case:
            case = super().case(index)
            other = super().case(index + 1)
            return replace(case, q=torch.where(index[:, None] % 12 == 0, other.q, case.q))

    predictor = mue.load("bundled:guess", device="cpu")
    assert kinds(health(predictor, GuessingGame("test"))) == []
    report = health(predictor, Mixed("test"))
    assert kinds(report) == ["prior"]
    assert report.mode_tv is not None
    assert report.mode_tv.mean < 0.05 < 0.1 < report.mode_tv.p95


def test_mode_tv_is_that_of_the_evaluation_over_all_inputs():
    predictor = mue.load("bundled:guess", device="cpu")
    report = health(predictor, build_source(predictor.config.data, "val", seed=4, device=CPU))
    expected: Any = evaluate_modes(predictor, split="val", inputs=256, seed=4).report()["mode_tv"]
    assert report.mode_tv is not None
    assert asdict(report.mode_tv) == pytest.approx({k: expected[k] for k in ("mean", "p95")})


@pytest.mark.parametrize("known", [False, True])
def test_weights_of_raters_are_no_probabilities_unless_the_data_say_so(
    lesion_model, lesion, patients, tmp_path, known
):
    items = [
        replace(lesion(name, 1, k), weights=(0.4, 0.3, 0.2, 0.1))
        for name in patients("val", 3)
        for k in (9, 10)
    ]
    write_prepared(items, tmp_path / "data", {"form": "made up", "known_probabilities": known})
    source = Slices(open_prepared(tmp_path / "data"), "val")
    report = health(mue.load(lesion_model, device="cpu"), source)
    assert (report.mode_tv is not None) == known


class Played(GuessingGame):
    """A game that remembers the round it was asked for last."""

    last: Case

    def case(self, index: Int[Tensor, " b"]) -> Case:
        self.last = super().case(index)
        return self.last


def test_a_sampler_of_the_true_distribution_is_healthy(baselines):
    """The shares of 100 samples are off by 0.06 on average, as is said."""
    game, model = Played("test"), mue.load(baselines["probunet"], device="cpu")

    class Truth(Predictor):
        def propose(self, _, k, *, generator=None, **__):  # pyright: ignore
            y, q = game.last.ys, game.last.q
            which = torch.multinomial(q, k, replacement=True, generator=generator)
            y = y[torch.arange(len(y))[:, None], which]
            return Hypotheses(y, torch.full((len(y), k), 1 / k), torch.full((len(y), k), -1))

    report = health(Truth(model.network, model.config), game, inputs=64)
    assert report.findings == ()
    assert report.mode_tv is not None
    assert 0.05 < report.mode_tv.mean < 0.07


def test_codes_of_one_mode_are_compared_with_their_frequency_together(run, monkeypatch):
    """Two codes with the same answer: the improbable one explains a little better what is known."""
    good = run("toy", seed=0)
    first, *others, copy = judged(mue.load(good, device="cpu")).codes

    def duplicate(modal: Modal) -> None:
        for parameter in (modal.codebook.codes, modal.prior.weight, modal.prior.bias):
            parameter[copy.code] = parameter[first.code].clone()
        modal.prior.bias[copy.code] -= 3

    true = judging.answer_log_likelihood
    monkeypatch.setattr(
        judging,
        "answer_log_likelihood",
        lambda h, *rest: true(h, *rest) + 6.0 * (h.code == copy.code)[:, :, None],
    )
    used = [c.code for c in (first, *others, copy)]
    report = judged(edited(good, duplicate, used))
    found = {c.code: c for c in report.codes}
    assert found[first.code].prior > found[first.code].frequency + 0.25
    assert "prior" not in kinds(report)


def test_answers_unlike_the_known_ones_are_named(run):
    class Moved(Rotations):
        def case(self, index: Int[Tensor, " b"]) -> Case:
            c = super().case(index)
            return replace(c, ys=c.ys + 0.5)

    report = health(mue.load(run("vector"), device="cpu"), Moved(seed=3), inputs=50)
    assert kinds(report) == ["misses"]
    assert "100% of the known answers are unlike every answer" in report.findings[0].description


def test_memory_does_not_grow_with_the_square_of_the_number_of_codes():
    """A matrix of all pairs of these codes would take 17 GB."""
    c = mue.preset("toy-vq")
    config = replace(c, codebook=replace(c.codebook, size=65_536))
    network = build_network(config).eval()
    assert isinstance(network, Modal)
    with torch.no_grad():
        network.prior.weight.zero_()
        network.prior.bias[:] = -100
        network.prior.bias[[7, 65_535]] = torch.tensor([1.0, 0.0])
        network.codebook.codes[65_535] = network.codebook.codes[7]
    report = health(Predictor(network, config), Bars(seed=3), inputs=6)
    assert [(c.code, c.duplicates) for c in report.codes] == [(7, (65_535,)), (65_535, (7,))]
    assert sum(c.prior for c in report.codes) == pytest.approx(1)


def test_the_table_of_codes_adds_up(run):
    report = judged(mue.load(run("toy", seed=2), device="cpu"))
    assert sum(c.prior for c in report.codes) == pytest.approx(1, abs=0.02)
    assert sum(c.frequency for c in report.codes) == pytest.approx(1, abs=0.02)
    assert [c.prior for c in report.codes] == sorted((c.prior for c in report.codes), reverse=True)
    for c in report.codes:
        assert c.reconstruction >= 0
        for other in c.duplicates:
            assert c.code in next(d.duplicates for d in report.codes if d.code == other)


@pytest.mark.parametrize("name", ["probunet", "dropout", "ensemble", "mheads"])
def test_a_model_without_codes_is_judged_by_its_answers(baselines, name):
    report = health(mue.load(baselines[name], device="cpu"), Bars(seed=3), inputs=20)
    assert report.codes == ()
    assert "a model without codes" in report.verdict
    assert not {"one code", "blend", "duplicates"} & set(kinds(report))


def test_patients_are_the_unit_of_an_interval(lesion_model, lesions):
    predictor, prepared = mue.load(lesion_model, device="cpu"), open_prepared(lesions)
    report = health(predictor, Slices(prepared, "val"), train=Slices(prepared, "train"))
    assert report.inputs == 12
    by_slice = [health(predictor, One(Slices(prepared, "val"), i)).ged.mean for i in range(12)]
    patients = [sum(by_slice[i : i + 4]) / 4 for i in (0, 4, 8)]
    assert report.ged.mean == pytest.approx(sum(patients) / 3, abs=1e-5)
    assert report.ged.low == pytest.approx(min(patients), abs=1e-5)  # 1 of 27 resamples
    assert report.ged.high == pytest.approx(max(patients), abs=1e-5)
    words = "3 held-back patients are too few to judge the probabilities and over-fitting"
    assert report.notes == (words,)


class One:
    """One item of a data set."""

    def __init__(self, source: Source, item: int) -> None:
        self.source, self.item = source, item
        self.device, self.on_device = source.device, source.on_device

    def __len__(self) -> int:
        return 1

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        return self.source.pair(index + self.item)

    def case(self, index: Int[Tensor, " b"]) -> Case:
        return self.source.case(index + self.item)


def test_a_model_is_not_changed_and_the_report_is_json(run):
    predictor = mue.load(run("toy", seed=2), device="cpu")
    before = {name: p.clone() for name, p in predictor.network.named_parameters()}
    calls: list[tuple[int, int]] = []
    report = health(predictor, Bars(seed=9), inputs=40, progress=lambda *a: calls.append(a))
    assert all(torch.equal(before[name], p) for name, p in predictor.network.named_parameters())
    assert calls[-1] == (40, 40)
    content = json.loads(json.dumps(report.report()))
    assert content["verdict"] == report.verdict
    assert [c["code"] for c in content["codes"]] == [c.code for c in report.codes]
    assert content["train_ged"] is None
    assert len(report.case.x) == len(report.hypotheses.y) == 3
    assert set(report.case.group) == {"dim", "bright"}
    with pytest.raises(MueError, match=r"`inputs` must be in 1\.\.1000000000, got 0"):
        health(predictor, Bars(), inputs=0)
