"""DBOS: a queue with `global_concurrency`, or with `partition_concurrency` and a partition for each group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dbos import DBOS, DBOSClient
from dbos._sys_db import SystemDatabase

from bench.queues import dbos_queue
from bench.queues.dbos_queue import NAME
from bench.queues.limited import Limits
from bench.queues.run_counts import Seat, stopped


def fill(url: str, limits: str, tasks: int) -> None:
    """Its tables and the workflows."""
    asked = Limits.read(limits)
    dbos_queue.install(url)
    client = DBOSClient(system_database_url=url, application_name=NAME)
    for number in range(tasks):
        options: dict[str, Any] = {"queue_name": NAME, "workflow_name": NAME}
        if asked.groups > 1:
            options["queue_partition_key"] = asked.group(number)
        client.enqueue(options, number)
    client.destroy()


def work(url: str, limits: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run it in this process; the setting is how often it polls."""
    asked = Limits.read(limits)
    dbos_queue.configure(url, seat)
    fetch: Any = SystemDatabase.start_queued_workflows
    SystemDatabase.start_queued_workflows = seat.noting(fetch)  # type: ignore[method-assign]
    stop = stopped()
    wait_for_start()
    DBOS.launch()
    name = "partition_concurrency" if asked.groups > 1 else "global_concurrency"
    DBOS.register_queue(
        NAME, polling_interval_sec=float(asked.setting), on_conflict="always_update", **{name: asked.max}
    )
    stop.wait()
    DBOS.destroy()
