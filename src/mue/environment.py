"""What the libraries below torch read from the environment; set before torch is imported.

Threads of OpenMP wait for the next piece of work: by default they spin for long. On a machine that
is busy otherwise, a spinning thread takes the core that the others of its group would need, and
three trainings at once on two cores take many times as long as one after another. Threads that
sleep at once take their share, but waking them costs more than most pieces of work, and a lone job
takes twice as long. So they spin for a part of a millisecond, then sleep; and small work is done
by one thread (`mue.devices.threads_for`).

oneDNN computes products of bfloat16 by AMX where the processor announces it. Some virtual machines
announce it and do not have it, and the process dies of an illegal instruction. Here a CPU computes
in float32 unless asked otherwise, which does not use AMX.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")  # GNU's OpenMP; others sleep at once
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
