"""What a user can correct, and how text from outside is shown."""

_MAX_CHARACTERS = 1000


def printable(text: str, limit: int = _MAX_CHARACTERS) -> str:
    r"""Text as any terminal and file can take it: names of files may hold anything.

    What is not printable, such as a line feed or a byte that is not UTF-8, becomes an escape
    sequence; of text beyond the limit, the middle is left out.

    >>> printable("a\nb\udcff")
    'a\\nb\\xff'
    """
    if len(text) > limit:
        text = f"{text[: limit // 2]} […] {text[-limit // 2 :]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


class MueError(ValueError):
    """Bad input: one sentence that names the thing, the contract, the value and the way out.

    The command line prints it and exits with code 2. Any other exception is a defect of `mue` and
    keeps its traceback.
    """

    def __init__(self, sentence: str = "") -> None:
        super().__init__(printable(sentence))


class ReadError(MueError):
    """A file that cannot be read, and why: its sentence is the path and the reason.

    Attributes:
        path: The file or folder, as it was given.
        reason: A clause that follows on the path, such as "is damaged".
    """

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path, self.reason = str(path), reason

    def __reduce__(self) -> tuple[type["ReadError"], tuple[str, str]]:
        """Both values, so that another process can raise it again."""
        return ReadError, (self.path, self.reason)
