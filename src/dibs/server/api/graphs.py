"""What a caller may put into a graph: tasks in the queues that it may name, with params that dibs stores."""

from __future__ import annotations

from collections.abc import Iterable

from dibs.codec import encode_params
from dibs.model.task import NewTask
from dibs.server.endpoint import Call


def check_queues(call: Call, tasks: Iterable[NewTask]) -> None:
    """Refuse tasks in queues that the caller must not name."""
    if call.caller.queues is not None:
        for task in tasks:
            call.caller.check_queue(task.queue)


def check_params(tasks: Iterable[NewTask]) -> None:
    """Refuse params that dibs does not store, before a store is asked."""
    for task in tasks:
        encode_params(task.params)
