"""Convert rows of the database to tasks and workflows, and new tasks to rows.

Both engines return the columns of `{{task}}` and `{{workflow}}` in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dibs.json_values import decode, encode, encode_params, fingerprint
from dibs.model.checks import from_micros, to_micros
from dibs.model.claim import Claim
from dibs.model.retry import DEFAULT_BACKOFF, Backoff
from dibs.model.task import ALWAYS, STATES, Failure, NewTask, SetAside, Task
from dibs.model.unique import KeyScope
from dibs.model.workflow import FinalizeWhen, OnFailure, Workflow, WorkflowState
from dibs.store.operation import WIDTH, Row, Rows

_decode_failure = msgspec.json.Decoder(Failure).decode


SCOPES: dict[str | None, KeyScope] = {None: KeyScope.ALWAYS, **{scope.value: scope for scope in KeyScope}}
"""The scope of a key by its column."""


def read_task(row: Row, start: int = 0, *, deduplicated: bool = False, replaced: bool = False) -> Task:
    """The task in a row whose `{{task}}` columns begin at `start`. A claim spends most of its Python here, and most
    columns are NULL: NULL is tested for without a call."""
    (task_id, type_name, queue, state, params, priority, attempts, max_attempts, token, created_at, run_at,
     type_version, timeout, claimed_at, lease_until, finished_at, worker_id, key, cancel_requested, progress,
     progress_message, result, error, dropped, workflow_id, trace, set_aside, tags, expires_at, key_scope, key_until,
     limits, group) = row[start : start + 33]  # fmt: skip
    return Task(
        task_id, type_name, queue, STATES[state], decode(params), priority, attempts, max_attempts, token,
        from_micros(created_at), from_micros(run_at), type_version, timeout if timeout is None else timeout / 1_000_000,
        claimed_at if claimed_at is None else from_micros(claimed_at),
        lease_until if lease_until is None else from_micros(lease_until),
        finished_at if finished_at is None else from_micros(finished_at),
        worker_id, key, cancel_requested != 0, progress, progress_message,
        result if result is None else decode(result), error if error is None else _decode_failure(error), deduplicated,
        dropped, workflow_id, trace, set_aside if set_aside is None else SetAside(set_aside),
        [] if tags is None else decode(tags), expires_at if expires_at is None else from_micros(expires_at),
        key if key is None else SCOPES[key_scope], key_until if key_until is None else from_micros(key_until), replaced,
        [] if limits is None else decode(limits), group
    )  # fmt: skip


_PARAMS, _RESULT, _ERROR = 4, 21, 22

ROWS_AT_ONCE = 100
"""The number of tasks that an operation with a limit on its content reads in one statement."""


def add_tasks(tasks: list[Task], rows: Rows, content: float) -> float:
    """Add the tasks in the rows, as far as their content does not exceed `content` characters, but at least one task.
    Returns what is left of `content`. The other rows are not decoded: that takes many times the memory of the text."""
    for row in rows:
        content -= len(row[_PARAMS]) + len(row[_RESULT] or "") + len(row[_ERROR] or "")
        if content < 0 and tasks:
            break
        tasks.append(read_task(row))
    return content


LIMITED: Any = object()
"""The last value in the row of a claim that counts towards a limit."""


def read_claim(row: Row) -> Claim:
    """The claim in a row of a claim statement: history columns, then the task."""
    task = read_task(row, WIDTH)
    assert task.lease_until is not None
    assert task.worker_id is not None
    return Claim(task, task.token, task.worker_id, task.lease_until, row[-1] is LIMITED)


def read_claims(rows: Rows) -> list[Claim]:
    """The claims in the rows of a claim statement."""
    return [read_claim(row) for row in rows]


def queue_of(row: Row) -> str:
    """The queue of the task in a row of a claim statement."""
    queue: str = row[WIDTH + 2]
    return queue


def read_workflow(row: Row, start: int = 0, *, deduplicated: bool = False) -> Workflow:
    """The workflow in a row whose `{{workflow}}` columns begin at `start`."""
    (workflow_id, name, state, steps, active, ended, failures, created_at, queues, root_id, key, deadline, finished_at,
     on_failure, stopping, error, step_of, finalizer_id, token, by, until, when) = row[start : start + 22]  # fmt: skip
    return Workflow(
        id=workflow_id,
        name=name,
        state=WorkflowState(state),
        steps=steps,
        active=active,
        ended=ended,
        failures=failures,
        created_at=from_micros(created_at),
        queues=decode(queues),
        root_id=root_id or workflow_id,
        key=key,
        deadline=moment(deadline),
        finished_at=moment(finished_at),
        on_failure=OnFailure(on_failure),
        stopping=stopping,
        error=read_failure(error),
        step_of=step_of,
        finalizer_id=finalizer_id,
        finalize_when=FinalizeWhen(when),
        finalization_token=token,
        finalization_by=by,
        finalization_until=moment(until),
        deduplicated=deduplicated,
    )


def decode_tags(tags: str | None) -> list[str]:
    """The tags of a row; a task without tags has NULL."""
    return [] if tags is None else decode(tags)


def encode_limits(names: Iterable[str]) -> str | None:
    """The limits of a task as they are stored: a sorted JSON array, NULL for none. Tasks that name the same limits in
    another order wait in the same backlog."""
    unique = sorted(set(names))
    return encode(unique, "limits") if unique else None


def encode_tags(tags: Sequence[str]) -> str | None:
    """The tags as they are stored: a JSON array without repetitions, NULL for none."""
    return encode(list(dict.fromkeys(tags))) if tags else None


def read_failure(error: str | None) -> Failure | None:
    """The failure in a column `error`, or None."""
    return None if error is None else _decode_failure(error)


def in_order_of_states(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of states in the order of the states, so that the same counts always make the same response."""
    return {state: counts[state] for state in STATES if state in counts}


def moment(micros: int | None) -> Any:
    """The microseconds as a datetime, or None."""
    return None if micros is None else from_micros(micros)


def seconds(micros: int | None) -> float | None:
    """The microseconds as seconds, or None."""
    return None if micros is None else micros / 1_000_000


KeyOfQueue = tuple[str, str | None]
"""A queue and an idempotency key. Each queue has its own keys."""


class NewRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The row of a new task: times in microseconds, params as JSON. At most one of `expires_at` and `expires_in` is
    set; where many rows are examined, `row.expires_in is row.expires_at` means that the task does not expire."""

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
    tags: str | None = None
    expires_at: int | None = None
    expires_in: int | None = None
    key_scope: str | None = None
    key_for: int | None = None
    request: str | None = None
    limits: str | None = None
    group_key: str | None = None
    backlog: str | None = None

    @property
    def name(self) -> KeyOfQueue:
        """The queue and the key."""
        return self.queue, self.key


def new_row(task: NewTask) -> NewRow:
    """The row of a task whose type is not registered."""
    key, tags = task.key, task.tags
    backoff_base, backoff_cap = _DEFAULT_MICROS if task.backoff is DEFAULT_BACKOFF else backoff_micros(task.backoff)
    return NewRow(
        task.type,
        task.queue,
        task.priority,
        encode_params(task.params),
        task.max_attempts,
        backoff_base,
        backoff_cap,
        None,
        None if task.timeout is None else round(task.timeout * 1e6),
        None if task.delay is None else round(task.delay * 1e6) if task.max_delay is None else _limited_delay(task),
        None if task.run_at is None else to_micros(task.run_at),
        key,
        None if key is None else fingerprint(task.type, task.params),
        task.trace,
        encode_tags(tags) if tags else None,
        None if task.expires_at is None else to_micros(task.expires_at),
        None if task.expires_in is None else round(task.expires_in * 1e6),
        None if key is None else _key_scope(task),
        None if task.key_for is None else round(task.key_for * 1e6),
        None if key is None else task.request,
        encode_limits(task.limits) if task.limits else None,
        task.group,
    )


def _limited_delay(task: NewTask) -> int:
    assert task.delay is not None
    assert task.max_delay is not None
    return round(min(task.delay, task.max_delay) * 1e6)


def _key_scope(task: NewTask) -> str | None:
    """The column `key_scope`."""
    if task.key_for is not None:
        return KeyScope.UNTIL_TIME.value
    return None if task.key_scope == ALWAYS else str(task.key_scope)


def backoff_micros(backoff: Backoff) -> tuple[int, int]:
    """The columns `backoff_base` and `backoff_cap`, in microseconds."""
    return round(backoff.base * 1e6), round(backoff.cap * 1e6)


_DEFAULT_MICROS = backoff_micros(DEFAULT_BACKOFF)
