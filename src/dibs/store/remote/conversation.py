"""One call until it is answered: what is repeated after which mishap, and when we give up.

A request that certainly did nothing is repeated whatever it asks for. One that may have been carried out is repeated
only if doing it twice is as good as once; otherwise the caller is told that the outcome is unknown. Nothing here does
I/O: the conversation says what to send and how long to rest, and is driven sync or async.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import httpx

from dibs.errors import DibsError, OutcomeUnknown, RateLimited, StoreError, StoreUnavailable
from dibs.model.retry import reconnect_delay
from dibs.store.remote.decode import not_understood, read_refusal
from dibs.store.remote.request import HttpCall
from dibs.wire.errors import Refusal

logger = logging.getLogger("dibs.remote")

PATIENCE = 10.0
"""Seconds for which a server that cannot be reached, or cannot do it now, is asked again."""

LIMIT_PATIENCE = 60.0
"""Seconds for which we wait when the server says that we ask too often."""

SAY_AGAIN = 60.0
"""Seconds between two words in the log about such waits: nobody else would tell why nothing happens."""

SHORTEST, LONGEST = 0.05, 2.0

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
NOTHING_DONE = frozenset({"store_busy", "store_unavailable", "stopping"})
PERHAPS_DONE = frozenset({"outcome_unknown"})
GATEWAY = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait before the next request."""

    seconds: float


Conversation = Generator[HttpCall | Rest, Any, bytes | None]
"""A call is answered with its response, or with the error of the transport."""


def conversation(call: HttpCall, host: str) -> Conversation:
    """Send the call until there is an answer; the answer's JSON."""
    tries = _Tries(call, host)
    while True:
        try:
            response: httpx.Response = yield call
        except httpx.TransportError as error:
            yield Rest(tries.after_error(error))
            continue
        if response.is_success:
            return response.content
        refusal = read_refusal(response.content)
        if refusal is not None and refusal.code == call.or_none:
            return None
        if refusal is None and response.status_code in call.answers:
            return response.content
        yield Rest(tries.after_refusal(response, refusal))


class _Tries:
    """How often and how long a call has been tried."""

    def __init__(self, call: HttpCall, host: str) -> None:
        self._call = call
        self._host = host
        self._began = time.monotonic()
        self._failures = 0
        self._limited_since: float | None = None
        self._perhaps_done = False

    def after_error(self, error: httpx.TransportError) -> float:
        """Seconds to rest before the next try, or the error that ends the trying."""
        self._forgive_the_wait()
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if isinstance(error, NOT_SENT):
            return self._rest(f"The server at {self._host} cannot be reached ({reason}).")
        return self._rest_if_safe(f"The connection to the server at {self._host} broke ({reason}).")

    def after_refusal(self, response: httpx.Response, refusal: Refusal | None) -> float:
        """The same, after an answer that is no success."""
        self._forgive_the_wait()
        if refusal is None:
            return self._after_strange(response)
        if refusal.code == "rate_limited":
            return self._after_limit(refusal, _retry_after(response))
        if refusal.code in NOTHING_DONE:
            return self._rest(refusal.error, _retry_after(response), refusal.to_model())
        if refusal.code in PERHAPS_DONE:
            return self._rest_if_safe(refusal.error, refusal.to_model())
        raise refusal.to_model()

    def _after_strange(self, response: httpx.Response) -> float:
        """These are not the words of a dibs server: something stands between us and it, or it is none."""
        if response.status_code in GATEWAY:
            return self._rest_if_safe(f"{self._host} answers {response.status_code}: the server behind it does not.")
        if response.is_redirect:
            raise StoreError(
                f"{self._host} answers with a redirect, which dibs does not follow.",
                hint="Use the URL at which the server itself answers; the key is sent nowhere else.",
            )
        raise not_understood(f"status {response.status_code} without the words of a dibs server")

    def _after_limit(self, refusal: Refusal, seconds: float) -> float:
        now = time.monotonic()
        self._limited_since = self._limited_since or now
        if now + seconds > self._limited_since + LIMIT_PATIENCE:
            raise RateLimited(f"{refusal.error} The server asks for a pause of {seconds:.0f} seconds.")
        _tell_of_limit(self._host, seconds, now)
        self._began += seconds  # a pause that was asked for is not held against a server that is slow to come back
        return seconds + random.uniform(0, SHORTEST)

    def _forgive_the_wait(self) -> None:
        """What we asked the server to wait for is not held against it; once, so that a bad line has an end."""
        if not self._failures:
            self._began += min(self._call.wait, time.monotonic() - self._began)

    def _rest_if_safe(self, reason: str, error: DibsError | None = None) -> float:
        self._perhaps_done = True
        if not self._call.safe:
            raise error or OutcomeUnknown(reason)
        return self._rest(reason, 0.0, error)

    def _rest(self, reason: str, at_least: float = 0.0, error: DibsError | None = None) -> float:
        self._failures += 1
        seconds = max(at_least, reconnect_delay(self._failures, SHORTEST, LONGEST))
        if time.monotonic() + seconds > self._began + PATIENCE:
            raise error or self._gave_up(reason)
        return seconds

    def _gave_up(self, reason: str) -> DibsError:
        if self._perhaps_done and self._call.method != "GET":
            return OutcomeUnknown(reason)
        hint = "Check that the server runs and that the URL is right; trying again is safe with a key or token."
        return StoreUnavailable(reason, hint=hint)


_told_at: dict[str, float] = {}


def _tell_of_limit(host: str, seconds: float, now: float) -> None:
    if now - _told_at.get(host, -SAY_AGAIN) >= SAY_AGAIN:
        _told_at[host] = now
        logger.warning("%s: the key has used up its rate limit; the next request waits for %.0f s", host, seconds)


def _retry_after(response: httpx.Response) -> float:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 7 else 1.0
