"""What a user can mend."""


class MueError(ValueError):
    """Bad input: one sentence that names the thing, the contract, the value and the way out.

    The command line prints it and exits with code 2. Any other exception is a defect of `mue` and
    keeps its traceback.
    """
