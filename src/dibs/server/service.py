"""The state that all endpoints share: store, keys, limits, long polls, statistics; and background tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any

from dibs.errors import DibsError, InvalidValue, StoreError
from dibs.json_values import check_name
from dibs.model.claim import Finished
from dibs.model.key import ApiKey, split
from dibs.model.key import Scope as KeyScope
from dibs.observe.metered import counted
from dibs.server.auth import Caller, KeyCache
from dibs.server.coalescing import CoalescedRequests
from dibs.server.config import ServerConfig
from dibs.server.events import EventFeed
from dibs.server.http import AsgiScope, header
from dibs.server.liveness import Liveness
from dibs.server.long_poll import LongPolls
from dibs.server.rate_limits import FailedAuthLimits, RateLimits
from dibs.server.sign_in import SignIn
from dibs.server.statistics.live_stats import LiveStats
from dibs.server.statistics.store_metrics import MetricsPages
from dibs.server.upkeep import ServerUpkeep
from dibs.store.contract import DatabaseStore
from dibs.store.doctor import warn_once
from dibs.wire.errors import RequestRefused

logger = logging.getLogger("dibs.server")

CHANGE_PAUSE = 0.02
"""Seconds between two invalidations of the key cache: on a busy store, keys are read at most 50 times a second."""

KEY_USE_INTERVAL = 2.0

FAILURE_LOG_INTERVAL = 10.0
"""Minimum seconds between two log entries about a failing store, because every request would write one."""


class Service:
    """The shared state of one server process. `sign_in`: that of the application in which the server is mounted."""

    def __init__(self, store: DatabaseStore, config: ServerConfig, sign_in: SignIn | None = None) -> None:
        store = counted(store)
        self.store = store
        self.config = config
        self.sign_in = sign_in
        self.process = secrets.token_hex(8)
        self.key_cache = KeyCache(store)
        self.rate_limits = RateLimits(store)
        self.failed_auth = FailedAuthLimits()
        self._upkeep = ServerUpkeep(store, config)
        self.coalesced = CoalescedRequests(store, self.finalize_after)
        self.long_polls = LongPolls(store)
        self.stopping = asyncio.Event()
        self.feed = EventFeed(store)
        self.live_stats = LiveStats(store)
        self.metrics = MetricsPages()
        self.liveness = Liveness()
        self._background: list[asyncio.Task[None]] = []
        self._next_failure_log = 0.0

    async def start(self) -> None:
        """Start the background tasks."""
        warn_once(self.store.caution, logger)
        self._background = [asyncio.create_task(self._follow_changes()), asyncio.create_task(self._write_key_uses())]
        self._upkeep.start()
        self.live_stats.start()
        self.liveness.start()

    def stop_waiting(self) -> None:
        """End all waiting requests, so that the server can stop."""
        self.stopping.set()
        self.long_polls.close()
        self.feed.close()
        self.live_stats.close()

    async def stop(self) -> None:
        """Stop the background tasks. The store stays open."""
        self.stop_waiting()
        await self.long_polls.closed()
        await self.feed.closed()
        await self.live_stats.closed()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, self._upkeep.stop(), self.liveness.stop(), return_exceptions=True)
        with contextlib.suppress(DibsError):
            await self._write_used_keys()

    async def admit(self, scope: AsgiScope, scopes: frozenset[KeyScope]) -> Caller:
        """Authenticate the caller: check the key, then the rate limit, then the scopes."""
        if not scopes:
            return Caller()
        signature, text = _signature(header(scope, b"x-dibs-signature")), _key_text(scope)
        if self.sign_in is not None and split(text) is None:
            caller = Caller(user=await self.sign_in.check(scope), signature=signature)
        elif self.config.keys:
            caller = Caller(await self._check_key(scope, text), signature)
        else:
            caller = Caller(signature=signature)
        caller.check_scopes(scopes)
        return caller

    async def _check_key(self, scope: AsgiScope, text: str | None) -> ApiKey:
        address = (scope.get("client") or ("",))[0]
        if self.failed_auth.blocked(address) and not self.key_cache.trusts(text):
            raise self.failed_auth.refusal(address)
        key = await self.key_cache.find(text)
        if key is None:
            # A key that was valid once is not a guess: a worker that still uses it must not block its whole network.
            self.failed_auth.failed(address, guessed=split(text) is not None and not self.key_cache.trusts(text))
            raise _unauthorized(text)
        scope["dibs.key"] = key.id  # for the access log
        await self.rate_limits.spend(key)
        return key

    def finalize(self, workflow_id: int) -> None:
        """Finalize a workflow without open steps: HTTP clients leave this to the server."""
        self._upkeep.finalize(workflow_id)

    def finalize_after(self, answers: Sequence[Any]) -> None:
        """Finalize the workflows whose last step these outcomes finished."""
        for answer in answers:
            if isinstance(answer, Finished) and answer.finalize is not None:
                self.finalize(answer.finalize)

    async def check_still_admitted(self, scope: AsgiScope, caller: Caller) -> None:
        """Raise RequestRefused if the key of the caller was revoked or has expired while it waited, or if its user is
        signed out or has other rights."""
        text = _key_text(scope)
        if caller.key is not None and await self.key_cache.find(text) is None:
            raise _unauthorized(text)
        if caller.user is not None and self.sign_in is not None:
            await self.sign_in.check_unchanged(scope, caller.user)

    def log_failure(self, error: StoreError) -> None:
        """Log why valid requests fail, at most once in FAILURE_LOG_INTERVAL seconds."""
        now = time.monotonic()
        if now >= self._next_failure_log:
            self._next_failure_log = now + FAILURE_LOG_INTERVAL
            fields = {"event": "store.failed", "code": error.code, "reason": error.message}
            logger.warning("the store fails (%s): %s", error.code, error.message, extra=fields)

    async def _follow_changes(self) -> None:
        """Invalidate the key cache after each change of the store. A wake-up can be lost, so entries also expire."""
        while True:
            try:
                seen = self.store.wakeups.generation
                await self.store.wakeups.wait_async(seen, 1.0)
            except DibsError as error:
                logger.debug("no wake-ups: %s", error.message)
                await asyncio.sleep(1.0)
            self.key_cache.invalidate()
            await asyncio.sleep(CHANGE_PAUSE)

    async def _write_key_uses(self) -> None:
        while True:
            await asyncio.sleep(KEY_USE_INTERVAL)
            self.key_cache.forget_old()
            self.rate_limits.forget_old()
            with contextlib.suppress(DibsError):  # the next update includes the same keys
                await self._write_used_keys()

    async def _write_used_keys(self) -> None:
        if used := sorted(self.key_cache.used):
            self.key_cache.used.clear()
            await self.store.run_async(self.store.keys.note_keys_used(used))


def _key_text(scope: AsgiScope) -> str | None:
    """Return the key of a request. `X-API-Key` takes precedence: a proxy may use `Authorization` for itself."""
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
        message, hint = "This needs an API key.", "Send it in the header X-API-Key. Create one with `dibs keys create`."
    else:
        message, hint = "This API key is not valid.", "It is wrong, expired or revoked. See `dibs keys list`."
    return RequestRefused("unauthorized", message, hint=hint, headers=((b"www-authenticate", b"ApiKey, Bearer"),))
