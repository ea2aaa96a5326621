"""What the libraries below torch read from the environment; set before torch is imported.

Threads of OpenMP spin while they wait, by default. On a machine that is busy otherwise, a spinning
thread takes the core that the others of its group would need: three small trainings at once on two
cores then take many times as long as one after another. Sleeping threads take their share.

oneDNN computes products of bfloat16 by AMX where the processor announces it. Some virtual machines
announce it and do not have it, and the process dies of an illegal instruction. Here a CPU computes
in float32 unless asked otherwise, which does not use AMX.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
