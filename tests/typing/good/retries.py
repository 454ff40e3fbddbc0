"""Retry rules and backoffs. Both type checkers accept every line."""

from __future__ import annotations

import dibs

app = dibs.Dibs("sqlite://")


def delay(attempt: int, error: Exception) -> float | None:
    return 60.0 * attempt if isinstance(error, TimeoutError) else None


@app.task(retry_on=TimeoutError, give_up_on=(ValueError, KeyError), backoff=dibs.Backoff(base=1, cap=60))
def charge(cents: int) -> int:
    if cents < 0:
        raise dibs.Permanent("a negative amount")
    if cents == 0:
        raise dibs.Retry(delay=2.5)
    return cents


@app.task(backoff=[1, 5, 30.5])
def by_list() -> None: ...


@app.task(backoff=dibs.LinearBackoff(step=5), max_attempts=4)
def linear() -> None: ...


@app.task(backoff=delay)
def by_function() -> None: ...


charge.options(backoff=dibs.Backoff(2), max_attempts=2).enqueue(7)
charge.options(key="order-7", key_scope="until_finished", on_conflict=dibs.OnConflict.KEEP).enqueue(7)
