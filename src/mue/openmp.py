"""How the threads of OpenMP wait, which they read when torch is imported.

By default they spin. On a machine that is busy otherwise, a spinning thread takes the core that
the others of its group would need: three small trainings at once on two cores then take many times
as long as one after another. Sleeping threads take their share.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
