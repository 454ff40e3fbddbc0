"""The repetitions of one call: which failures are followed by another request, and when the call fails.

A request that certainly changed nothing is always repeated. A request that may have been carried out is repeated only
if it is safe to repeat; otherwise the call fails with OutcomeUnknown. Nothing here does I/O: a conversation yields what
to send and how long to pause, and is driven sync or async.
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
"""Seconds for which requests are repeated while the server cannot be reached, or cannot carry them out."""

LIMIT_PATIENCE = 60.0
"""Seconds for which a call waits while the rate limit of the key is exceeded."""

LOG_INTERVAL = 60.0
"""Seconds between two log entries about such waits: nothing else would explain the delay."""

SHORTEST, LONGEST = 0.05, 2.0

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
NOTHING_DONE = frozenset({"store_busy", "store_unavailable", "stopping"})
MAYBE_DONE = frozenset({"outcome_unknown"})
GATEWAY = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Rest:
    """A pause before the next request."""

    seconds: float


Conversation = Generator[HttpCall | Rest, Any, bytes | None]
"""Yields calls and pauses; a call receives its response, or the error of the transport is raised."""


def conversation(call: HttpCall, host: str) -> Conversation:
    """Send the call until there is an answer; the JSON of the answer."""
    attempts = CallAttempts(call, host)
    while True:
        try:
            response: httpx.Response = yield call
        except httpx.TransportError as error:
            yield Rest(attempts.after_error(error))
            continue
        if response.is_success:
            return response.content
        refusal = read_refusal(response.content)
        if refusal is not None and refusal.code == call.or_none:
            return None
        if refusal is None and response.status_code in call.answers:
            return response.content
        yield Rest(attempts.after_refusal(response, refusal))


class CallAttempts:
    """The attempts of one call: how many failed, and since when."""

    def __init__(self, call: HttpCall, host: str) -> None:
        self._call = call
        self._host = host
        self._began = time.monotonic()
        self._failures = 0
        self._limited_since: float | None = None
        self._may_be_done = False

    def after_error(self, error: httpx.TransportError) -> float:
        """Seconds to pause before the next attempt; raises the error that ends the call."""
        self._exclude_wait()
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if isinstance(error, NOT_SENT):
            return self._rest(f"The server at {self._host} cannot be reached ({reason}).")
        return self._rest_if_safe(f"The connection to the server at {self._host} broke ({reason}).")

    def after_refusal(self, response: httpx.Response, refusal: Refusal | None) -> float:
        """`after_error`, after an answer that is not a success."""
        self._exclude_wait()
        if refusal is None:
            return self._after_foreign_answer(response)
        if refusal.code == "rate_limited":
            return self._after_limit(refusal, _retry_after(response))
        if refusal.code in NOTHING_DONE:
            return self._rest(refusal.error, _retry_after(response), refusal.to_model())
        if refusal.code in MAYBE_DONE:
            return self._rest_if_safe(refusal.error, refusal.to_model())
        raise refusal.to_model()

    def _after_foreign_answer(self, response: httpx.Response) -> float:
        """The answer is not one of a dibs server: it comes from a proxy, or from another program."""
        if response.status_code in GATEWAY:
            return self._rest_if_safe(
                f"{self._host} answers {response.status_code}: the server behind it does not answer."
            )
        if response.is_redirect:
            raise StoreError(
                f"{self._host} answers with a redirect, which dibs does not follow.",
                hint="Use the URL of the server itself: dibs sends the key to no other address.",
            )
        raise not_understood(f"status {response.status_code} without the body of a dibs server")

    def _after_limit(self, refusal: Refusal, seconds: float) -> float:
        now = time.monotonic()
        self._limited_since = self._limited_since or now
        if now + seconds > self._limited_since + LIMIT_PATIENCE:
            raise RateLimited(f"{refusal.error} The server asks for a pause of {seconds:.0f} seconds.")
        _log_limit(self._host, seconds, now)
        self._began += seconds  # this pause does not count as time in which the server failed
        return seconds + random.uniform(0, SHORTEST)

    def _exclude_wait(self) -> None:
        """Do not count the wait that the call itself requested. Only once, so that a bad connection comes to an end."""
        if not self._failures:
            self._began += min(self._call.wait, time.monotonic() - self._began)

    def _rest_if_safe(self, reason: str, error: DibsError | None = None) -> float:
        self._may_be_done = True
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
        if self._may_be_done and self._call.method != "GET":
            return OutcomeUnknown(reason)
        hint = "Check that the server runs and that the URL is right; a retry with a key or token is safe."
        return StoreUnavailable(reason, hint=hint)


_logged_at: dict[str, float] = {}


def _log_limit(host: str, seconds: float, now: float) -> None:
    if now - _logged_at.get(host, -LOG_INTERVAL) >= LOG_INTERVAL:
        _logged_at[host] = now
        logger.warning("%s: the key has used up its rate limit; the next request waits for %.0f s", host, seconds)


def _retry_after(response: httpx.Response) -> float:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 7 else 1.0
