"""One file per verb: what it takes, the calls, the files it writes. `mue.VERB` is this function."""
