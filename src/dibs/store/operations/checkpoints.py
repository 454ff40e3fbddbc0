"""Checkpoints: what a task keeps between its attempts, written by who holds it and by nobody else."""

from __future__ import annotations

from typing import Any

from dibs.codec import check_name, decode, encode
from dibs.model.claim import AnyClaim, check_claims
from dibs.store.operation import Operation, Statement, Steps
from dibs.store.operations.finishing import fence, refusal
from dibs.store.operations.rows import read_task


class Checkpoints:
    """Keeping and finding again."""

    def checkpoints(self, task_id: int) -> Operation[dict[str, Any]]:
        """What the task's attempts have kept, by name."""
        return Operation("checkpoints", lambda: _checkpoints(task_id), writes=False)

    def keep_checkpoint(self, claim: AnyClaim, name: str, value: Any) -> Operation[Any]:
        """Keep the value, if the token is live; the one that is kept."""
        check_claims([claim])
        check_name(name, "The name of a checkpoint")
        given = {**fence(claim), "name": name, "value": encode(value, "checkpoint")}
        return Operation("keep_checkpoint", lambda: _keep(claim, given), atomic=True)


def _checkpoints(task_id: int) -> Steps[dict[str, Any]]:
    rows = yield Statement("checkpoints", {"id": task_id})
    return {name: decode(value) for name, value in rows}


def _keep(claim: AnyClaim, given: dict[str, Any]) -> Steps[Any]:
    rows = yield Statement("keep_checkpoint", given)
    if rows:
        return decode(rows[0][0])
    tasks = yield Statement("get", {"ids": [claim.task_id]})
    task = read_task(tasks[0]) if tasks else None
    if task is None or (task.token, task.worker_id, task.state) != (claim.token, claim.worker_id, "claimed"):
        raise refusal(claim, task)
    return (yield from _checkpoints(claim.task_id))[given["name"]]
