"""Several processes do together what one does alone."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from mue import distributed
from mue.config import CodebookConfig, Config, ModelConfig, ObjectiveConfig, TrainConfig
from mue.data.toy import Bars
from mue.nn.codebook import Usage
from mue.train import Training, batch_index, fit, measure

CPU = torch.device("cpu")
Method = Literal["vq", "exact"]


def tiny(method: Method, batch: int = 16) -> Config:
    return Config(
        method=method,
        model=ModelConfig(levels=(8, 8), tail=(8,), widths=(8,), norm="group"),
        codebook=CodebookConfig(size=6, width=3, decay=0.9),
        objective=ObjectiveConfig(temperature=2.0, balance_until=0.5),
        train=TrainConfig(steps=8, batch=batch, lr=1e-3, clip=1.0, average=0.9),
    )


def trained(method: Method) -> dict[str, Any]:
    """What a whole short training leaves behind, and what it says about its last step."""
    training = Training(tiny(method), CPU)
    record = [asdict(measure(step, 0.0)) for step in fit(training, Bars())][-1]
    return {"weights": training.learner.state_dict(), "export": training.export(), "log": record}


def updated(rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """A code book after three updates with this process's share of the encodings."""
    torch.manual_seed(0)
    codes, usage = torch.randn(5, 3), Usage(5, decay=0.9)
    for _ in range(3):
        e, index = torch.randn(8, 3), torch.randint(4, (8,))  # code 4 is never chosen
        usage.update_(codes, e[rank::world], index[rank::world])
    return {"codes": codes, "count": usage.count}


def revived(rank: int = 0) -> dict[str, Tensor]:
    """A code book with an idle code, revived by encodings that differ between processes."""
    codes, usage = torch.zeros(3, 1), Usage(3)
    usage.count.copy_(torch.tensor([1.0, 1.0, 0.0]))
    usage.revive_(codes, torch.tensor([[1.0], [2.0]]) + 10 * rank, torch.tensor([3.0, 4.0 - rank]))
    return {"codes": codes, "count": usage.count}


def work(rank: int, folder: Path) -> None:
    """All that one of two processes does: starting processes is slow, so it is done once."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    found = {
        "identity": (distributed.rank(), distributed.world()),
        "mean": distributed.all_mean(torch.tensor([1.0, 5.0]) * (rank + 1)),
        "items": batch_index(tiny("vq"), 3, CPU),
        "updated": updated(rank, world=2),
        "revived": revived(rank),
        "vq": trained("vq"),
        "exact": trained("exact"),
    }
    try:
        batch_index(tiny("vq", batch=15), 0, CPU)
    except ValueError as error:
        found["odd"] = str(error)
    torch.save(found, folder / f"{rank}.pt")
    distributed.stop_()


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1])  # where the new processes find this file
        spawn(work, (folder,), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


def test_processes_know_who_they_are(two):
    assert [one["identity"] for one in two] == [(0, 2), (1, 2)]
    assert (distributed.rank(), distributed.world()) == (0, 1)


def test_the_mean_is_over_processes(two):
    for one in two:
        assert one["mean"].tolist() == [1.5, 7.5]
    assert distributed.all_mean(torch.tensor(3.0)) == 3


def test_shares_of_a_batch_make_up_the_batch(two):
    together = torch.cat([one["items"] for one in two])
    assert torch.equal(together, batch_index(tiny("vq"), 3, CPU))
    assert together.tolist() == list(range(48, 64))  # the fourth batch of 16


def test_a_batch_that_cannot_be_shared_is_refused(two):
    assert two[0]["odd"] == "train.batch must be a multiple of the 2 processes, got 15"


def test_two_processes_update_the_code_book_as_one(two):
    for one in two:
        torch.testing.assert_close(one["updated"], updated())


def test_a_code_is_revived_alike_in_every_process(two):
    for one in two:
        assert one["revived"]["codes"].flatten().tolist() == [0, 0, 2]  # process 0's encodings
        assert one["revived"]["count"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("method", ["vq", "exact"])
def test_two_processes_train_as_one(two, method):
    alone = trained(method)
    for name, value in two[0][method]["weights"].items():
        assert torch.equal(value, two[1][method]["weights"][name]), name
    for one in two:
        torch.testing.assert_close(one[method], alone, rtol=1e-4, atol=1e-5)


def test_the_training_that_was_compared_is_not_idle():
    """Its steps are far larger than the tolerance of the comparison, and move the codes too."""
    for method in ("vq", "exact"):
        fresh = Training(tiny(method), CPU).learner.state_dict()
        for name, value in trained(method)["weights"].items():
            assert (value - fresh[name]).abs().max() > 1e-3, name
