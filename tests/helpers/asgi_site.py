"""ASGI applications of users on uvicorn, in a thread, and a client that follows the links of their pages."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import httpx
import uvicorn

from tests.helpers.plain_http import NO_TLS
from tests.helpers.waiting import until

LINK = re.compile(r'\s(?:href|src|action|data-next)="([^"#][^"]*)"')
CSRF = re.compile(r'<meta name="csrf" content="([0-9a-f]{64})">')


@contextmanager
def serving(web: Any, **options: Any) -> Iterator[str]:
    """Run the application, with its lifespan; its URL."""
    server = uvicorn.Server(uvicorn.Config(web, port=0, lifespan="on", log_config=None, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert server.started, "the application did not start"
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class Proxy(httpx.HTTPTransport):
    """A proxy that removes a prefix from the path of each request."""

    def __init__(self, removed: str) -> None:
        super().__init__(verify=NO_TLS)
        self._removed = removed.encode()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request on; its cookies belong to the whole path."""
        public = request.url
        request.url = public.copy_with(raw_path=public.raw_path.removeprefix(self._removed))
        answer = super().handle_request(request)
        request.url = public
        return answer


@contextmanager
def browser(url: str, removed: str = "", **headers: str) -> Iterator[httpx.Client]:
    """A browser that keeps cookies and follows no redirect. `removed`: the prefix that a proxy removes."""
    given = {"accept": "text/html", **headers}
    with httpx.Client(base_url=url, transport=Proxy(removed), timeout=20, headers=given) as client:
        yield client


def links(page: httpx.Response) -> set[str]:
    """The addresses in a page."""
    return {unescape(found) for found in LINK.findall(page.text)}


def csrf(page: httpx.Response) -> str:
    """The token that the forms of a page contain."""
    found = CSRF.search(page.text)
    assert found is not None, page.text[:300]
    return found[1]
