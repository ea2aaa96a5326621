import os
import signal
import threading

import pytest

from mue.runtime.signals import handled, interrupt


def test_a_handler_is_called_within_the_block_and_the_one_before_is_put_back():
    before, got = signal.getsignal(signal.SIGTERM), list[int]()
    with handled(("SIGTERM", "SIGNOTHING"), lambda number, _: got.append(number)):
        os.kill(os.getpid(), signal.SIGTERM)
    assert got == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_one_before_is_put_back_after_an_error():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), handled(("SIGTERM",), interrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handled(("SIGHUP",), interrupt):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_of_the_main_thread_nothing_changes():
    before, seen = signal.getsignal(signal.SIGTERM), list[object]()

    def work() -> None:
        with handled(("SIGTERM",), interrupt):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
