"""Wake-ups over HTTP: while threads or coroutines of this process wait for a change, one thread asks the server.

The request is a long poll on a connection of its own: the server answers after a change. An answer from another server
process counts as a change too, because changes are counted for each process. Waiting callers also poll, so a lost
wake-up only costs time, and every error here is followed by a pause.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import httpx

from dibs.errors import StoreError
from dibs.model.retry import reconnect_delay
from dibs.store.remote.address import Address, request_options
from dibs.store.remote.decode import reader
from dibs.store.remote.request import HttpCall, get
from dibs.store.wakeups import Wakeups
from dibs.wire.history import WakeupsQuery, Woken

_read_woken = reader(Woken)

POLL = 15.0
"""Seconds for which the server may delay an answer."""

SHORTEST, LONGEST = 0.5, 10.0
"""Seconds to pause after the first error in a row, and at most; the pause doubles with each error."""


class RemoteWakeups(Wakeups):
    """Wake-ups from a server."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self._failures = 0
        self._socket: socket.socket | None = None

    def watch(self) -> None:
        """Call `wake` after each change that the server reports, while there are waiters."""
        try:
            with httpx.Client(**self._address.client_options()) as client:
                self._listen(client)
        except (httpx.HTTPError, StoreError):
            self._failures += 1
            self._pause_after_error()
        finally:
            self._socket = None

    def close(self) -> None:
        """Wake all waiters and stop the watcher. Its socket is shut down first: nothing else ends a read that waits."""
        self._closed = True
        self._shut_down()
        super().close()

    def _listen(self, client: httpx.Client) -> None:
        seen = self._poll(client, Woken("", 0), wait=0.0)
        self.wake()  # for changes before the first answer
        while self.wanted:
            newest = self._poll(client, seen, wait=POLL)
            if newest != seen:
                self.wake()
            seen, self._failures = newest, 0

    def _poll(self, client: httpx.Client, seen: Woken, wait: float) -> Woken:
        query = WakeupsQuery(process=seen.process or None, generation=seen.generation, wait=wait)
        call = HttpCall("GET", get("/api/wakeups", query).path, wait=wait)
        options = request_options(call, None)
        response = client.get(
            self._address.url(call), timeout=options["timeout"], extensions={"trace": self._remember_socket}
        )
        return _read_woken(response.raise_for_status().content)

    def _remember_socket(self, event: str, info: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._closed:  # closed while connecting
                self._shut_down()

    def _shut_down(self) -> None:
        if (listening := self._socket) is not None:
            with contextlib.suppress(OSError):  # it is closed already
                listening.shutdown(socket.SHUT_RDWR)

    def _pause_after_error(self) -> None:
        self.pause(reconnect_delay(self._failures, SHORTEST, LONGEST))
