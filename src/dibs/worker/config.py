"""The configuration of a worker, checked when it is created."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec

from dibs.errors import InvalidValue
from dibs.model.checks import check_integer, check_seconds, check_worker_id
from dibs.model.claim import DEFAULT_LEASE, Filters, Order, check_lease

MEBIBYTE = 2**20

MAX_BOUND = 10_000
"""The largest bound of a queue: no lane runs more tasks at once."""


class WorkerOptions(TypedDict, total=False):
    """The options of `app.worker`; WorkerConfig describes each."""

    concurrency: int
    children: int
    queues: Sequence[str] | Mapping[str, int | None] | None
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
    """The configuration of a worker. Durations are in seconds."""

    concurrency: int = 10
    """Number of tasks that each lane runs at once: threads, and coroutines on the event loop."""

    children: int = os.cpu_count() or 1
    """Number of child processes for handlers of the lane "process"."""

    queues: Sequence[str] | Mapping[str, int | None] | None = None
    """Queues to claim from; None: all. A mapping gives queues a bound: {"mail": 2} runs at most two tasks of the queue
    mail at once in this process, over all lanes. A queue with the value None has no bound."""

    order: str = Order.PRIORITY
    """Which pending task is claimed first."""

    lease: float = DEFAULT_LEASE
    """How long a claim stays valid without a renewal. The worker renews after each third of the lease."""

    grace: float = 25.0
    """How long running tasks may continue after a request to stop the worker, before they are released."""

    burst: bool = False
    """Stop when there is nothing left to claim."""

    worker_id: str | None = None
    """The name of this worker; None: HOST-PID-RANDOM."""

    poll: float = 2.0
    """The longest interval between two polls of the store without a wake-up."""

    upkeep_every: float = 5.0
    """The interval between two rounds of upkeep, which promote due tasks and recover lost tasks. Pruning runs once a
    minute."""

    recycle_after: int = 1000
    """A child process is replaced after this many tasks."""

    recycle_above: int | None = None
    """A child process is replaced when it uses more than this many MiB of memory (on systems that have /proc)."""

    def __post_init__(self) -> None:
        Filters(queues=self.queue_names, order=self.order)
        for queue, bound in self.queue_bounds.items():
            check_integer(bound, f"The bound of the queue {queue!r}", 1, MAX_BOUND)
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
                hint="The worker renews leases by itself; to end slow tasks, set their `timeout`.",
            )
        check_seconds(self.grace, "grace")
        check_seconds(self.poll, "poll", least=0.01)
        check_seconds(self.upkeep_every, "upkeep_every", least=0.1)

    @property
    def queue_names(self) -> Sequence[str] | None:
        """The queues to claim from; None: all."""
        return list(self.queues) if isinstance(self.queues, Mapping) else self.queues

    @property
    def queue_bounds(self) -> dict[str, int]:
        """The bounds of the queues that have one."""
        given = self.queues if isinstance(self.queues, Mapping) else {}
        return {queue: bound for queue, bound in given.items() if bound is not None}


def new_worker_id() -> str:
    """A unique worker id that names the host and the process: HOST-PID-RANDOM."""
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:60] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"
