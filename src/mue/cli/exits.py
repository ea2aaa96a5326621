"""How a command ends: one sentence on stderr, and an exit code."""

import contextlib
import io
import sys
import time
import traceback
from collections.abc import Generator
from typing import NoReturn

from mue.errors import MueError, printable
from mue.runs.log import NonFiniteError
from mue.runtime.collectives import env_int
from mue.runtime.devices import is_out_of_memory
from mue.runtime.signals import Interrupted
from mue.training import distributed

_PATIENCE = 1.0  # seconds that a process waits for the one that says what is wrong

_NO_MEMORY = (
    "memory ran out: name smaller inputs or fewer of them at once, end other programs, or take a "
    "machine with more"
)


@contextlib.contextmanager
def exit_codes(*, debug: bool) -> Generator[None]:
    """Let what a user can correct be a sentence and exit code 2; defects keep their traceback."""
    try:
        yield
    except Interrupted as stop:
        _fail(f"{stop}; continue with --resume", 130, once=True)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except (NonFiniteError, distributed.WorkerLostError) as error:
        _fail(str(error), 1, once=isinstance(error, NonFiniteError), debug=debug)
    except BrokenPipeError:  # the reader of our output has closed it
        sys.stderr.close()
    except OSError as error:
        if error.errno is None:  # not from the operating system
            raise
        if is_out_of_memory(error) and not error.filename:
            _fail(_NO_MEMORY, 2, debug=debug)
        _fail(f"{error.filename or 'a file'}: {error.strerror}", 2, debug=debug)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _fail(_NO_MEMORY, 2, debug=debug)
    except MueError as error:
        _fail(str(error), 2, once=isinstance(error, distributed.RemoteError), debug=debug)


def _fail(sentence: str, code: int, *, once: bool = False, debug: bool = False) -> NoReturn:
    """Exit with a sentence. Of several processes that all know it, the first prints it."""
    if once and env_int("RANK", 0) != 0:
        _exit_quietly(code)
    if debug:
        traceback.print_exc()
    print(f"mue: {printable(sentence)}", file=sys.stderr)
    sys.exit(code)


def _exit_quietly(code: int) -> NoReturn:
    """Exit after another process has said why: `torchrun` ends all as soon as one has exited."""
    time.sleep(_PATIENCE)
    sys.exit(code)


@contextlib.contextmanager
def said_once() -> Generator[None]:
    """Let one process of a machine report what is wrong with arguments that all were given."""
    if env_int("LOCAL_RANK", 0) == 0:
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        except MueError:
            _exit_quietly(2)
        except SystemExit as stop:
            _exit_quietly(2 if stop.code else 0)
