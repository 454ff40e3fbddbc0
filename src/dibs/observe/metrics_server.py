"""A small place for Prometheus to ask a process that is no server: `/metrics`, and `/health` for who starts processes.

It runs in threads of its own, so that it answers whatever handlers do; nothing can be changed here, and no key is
asked for: it listens on loopback unless told otherwise.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dibs.errors import InvalidValue

logger = logging.getLogger("dibs.metrics")

PATIENCE = 10.0
"""Seconds that a client has to send its request and to take its answer."""

Health = tuple[bool, dict[str, Any]]
"""Whether all is well, and what there is to say about it."""


@contextlib.contextmanager
def serving(
    host: str, port: int, page: Callable[[], bytes], health: Callable[[], Health], content_type: str
) -> Iterator[int]:
    """Answer while the block lasts; the port, of which 0 takes a free one."""
    server = _listen(host, port)
    server.pages = {
        "/metrics": lambda: (200, content_type, page()),
        "/health": lambda: _told(*health()),
    }
    thread = threading.Thread(target=server.serve_forever, name="dibs-metrics", daemon=True)
    thread.start()
    bound: int = server.server_address[1]
    where = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
    logger.info("metrics are at http://%s/metrics", where)
    try:
        yield bound
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


Answer = tuple[int, str, bytes]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    pages: dict[str, Callable[[], Answer]]

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a request for metrics was not answered: %s", sys.exc_info()[1])  # who asked has gone, most often


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server_version, sys_version = "dibs", ""
    server: _Server

    def do_GET(self) -> None:
        status, content_type, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the names that http.server looks for

    def _answer(self) -> Answer:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            return 404, "text/plain; charset=utf-8", b"There are /metrics and /health.\n"
        try:
            return page()
        except Exception:
            logger.exception("the page %s could not be made", self.path)
            return 500, "text/plain; charset=utf-8", b"The log says why.\n"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: nobody wants a line for every scrape."""


def _told(well: bool, about: dict[str, Any]) -> Answer:
    return 200 if well else 503, "application/json", json.dumps(about).encode() + b"\n"


def _listen(host: str, port: int) -> _Server:
    class Server(_Server):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        return Server((host, port), _Handler)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number and number > 0 else str(error)
        raise InvalidValue(
            f"Metrics cannot be served on {host} port {port}: {reason}.",
            hint="Choose another port with --metrics-port (0 for any), or another address with --metrics-host.",
        ) from None
