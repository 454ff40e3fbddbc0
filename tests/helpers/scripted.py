"""A server that sends prepared responses to any request, as a faulty server or a proxy does."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

Said = tuple[int, dict[str, str], bytes]


def says(status: int, body: Any = None, **headers: str) -> Said:
    """One answer; the body as JSON, if it is no text."""
    content = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, content


class Scripted:
    """Gives these answers one after the other, the last of them for ever; remembers what it was asked."""

    def __init__(self, *answers: Said) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        """Method, path, headers and body of each request."""
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                script._answer(self)

            do_POST = do_DELETE = do_GET  # noqa: N815 - so they are called by the standard library

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[0.02], name="test-scripted", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.asked.append((handler.command, handler.path, {k.lower(): v for k, v in handler.headers.items()}, body))
        status, headers, content = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content)), "Connection": "close"}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)
