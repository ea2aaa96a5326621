"""`python -m mue`, which `torchrun` needs."""

import os
import sys

from mue.cli.main import main

status: object = 0
try:
    main()
except SystemExit as end:
    status = end.code or 0
if "RANK" in os.environ and isinstance(status, int):
    # threads of gloo outlive DDP and destroy_process_group, and now and then they abort Python
    # while it ends: one of several processes, all done, leaves without that
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
raise SystemExit(status)
