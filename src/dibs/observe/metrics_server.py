"""An HTTP server for the metrics and the health of a worker: `/metrics` for Prometheus, `/health` for process managers.

The server runs in separate threads, so that it responds whatever handlers do. It is read-only, requires no key, and
listens on the loopback address by default.
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

CLIENT_TIMEOUT = 10.0
"""Seconds for a client to send its request and to receive the response."""

HealthStatus = tuple[bool, dict[str, Any]]
"""Whether the process is healthy, and details as JSON."""


@contextlib.contextmanager
def serving(
    host: str, port: int, page: Callable[[], bytes], health: Callable[[], HealthStatus], content_type: str
) -> Iterator[int]:
    """Serve during the block. Yields the port; port 0 chooses a free one."""
    server = _listen(host, port)
    server.pages = {
        "/metrics": lambda: (200, content_type, page()),
        "/health": lambda: _health_reply(*health()),
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


HttpReply = tuple[int, str, bytes]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    pages: dict[str, Callable[[], HttpReply]]

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a request for metrics failed: %s", sys.exc_info()[1])  # the client has usually disconnected


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_TIMEOUT
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

    do_HEAD = do_GET  # noqa: N815 - the method names of http.server

    def _answer(self) -> HttpReply:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            return 404, "text/plain; charset=utf-8", b"Not found. Use /metrics or /health.\n"
        try:
            return page()
        except Exception:
            logger.exception("the page %s could not be rendered", self.path)
            return 500, "text/plain; charset=utf-8", b"Internal error. See the log of the process.\n"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: an entry for every scrape would be noise."""


def _health_reply(healthy: bool, details: dict[str, Any]) -> HttpReply:
    return 200 if healthy else 503, "application/json", json.dumps(details).encode() + b"\n"


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
