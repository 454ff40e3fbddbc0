"""What takes several operations, or waiting: written once, followed by the sync and the async client alike."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from dibs.claim import Claim, ClaimRequest
from dibs.errors import TaskNotFound, WaitTimeout
from dibs.store.contract import Store
from dibs.store.operation import Operation
from dibs.store.operations.looking import HistoryEntry
from dibs.store.operations.managing import REDRIVE_BATCH, DeadFilter
from dibs.store.operations.scheduling import Due
from dibs.store.operations.tending import BATCH, Retention, Upkept
from dibs.task import Task, check_integer

T = TypeVar("T")

POLL = 0.25
"""Seconds after which a waiter looks again even if nothing woke it: a hint can be lost, and tasks become due."""

LONG_POLL = 20.0
"""Seconds for which a server is asked to wait at a time: connections that are silent for longer get cut on the way."""

ROUNDS = 200
"""Batches that one call of upkeep does of each kind at most; the next call goes on."""

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until something changed since `seen`, or `timeout` seconds."""

    seen: int
    timeout: float


Plan = Generator[Operation[Any] | Wait, Any, T]


def claim(store: Store, request: ClaimRequest, wait: float) -> Plan[list[Claim]]:
    """Claim, waiting up to `wait` seconds for something to claim."""
    if store.served:
        return (yield from _claim_served(store, request, wait))
    claims: list[Claim] = yield store.claim(request)
    deadline = time.monotonic() + wait
    while not claims and (left := deadline - time.monotonic()) > 0:
        seen = store.wakeups.generation  # before looking: a task that comes while we look wakes us at once
        claims = yield store.claim(request)
        if not claims:
            yield Wait(seen, min(left, POLL))
    return claims


def _claim_served(store: Store, request: ClaimRequest, wait: float) -> Plan[list[Claim]]:
    """The server waits for us, and hands out the task the moment it comes."""
    deadline = time.monotonic() + wait
    while True:
        left = max(0.0, deadline - time.monotonic())
        claims: list[Claim] = yield store.claim(msgspec.structs.replace(request, wait=min(left, LONG_POLL)))
        if claims or left <= LONG_POLL:
            return claims


def wait(store: Store, task_id: int, timeout: float | None) -> Plan[Task]:
    """The task, once it is finished."""
    deadline = None if timeout is None else time.monotonic() + timeout
    seen = 0
    while True:
        task: Task | None = yield store.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        if task.finished:
            return task
        if deadline is not None and time.monotonic() >= deadline:
            message = f"Task {task_id} is still {task.state} after {timeout} seconds."
            raise WaitTimeout(message, hint="explain() says why a task is not running.")
        left = POLL if deadline is None else deadline - time.monotonic()
        yield Wait(seen, min(left, POLL))
        seen = store.wakeups.generation


def redrive(store: Store, which: DeadFilter, limit: int | None) -> Plan[int]:
    """Retry everything in the dead letter that matches, batch by batch."""
    if limit is not None:
        check_integer(limit, "limit", 1, 2**31 - 1)
    done = 0
    while limit is None or done < limit:
        batch = REDRIVE_BATCH if limit is None else min(REDRIVE_BATCH, limit - done)
        moved: int = yield store.redrive_some(which, batch)
        done += moved
        if moved < batch:
            break
    return done


def upkeep(store: Store, retention: Retention) -> Plan[Upkept]:
    """Tick, promote, recover and prune, batch by batch, until nothing is left to do (or enough for one call)."""
    ticked = yield from tick(store)
    promoted, recovered = yield from tend(store)
    pruned, history, workers = yield from clear(store, retention)
    return Upkept(promoted, recovered, pruned, history, workers, ticked)


def tend(store: Store) -> Plan[tuple[int, int]]:
    """The urgent half of upkeep: promote and recover; how many of each."""
    promoted = yield from _until_done(store.promote())
    recovered = yield from _until_done(store.recover())
    return promoted, recovered


def clear(store: Store, retention: Retention) -> Plan[tuple[int, int, int]]:
    """The other half: prune tasks, history and workers; how many of each."""
    pruned = yield from _until_done(store.prune(retention))
    history = yield from _until_done(store.prune_history(retention))
    workers: int = yield store.prune_workers(retention)
    return pruned, history, workers


def tick(store: Store) -> Plan[int]:
    """Enqueue the tasks of all schedules whose tick has come; how many."""
    due: list[Due] = yield store.due_schedules()
    ticked = 0
    for each in due:
        ticked += yield store.tick_schedule(each)
    return ticked


def prune(store: Store, retention: Retention) -> Plan[int]:
    """Prune finished tasks and old history; how many rows went."""
    tasks = yield from _until_done(store.prune(retention))
    return tasks + (yield from _until_done(store.prune_history(retention)))


def all_history(store: Store) -> Plan[list[HistoryEntry]]:
    """The whole history, page by page."""
    entries: list[HistoryEntry] = []
    while True:
        page: list[HistoryEntry] = yield store.history_after(entries[-1].id if entries else 0, PAGE)
        entries += page
        if len(page) < PAGE:
            return entries


def _until_done(operation: Operation[int]) -> Plan[int]:
    total = 0
    for _ in range(ROUNDS):
        moved: int = yield operation
        total += moved
        if moved < BATCH:
            break
    return total
