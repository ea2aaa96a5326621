"""Under which name the service is asked, and from which page."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings, host_allowed


def check_origin(app: ASGIApp, settings: Settings, _: Monitor) -> ASGIApp:
    """Refuse names that are not ours, and pages of other sites, but for a link to our page."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not host_allowed(host := headers.get("host", ""), settings.names):
            raise RefusedError(
                421, "the service is not known under this name; start it with --name NAME"
            )
        cross_site = headers.get("sec-fetch-site") == "cross-site" and not _is_link(scope, headers)
        if cross_site or not _same_site(headers.get("origin", ""), host):
            raise RefusedError(403, "requests from pages of other sites are refused")
        await app(scope, receive, send)

    return answer


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Whether somebody follows a link to the page; it is not shown in a frame of another site."""
    mode, kind = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    is_page = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
    return is_page and (mode, kind) == ("navigate", "document")


def _same_site(origin: str, host: str) -> bool:
    """Whether a request comes from a page of ours, or from no page."""
    try:
        return not origin or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # no address at all
        return False
