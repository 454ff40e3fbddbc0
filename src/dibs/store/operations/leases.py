"""Keep a claim alive: start, renew, progress, checkpoints. Every write is fenced by the token of its claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from dibs.codec import check_name, clean_text, decode, encode
from dibs.errors import ClaimLost, DibsError, NotYourClaim, TaskNotFound
from dibs.model.checks import from_micros
from dibs.model.claim import AnyClaim, ClaimName, ClaimStatus, ProgressReport, Renewed, check_claims, claim_name
from dibs.model.task import State, Task
from dibs.store.operation import Mode, Operation, Statement, Statements
from dibs.store.operations.rows import read_task
from dibs.store.sql import Words

T = TypeVar("T")

ALL_TASKS: Words = (("whose", ""),)
"""The statement also changes steps of workflows."""


class Leases:
    """Operations of a worker that holds a claim and keeps it."""

    def start(self, claims: Sequence[AnyClaim]) -> Operation[list[DibsError | None]]:
        """Start tasks that were claimed ahead. The answer for a lost claim is ClaimLost."""
        check_claims(claims)
        return Operation("start", lambda: _start(claims))

    def renew(self, claims: Sequence[AnyClaim], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Extend the leases to `lease` microseconds from now. The answer for a lost claim is ClaimLost."""
        check_claims(claims)
        return Operation("renew", lambda: _renew(claims, lease))

    def progress(self, reports: Sequence[ProgressReport]) -> Operation[list[bool | DibsError]]:
        """Store the progress of the tasks. Each answer is True if the cancellation of the task was requested."""
        check_claims([ref for ref, _, _ in reports])
        return Operation("progress", lambda: _progress(reports))

    def claim_status(self, claims: Sequence[AnyClaim]) -> Operation[list[ClaimStatus]]:
        """The status of each claim: held, stopping or lost. Nothing is written."""
        check_claims(claims)
        return Operation("claim_status", lambda: _claim_status(claims), mode=Mode.READ)

    def checkpoints(self, task_id: int) -> Operation[dict[str, Any]]:
        """The values that the task's attempts have kept, by name."""
        return Operation("checkpoints", lambda: _checkpoints(task_id), mode=Mode.READ)

    def keep_checkpoint(self, claim: AnyClaim, name: str, value: Any) -> Operation[Any]:
        """Keep the value, if the token is live. Returns the value that is kept."""
        check_claims([claim])
        check_name(name, "The name of a checkpoint")
        given = {**fence(claim), "name": name, "value": encode(value, "checkpoint")}
        return Operation("keep_checkpoint", lambda: _keep(claim, given), mode=Mode.TRANSACTION)


def _start(claims: Sequence[AnyClaim]) -> Statements[list[DibsError | None]]:
    if not claims:
        return []
    rows = yield Statement("start", rows=by_task([fence(ref) for ref in claims]), words=ALL_TASKS)
    return (yield from _or_refusals(claims, dict.fromkeys((row[:3] for row in rows), None)))


def _renew(claims: Sequence[AnyClaim], lease: int) -> Statements[list[Renewed | DibsError]]:
    if not claims:
        return []
    given = by_task([{**fence(ref), "lease": lease} for ref in claims])
    rows = yield Statement("renew", rows=given, words=ALL_TASKS)
    renewed = {row[:3]: Renewed(row[0], from_micros(row[3]), bool(row[4])) for row in rows}
    return (yield from _or_refusals(claims, renewed))


def _progress(reports: Sequence[ProgressReport]) -> Statements[list[bool | DibsError]]:
    if not reports:
        return []
    latest = {claim_name(report[0]): _progress_row(*report) for report in reports}  # a statement changes a row once
    rows = yield Statement("progress", rows=by_task(latest.values()), words=ALL_TASKS)
    stop_requested = {row[:3]: bool(row[3]) for row in rows}
    return (yield from _or_refusals([ref for ref, _, _ in reports], stop_requested))


def _progress_row(ref: AnyClaim, percent: int, message: str | None) -> dict[str, Any]:
    text = None if message is None else clean_text(message)
    return {**fence(ref), "progress": percent, "progress_message": text}


def _claim_status(claims: Sequence[AnyClaim]) -> Statements[list[ClaimStatus]]:
    if not claims:
        return []
    rows = yield Statement("claim_status", {"ids": [ref.task_id for ref in claims]})
    live = {row[:3]: ClaimStatus.STOPPING if row[3] else ClaimStatus.HELD for row in rows}
    return [live.get(claim_name(ref), ClaimStatus.LOST) for ref in claims]


def live_claims(claims: Sequence[AnyClaim]) -> Statements[set[ClaimName]]:
    """The names of the live claims among these."""
    rows = yield Statement("claim_status", {"ids": [ref.task_id for ref in claims]})
    return {row[:3] for row in rows}


def _checkpoints(task_id: int) -> Statements[dict[str, Any]]:
    rows = yield Statement("checkpoints", {"id": task_id})
    return {name: decode(value) for name, value in rows}


def _keep(claim: AnyClaim, given: dict[str, Any]) -> Statements[Any]:
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
    """The rows in the order of their tasks. An engine that locks row by row then cannot deadlock with another statement
    about the same tasks."""
    return sorted(rows, key=itemgetter("id"))


def read_tasks(ids: list[int]) -> Statements[dict[int, Task]]:
    """The tasks with these ids, by id."""
    rows = yield Statement("get", {"ids": ids})
    return {row[0]: read_task(row) for row in rows}


def _or_refusals(claims: Sequence[AnyClaim], results: Mapping[ClaimName, T]) -> Statements[list[T | DibsError]]:
    """The result of each claim, or the error where the statement changed nothing."""
    lost = [ref.task_id for ref in claims if claim_name(ref) not in results]
    tasks = (yield from read_tasks(lost)) if lost else {}
    return [
        results[name] if (name := claim_name(ref)) in results else refusal(ref, tasks.get(ref.task_id))
        for ref in claims
    ]


def refusal(ref: AnyClaim, task: Task | None) -> DibsError:
    """The reason why a fenced write changed nothing."""
    if task is None:
        return TaskNotFound(ref.task_id)
    if task.token == ref.token and task.worker_id not in (ref.worker_id, None):
        holding = "is held" if task.state is State.CLAIMED else "was last held"
        message = f"Task {task.id} {holding} by {task.worker_id}, not by {ref.worker_id}."
        return NotYourClaim(message, task_id=task.id, token=ref.token)
    now = f"claimed by {task.worker_id} under token {task.token}" if task.state is State.CLAIMED else task.state
    message = f"{ref.worker_id} no longer holds task {task.id} under token {ref.token}: it is {now} now."
    return ClaimLost(message, task_id=task.id, token=ref.token)
