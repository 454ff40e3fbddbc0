"""How a worker works: one small frozen value, checked when it is made."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Sequence
from typing import TypedDict

import msgspec

from dibs.errors import InvalidValue
from dibs.model.checks import check_integer, check_seconds, check_worker_id
from dibs.model.claim import DEFAULT_LEASE, Filters, Order, check_lease

MEBIBYTE = 2**20


class WorkerOptions(TypedDict, total=False):
    """Options of `app.worker`; see WorkerConfig for what each means."""

    concurrency: int
    children: int
    queues: Sequence[str] | None
    order: str
    lease: float
    grace: float
    burst: bool
    worker_id: str | None
    poll: float
    upkeep_every: float
    recycle_after: int
    recycle_above: int | None


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works. Times are seconds."""

    concurrency: int = 10
    """Tasks that each lane runs at once: threads, and coroutines on the event loop."""

    children: int = os.cpu_count() or 1
    """Child processes at once, for handlers of the lane "process"."""

    queues: Sequence[str] | None = None
    """Only tasks of these queues; None: of all."""

    order: str = Order.PRIORITY
    """Which pending task comes first."""

    lease: float = DEFAULT_LEASE
    """How long a claim holds if the worker falls silent; renewed every third of it."""

    grace: float = 25.0
    """How long running tasks may go on after the worker was asked to stop, before they are released."""

    burst: bool = False
    """Stop when nothing is left to claim."""

    worker_id: str | None = None
    """The name of this worker; None: made of the host's name, the process and a random part."""

    poll: float = 2.0
    """The longest pause between two looks at the queue while nothing wakes the worker."""

    upkeep_every: float = 5.0
    """Between two rounds of upkeep: due tasks promoted, lost tasks recovered. Pruning runs once a minute."""

    recycle_after: int = 1000
    """A child process is replaced after this many tasks."""

    recycle_above: int | None = None
    """A child process is replaced when its memory has grown above this many MiB (where the system tells)."""

    def __post_init__(self) -> None:
        Filters(queues=self.queues, order=self.order)
        check_integer(self.concurrency, "concurrency", 1, 10_000)
        check_integer(self.children, "children", 1, 1000)
        check_integer(self.recycle_after, "recycle_after", 1, 2**31)
        if self.recycle_above is not None:
            check_integer(self.recycle_above, "recycle_above", 1, 2**31)
        if self.worker_id is not None:
            check_worker_id(self.worker_id)
        check_lease(self.lease)
        if self.lease < 1:
            raise InvalidValue(
                f"A worker's lease must be at least 1 second, not {self.lease}.",
                hint="It is renewed every third of it; what ends a slow task is `timeout`, not the lease.",
            )
        check_seconds(self.grace, "grace")
        check_seconds(self.poll, "poll", least=0.01)
        check_seconds(self.upkeep_every, "upkeep_every", least=0.1)


def new_worker_id() -> str:
    """A name that says where the worker runs, and that no other worker has."""
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:60] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"
