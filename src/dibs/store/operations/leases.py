"""The operations of a worker on a claim that it holds: start, renew, progress, status, checkpoints.

The token of the claim fences every write: the condition is in the statement that writes (`finish.sql` of each engine),
so a claim that was lost changes nothing. Keep the condition there; a check in Python before the write would be a race.
A result for each claim is returned in the order of the arguments, and the error of one claim does not affect others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from dibs.errors import ClaimLost, DibsError, NotYourClaim, TaskExpired, TaskNotFound
from dibs.json_values import check_name, clean_text, decode, encode
from dibs.model.checks import from_micros
from dibs.model.claim import AnyClaim, ClaimName, ClaimStatus, ProgressReport, Renewed, check_claims, claim_name
from dibs.model.task import State, Task
from dibs.store.operation import Mode, Operation, Statement, Statements
from dibs.store.operations.rows import read_task
from dibs.store.sql import Words

T = TypeVar("T")

ALL_TASKS: Words = (("step_condition", ""),)
"""The statement changes tasks and steps of workflows alike (see PLAIN in `finish.py`)."""


class Leases:
    """Operations on held claims. The contract of each is in QueueOperations."""

    def start(self, claims: Sequence[AnyClaim]) -> Operation[list[DibsError | None]]:
        """Record that tasks that were claimed ahead have started, so that a lost attempt is counted. The result for a
        lost claim is ClaimLost, and for a task that has expired TaskExpired."""
        check_claims(claims)
        return Operation("start", lambda: _start(claims))

    def renew(self, claims: Sequence[AnyClaim], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Renew the leases until `lease` microseconds from now. The result for a lost claim is ClaimLost."""
        check_claims(claims)
        return Operation("renew", lambda: _renew(claims, lease))

    def progress(self, reports: Sequence[ProgressReport]) -> Operation[list[bool | DibsError]]:
        """Store the progress of the tasks. Each result is True if the cancellation of the task was requested."""
        check_claims([ref for ref, _, _ in reports])
        return Operation("progress", lambda: _progress(reports))

    def claim_status(self, claims: Sequence[AnyClaim]) -> Operation[list[ClaimStatus]]:
        """Read the status of each claim: held, stopping or lost."""
        check_claims(claims)
        return Operation("claim_status", lambda: _claim_status(claims), mode=Mode.READ)

    def checkpoints(self, task_id: int) -> Operation[dict[str, Any]]:
        """Read the checkpoints of the task: the values by name."""
        return Operation("checkpoints", lambda: _checkpoints(task_id), mode=Mode.READ)

    def keep_checkpoint(self, claim: AnyClaim, name: str, value: Any) -> Operation[Any]:
        """Store a checkpoint, if the claim is held and the task has no checkpoint of this name. Returns the stored
        value, which is the earlier one if there was one."""
        check_claims([claim])
        check_name(name, "The name of a checkpoint")
        given = {**fence(claim), "name": name, "value": encode(value, "checkpoint")}
        return Operation("keep_checkpoint", lambda: _keep_checkpoint(claim, given), mode=Mode.TRANSACTION)


def _start(claims: Sequence[AnyClaim]) -> Statements[list[DibsError | None]]:
    if not claims:
        return []
    rows = yield Statement("start", rows=by_task([fence(ref) for ref in claims]), words=ALL_TASKS)
    results = yield from _results_or_errors(claims, dict.fromkeys((row[:3] for row in rows), None))
    refused = [ref for ref, result in zip(claims, results, strict=True) if result is not None]
    held = (yield from live_claims(refused)) if refused else set()
    return [
        _expired(ref) if claim_name(ref) in held and result is not None else result
        for ref, result in zip(claims, results, strict=True)
    ]


def _expired(ref: AnyClaim) -> TaskExpired:
    """The error for a start that was refused although the claim is held."""
    message = f"Task {ref.task_id} was not started by its expiry."
    return TaskExpired(message, task_id=ref.task_id, token=ref.token)


def _renew(claims: Sequence[AnyClaim], lease: int) -> Statements[list[Renewed | DibsError]]:
    if not claims:
        return []
    given = by_task([{**fence(ref), "lease": lease} for ref in claims])
    rows = yield Statement("renew", rows=given, words=ALL_TASKS)
    renewed = {row[:3]: Renewed(row[0], from_micros(row[3]), bool(row[4])) for row in rows}
    return (yield from _results_or_errors(claims, renewed))


def _progress(reports: Sequence[ProgressReport]) -> Statements[list[bool | DibsError]]:
    if not reports:
        return []
    # Only the last report of each claim: a statement can change a row only once.
    latest = {claim_name(report[0]): _progress_row(*report) for report in reports}
    rows = yield Statement("progress", rows=by_task(latest.values()), words=ALL_TASKS)
    stop_requested = {row[:3]: bool(row[3]) for row in rows}
    return (yield from _results_or_errors([ref for ref, _, _ in reports], stop_requested))


def _progress_row(ref: AnyClaim, percent: int, message: str | None) -> dict[str, Any]:
    text = None if message is None else clean_text(message)
    return {**fence(ref), "progress": percent, "progress_message": text}


def _claim_status(claims: Sequence[AnyClaim]) -> Statements[list[ClaimStatus]]:
    if not claims:
        return []
    rows = yield Statement("claim_status", {"ids": [ref.task_id for ref in claims]})
    held = {row[:3]: ClaimStatus.STOPPING if row[3] else ClaimStatus.HELD for row in rows}
    return [held.get(claim_name(ref), ClaimStatus.LOST) for ref in claims]


def live_claims(claims: Sequence[AnyClaim]) -> Statements[set[ClaimName]]:
    """Return which of these claims are still held, by their names."""
    rows = yield Statement("claim_status", {"ids": [ref.task_id for ref in claims]})
    return {row[:3] for row in rows}


def _checkpoints(task_id: int) -> Statements[dict[str, Any]]:
    rows = yield Statement("checkpoints", {"id": task_id})
    return {name: decode(value) for name, value in rows}


def _keep_checkpoint(claim: AnyClaim, given: dict[str, Any]) -> Statements[Any]:
    rows = yield Statement("keep_checkpoint", given)
    if rows:
        return decode(rows[0][0])
    task = (yield from read_tasks([claim.task_id])).get(claim.task_id)
    if task is None or (task.token, task.worker_id, task.state) != (claim.token, claim.worker_id, "claimed"):
        raise refusal(claim, task)
    return (yield from _checkpoints(claim.task_id))[given["name"]]


def fence(ref: AnyClaim) -> dict[str, Any]:
    """The parameters that identify a claim in a statement."""
    return {"id": ref.task_id, "token": ref.token, "worker_id": ref.worker_id}


def by_task(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows in the order of their tasks. Two statements about the same tasks then lock the tasks in the same
    order, and cannot deadlock."""
    return sorted(rows, key=itemgetter("id"))


def read_tasks(ids: list[int]) -> Statements[dict[int, Task]]:
    """Read the tasks with these ids. Returns them by id."""
    rows = yield Statement("get", {"ids": ids})
    return {row[0]: read_task(row) for row in rows}


def _results_or_errors(claims: Sequence[AnyClaim], results: Mapping[ClaimName, T]) -> Statements[list[T | DibsError]]:
    """Return the result for each claim, or the error for a claim for which the statement changed no row.

    `results`: one for each row that the statement returned.
    """
    lost = [ref.task_id for ref in claims if claim_name(ref) not in results]
    tasks = (yield from read_tasks(lost)) if lost else {}
    return [
        results[name] if (name := claim_name(ref)) in results else refusal(ref, tasks.get(ref.task_id))
        for ref in claims
    ]


def refusal(ref: AnyClaim, task: Task | None) -> DibsError:
    """Return the error that explains why a fenced write changed nothing. `task`: the task as it is now, if it
    exists."""
    if task is None:
        return TaskNotFound(ref.task_id)
    if task.token == ref.token and task.worker_id not in (ref.worker_id, None):
        verb = "is held" if task.state is State.CLAIMED else "was last held"
        message = f"Task {task.id} {verb} by {task.worker_id}, not by {ref.worker_id}."
        return NotYourClaim(message, task_id=task.id, token=ref.token)
    state = f"claimed by {task.worker_id} under token {task.token}" if task.state is State.CLAIMED else task.state
    message = f"{ref.worker_id} no longer holds task {task.id} under token {ref.token}: it is {state} now."
    return ClaimLost(message, task_id=task.id, token=ref.token)
