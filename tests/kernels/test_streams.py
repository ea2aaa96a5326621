import torch

from mue.kernels.streams import SideStreams


def test_on_a_cpu_the_block_runs_at_once():
    streams, result, given = SideStreams(), torch.zeros(2), torch.ones(2)
    ready = streams.event(result.device)
    with streams.run(result, given, after=ready):
        result += given
    streams.join()
    assert result.tolist() == [1, 1]
