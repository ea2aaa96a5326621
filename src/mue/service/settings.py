"""What the service allows."""

import ipaddress
from dataclasses import dataclass

from mue.errors import MueError


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the service, and who may use it.

    Attributes:
        token: What clients must send as `Authorization: Bearer TOKEN`; None asks for nothing.
        names: Names under which the service may be addressed, besides localhost and IP addresses.
        body: Bytes of the largest request.
        pixels: Pixels of the largest picture or slice.
        volume: Bytes of the pixels of the largest volume.
        slices: Slices of the largest volume.
        seconds: Time for one request.
        rate: Requests per second that one client may send on average; 0 for no limit.
        burst: Requests that one client may send at once.
        queue: Images that wait; further requests are refused.
        batch: Images that are computed together.
        memory: Bytes of requests that are held at a time.
    """

    token: str | None = None
    names: tuple[str, ...] = ()
    body: int = 32 << 20
    pixels: int = 1 << 20
    volume: int = 256 << 20
    slices: int = 1024
    seconds: float = 30.0
    rate: float = 50.0
    burst: int = 200
    queue: int = 128
    batch: int = 8
    memory: int = 256 << 20

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < 16 or not self.token.isascii()):
            raise MueError(
                "`token` must have at least 16 ASCII characters, such as "
                '`python -c "import secrets; print(secrets.token_urlsafe())"` prints'
            )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_allowed(header: str, names: tuple[str, ...]) -> bool:
    """Whether a Host header is one of ours.

    A page on another site can make its own name point to this machine (DNS rebinding), so a name
    must be known. An IP address cannot be made to point elsewhere.
    """
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    name = name.lower().rstrip(".")
    if name == "localhost" or name in {n.lower() for n in names}:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
