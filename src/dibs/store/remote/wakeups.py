"""Wake-ups over HTTP: a long poll on a connection of its own, while somebody waits.

The server answers when it has noticed a change; a server that was restarted is another process and counts as one. A
hint that gets lost is made up for by polling, so every error here only means a rest.
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
"""Seconds for which the server may hold back an answer."""

SHORTEST, LONGEST = 0.5, 10.0
"""Seconds to rest after an error: doubling."""


class RemoteWakeups(Wakeups):
    """Listens to the server."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self._failures = 0
        self._socket: socket.socket | None = None

    def watch(self) -> None:
        """See Wakeups."""
        try:
            with httpx.Client(**self._address.client_options()) as client:
                self._listen(client)
        except (httpx.HTTPError, StoreError):
            self._failures += 1
            self._rest()
        finally:
            self._socket = None

    def close(self) -> None:
        """See Wakeups. The watcher sits in a read: only the end of its socket can end that early."""
        self._closed = True
        self._hang_up()
        super().close()

    def _listen(self, client: httpx.Client) -> None:
        seen = self._ask(client, Woken("", 0), wait=0.0)
        self.wake()  # what changed before we listened
        while self.wanted:
            said = self._ask(client, seen, wait=POLL)
            if said != seen:
                self.wake()
            seen, self._failures = said, 0

    def _ask(self, client: httpx.Client, seen: Woken, wait: float) -> Woken:
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
            if self._closed:  # while we connected
                self._hang_up()

    def _hang_up(self) -> None:
        if (listening := self._socket) is not None:
            with contextlib.suppress(OSError):  # it has ended already
                listening.shutdown(socket.SHUT_RDWR)

    def _rest(self) -> None:
        self.pause(reconnect_delay(self._failures, SHORTEST, LONGEST))
