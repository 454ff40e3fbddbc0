"""A task on its way into the store."""

from __future__ import annotations

import msgspec

from dibs.codec import encode_params, fingerprint
from dibs.model.checks import to_micros
from dibs.model.task import NewTask

KeyOfQueue = tuple[str, str | None]
"""A queue and a key: each queue has its own keys."""


class NewRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A task on its way into the store: times in microseconds, params as JSON."""

    type: str
    queue: str
    priority: int
    params: str
    max_attempts: int
    backoff_base: int
    backoff_cap: int
    type_version: int | None = None
    timeout: int | None = None
    delay: int | None = None
    run_at: int | None = None
    key: str | None = None
    key_content: str | None = None
    trace: str | None = None

    @property
    def name(self) -> KeyOfQueue:
        """The queue and the key."""
        return self.queue, self.key


def new_row(task: NewTask) -> NewRow:
    """The task as it is stored where its type is not registered."""
    backoff, key = task.backoff, task.key
    return NewRow(
        task.type,
        task.queue,
        task.priority,
        encode_params(task.params),
        task.max_attempts,
        round(backoff.base * 1e6),
        round(backoff.cap * 1e6),
        None,
        None if task.timeout is None else round(task.timeout * 1e6),
        None if task.delay is None else round(task.delay * 1e6),
        None if task.run_at is None else to_micros(task.run_at),
        key,
        None if key is None else fingerprint(task.type, task.params),
        task.trace,
    )
