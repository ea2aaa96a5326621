"""What the libraries below torch read from the environment; set before torch is imported.

Threads of OpenMP wait for the next piece of work: by default they spin for long. On a machine that
is busy otherwise, a spinning thread takes the core that the others of its group would need, and
three trainings at once on two cores take many times as long as one after another. Threads that
sleep at once take their share, but waking them costs more than most pieces of work, and a lone job
takes twice as long. So they spin for about a tenth of a millisecond, then sleep; and small work is
done by one thread (`mue.runtime.devices.threads_for`).

oneDNN computes products of bfloat16 by AMX where the processor announces it. Some virtual machines
announce it and do not have it, and the process dies of an illegal instruction. Here a CPU computes
in float32 unless asked otherwise, which does not use AMX.
"""

import ctypes
import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # GNU's OpenMP; others sleep at once
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of mallopt(3)
_KEPT = 1 << 28


def keep_freed_memory() -> None:
    """Let this process use its freed memory again, in place of asking the system for new pages.

    The C library returns feature maps to the system as soon as they are freed, and the next ones
    are zeroed page by page: a fourth of the time of a batch of images. Each thread has a heap of
    its own, too, where what one has freed is of no use to another, and memory grows. So there is
    one heap for all, which shrinks when much of it is free. For a process that answers one batch
    after another; other C libraries than GNU's are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _KEPT)
