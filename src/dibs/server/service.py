"""What the endpoints share: the store, the keys, the limits, the waiting room; and what runs beside the requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any

from dibs.codec import check_name
from dibs.errors import DibsError, InvalidValue, StoreError
from dibs.model.claim import Finished
from dibs.model.key import Scope as KeyScope
from dibs.model.key import split
from dibs.observe.metered import counted
from dibs.server.auth import Caller, KeyRing, missing
from dibs.server.config import ServerConfig
from dibs.server.desk import Desk
from dibs.server.events import Feed
from dibs.server.http import Scope, header
from dibs.server.liveness import Liveness
from dibs.server.long_poll import WaitingRoom
from dibs.server.rate_limits import Limits, Strangers
from dibs.server.statistics.live_stats import Pulse
from dibs.server.statistics.store_metrics import Metrics
from dibs.server.upkeep import Keeper
from dibs.store.contract import DatabaseStore
from dibs.store.doctor import warn_once
from dibs.wire.errors import RequestRefused

logger = logging.getLogger("dibs.server")

FOLLOW_GAP = 0.02
"""Seconds for which several changes count as one: on a busy store the keys are read 50 times a second, not more."""

NOTE_EVERY = 2.0

TELL_EVERY = 10.0
"""Seconds between two lines about a store that fails: one tells enough, and every request would write one."""


class Service:
    """One server process."""

    def __init__(self, store: DatabaseStore, config: ServerConfig) -> None:
        store = counted(store)
        self.store = store
        self.config = config
        self.process = secrets.token_hex(8)
        self.ring = KeyRing(store)
        self.limits = Limits(store)
        self.strangers = Strangers()
        self._keeper = Keeper(store, config)
        self.desk = Desk(store, self.finalize_after)
        self.room = WaitingRoom(store)
        self.stopping = asyncio.Event()
        self.feed = Feed(store)
        self.pulse = Pulse(store)
        self.metrics = Metrics()
        self.liveness = Liveness()
        self._beside: list[asyncio.Task[None]] = []
        self._silent_until = 0.0

    async def start(self) -> None:
        """Begin what runs beside the requests."""
        warn_once(self.store.caution, logger)
        self._beside = [asyncio.create_task(self._follow_changes()), asyncio.create_task(self._note_uses())]
        self._keeper.start()
        self.pulse.start()
        self.liveness.start()

    def stop_waiting(self) -> None:
        """The server is asked to stop: let go of those who wait, so that it can."""
        self.stopping.set()
        self.room.close()
        self.feed.close()
        self.pulse.close()

    async def stop(self) -> None:
        """End what runs beside the requests, and let go of the store."""
        self.stop_waiting()
        await self.room.closed()
        await self.feed.closed()
        await self.pulse.closed()
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, self._keeper.stop(), self.liveness.stop(), return_exceptions=True)
        with contextlib.suppress(DibsError):
            await self._note_used()
        await self.store.close_async()

    async def admit(self, scope: Scope, scopes: frozenset[KeyScope]) -> Caller:
        """Who calls, if it may: the key before the limit, the limit before the scope."""
        if not scopes:
            return Caller()
        signature = _signature(header(scope, b"x-dibs-signature"))
        if not self.config.keys:
            return Caller(signature=signature)
        text = _presented(scope)
        address = (scope.get("client") or ("",))[0]
        if self.strangers.blocked(address) and not self.ring.trusts(text):
            raise self.strangers.refusal(address)
        key = await self.ring.find(text)
        if key is None:
            # One that was good once is no guess: a worker that still has it must not shut out its neighbours.
            self.strangers.failed(address, guessed=split(text) is not None and not self.ring.trusts(text))
            raise _unauthorized(text)
        scope["dibs.key"] = key.id  # for the access log
        await self.limits.spend(key)
        if (refusal := missing(scopes, key)) is not None:
            raise refusal
        return Caller(key, signature)

    def finalize(self, workflow_id: int) -> None:
        """See to a workflow that has nothing more to run: who speaks HTTP leaves it to us."""
        self._keeper.finalize(workflow_id)

    def finalize_after(self, answers: Sequence[Any]) -> None:
        """See to the workflows that have nothing more to run because of these outcomes."""
        for answer in answers:
            if isinstance(answer, Finished) and answer.finalize is not None:
                self.finalize(answer.finalize)

    async def check_still_admitted(self, scope: Scope, caller: Caller) -> None:
        """Refuse a caller whose key was revoked or has expired while it waited."""
        text = _presented(scope)
        if caller.key is not None and await self.ring.find(text) is None:
            raise _unauthorized(text)

    def tell_of_failure(self, error: StoreError) -> None:
        """Say in the log why requests are refused that nothing is wrong with."""
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + TELL_EVERY
            about = {"event": "store.failed", "code": error.code, "reason": error.message}
            logger.warning("the store fails (%s): %s", error.code, error.message, extra=about)

    async def _follow_changes(self) -> None:
        """Let the keys be read again after a change; a hint can be lost, so they also age by themselves."""
        while True:
            try:
                seen = self.store.wakeups.generation
                await self.store.wakeups.wait_async(seen, 1.0)
            except DibsError as error:
                logger.debug("no wake-ups: %s", error.message)
                await asyncio.sleep(1.0)
            self.ring.look_again()
            await asyncio.sleep(FOLLOW_GAP)

    async def _note_uses(self) -> None:
        while True:
            await asyncio.sleep(NOTE_EVERY)
            self.ring.forget_old()
            self.limits.forget_old()
            with contextlib.suppress(DibsError):  # it is only a note; the next one says the same
                await self._note_used()

    async def _note_used(self) -> None:
        if used := sorted(self.ring.used):
            self.ring.used.clear()
            await self.store.run_async(self.store.keys.note_keys_used(used))


def _presented(scope: Scope) -> str | None:
    """The key that a request brings. `X-API-Key` goes first: a proxy may need `Authorization` for a word of its own."""
    if (own := header(scope, b"x-api-key")) is not None:
        return own.decode("latin-1")
    kind, _, text = (header(scope, b"authorization") or b"").decode("latin-1").partition(" ")
    return text.strip() if kind.lower() == "bearer" else None


def _signature(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return check_name(value.decode(), "The signature")
    except UnicodeDecodeError:
        raise InvalidValue("The signature is not UTF-8.") from None


def _unauthorized(text: str | None) -> RequestRefused:
    if text is None:
        message, hint = "This needs an API key.", "Send it in the header X-API-Key; `dibs keys create` makes one."
    else:
        message, hint = "This API key is not valid.", "It is wrong, expired or revoked; `dibs keys list` tells which."
    return RequestRefused("unauthorized", message, hint=hint, headers=((b"www-authenticate", b"ApiKey, Bearer"),))
