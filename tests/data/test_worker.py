import subprocess

from mue.data.worker import end_worker, start_worker

SHOW = "mue.data.images.isolated"  # it reads lines until its pipe is closed


def test_a_process_ends_when_its_pipe_is_closed():
    worker = start_worker(SHOW, stderr=subprocess.DEVNULL)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(timeout=60) == 0
    assert worker.stdout is not None
    assert worker.stdout.read() == b""
    worker.stdout.close()


def test_a_process_is_ended_whatever_it_does():
    worker = start_worker(SHOW, stderr=subprocess.DEVNULL)
    assert worker.poll() is None
    end_worker(worker)
    assert worker.returncode != 0
    for pipe in (worker.stdin, worker.stdout):
        assert pipe is not None
        assert pipe.closed
