"""DBOS on SQLite or PostgreSQL: a queue of workflows without steps, with so many seconds between its polls."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from dbos import DBOS, DBOSClient
from dbos._sys_db import SystemDatabase

from bench.queues.mix import QUEUES, TYPES, Mix, MixProducer
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat, stopped

NAME = "bench"
_seats: list[Seat] = []


@DBOS.workflow(name=NAME)
def bench(number: int) -> None:
    """The handler."""
    _seats[0].ran(number)


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run it in this process; `setting` is how often it polls."""
    configure(url, seat)
    fetch: Any = SystemDatabase.start_queued_workflows
    SystemDatabase.start_queued_workflows = seat.noting(fetch)  # type: ignore[method-assign]
    stop = stopped()
    wait_for_start()
    DBOS.launch()
    DBOS.register_queue(NAME, polling_interval_sec=float(setting), on_conflict="always_update")
    stop.wait()
    DBOS.destroy()


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One workflow a call, from its client."""
    client = DBOSClient(system_database_url=url, application_name=NAME)
    yield Producer(lambda number: client.enqueue({"queue_name": NAME, "workflow_name": NAME}, number))
    client.destroy()


def install(url: str) -> None:
    """Its tables."""
    _configure(url)
    DBOS.launch()
    DBOS.destroy()


def configure(url: str, seat: Seat) -> None:
    """Set this process up to note its runs on this seat."""
    _seats.append(seat)
    _configure(url)


def _configure(url: str) -> None:
    """Each process must have a unique id."""
    DBOS(
        config={
            "name": NAME,
            "system_database_url": url,
            "executor_id": str(os.getpid()),
            "application_version": "1",
            "log_level": "ERROR",
        }
    )


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """A workflow for each type, each with one step, since steps are what is tried again; and ten queues."""
    _configure(url)

    @DBOS.step(retries_allowed=True, max_attempts=2, interval_seconds=0)
    def step(number: int, text: str) -> None:
        mix.run(number, text)

    for name in TYPES:
        _declare_workflow(name, step)
    stop = stopped()
    wait_for_start()
    DBOS.launch()
    for queue in QUEUES:
        DBOS.register_queue(queue, polling_interval_sec=float(setting), on_conflict="always_update")
    stop.wait()
    DBOS.destroy()


@contextlib.contextmanager
def mix_producer(url: str) -> Iterator[MixProducer]:
    """One workflow a call."""
    client = DBOSClient(system_database_url=url, application_name=NAME)

    def one(task: Any) -> Any:
        delay = {"delay_seconds": task.delay} if task.delay else {}
        return client.enqueue({"queue_name": task.queue, "workflow_name": task.type, **delay}, **task.params)

    yield MixProducer(one)
    client.destroy()


def _declare_workflow(name: str, step: Callable[..., None]) -> None:
    @DBOS.workflow(name=name)
    def workflow(number: int, text: str) -> None:
        step(number, text)
