"""Retry rules, backoffs and rules of keys that do not exist. Both type checkers refuse exactly the marked lines."""

from __future__ import annotations

import dibs

app = dibs.Dibs("sqlite://")


def delay(attempt: str) -> float:
    return float(attempt)


@app.task(retry_on="TimeoutError")  # refused
def by_name() -> None: ...


@app.task(give_up_on=(ValueError, "KeyError"))  # refused
def by_some_name() -> None: ...


@app.task(backoff=delay)  # refused
def by_function() -> None: ...


@app.task(backoff=5)  # refused
def by_number() -> None: ...


@app.task(key_scope="for_ever")  # refused
def keyed() -> None: ...


@app.task
def job() -> None: ...


dibs.Retry(delay="soon")  # refused
job.options(backoff=[1, 2])  # refused
job.options(on_conflict="ignore")  # refused
app.enqueue("keyed", key="a", key_scope="for_ever")  # refused
