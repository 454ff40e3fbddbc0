"""One of many processors of workflows, controlled like member.py: `python -m tests.helpers.processor URL NAME`.

It claims last steps, finishes them on command, and finalizes the workflows that are then due.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import dibs
from dibs import Claim, FinalizationLost
from tests.helpers.member import main

FINALIZERS = "finalizers"
"""The queue that finalizers wait in."""

Tried = dict[str, Any]
"""A wish to finalize: workflow, reason, seconds until it was answered, and the state that finalizing led to."""

held: dict[int, Claim] = {}
"""The last steps that this process has claimed, by workflow."""


def hold(app: dibs.Dibs, name: str, queue: str) -> int:
    """Claim all that waits in the queue; how many of them are held now."""
    while claims := app.claim_many(name, 1000, queues=[queue], lease=600):
        held.update((claim.task.workflow_id, claim) for claim in claims if claim.task.workflow_id is not None)
    return len(held)


def finish(app: dibs.Dibs, name: str, workflows: list[int]) -> list[Tried]:
    """Complete the last steps of these workflows, finalize what that makes due, and run finalizers."""
    tried: list[Tried] = []
    for workflow_id in workflows:
        due = app.complete(held.pop(workflow_id), {"by": name}).finalize
        if due is not None:
            tried.append(try_to_finalize(app, name, due))
    run_finalizers(app, name)
    return tried


def finalize_all(app: dibs.Dibs, name: str, workflows: list[int]) -> list[Tried]:
    """Try to finalize each of them, also without a report that it is due."""
    tried = [try_to_finalize(app, name, workflow_id) for workflow_id in workflows]
    run_finalizers(app, name)
    return tried


def try_to_finalize(app: dibs.Dibs, name: str, workflow_id: int) -> Tried:
    asked = time.perf_counter()
    claim = app.claim_finalization(workflow_id, name)
    tried = {"workflow": workflow_id, "reason": claim.reason, "seconds": time.perf_counter() - asked, "led_to": None}
    if claim.token is not None:
        tried["led_to"] = app.finalize(workflow_id, name, claim.token).state
    return tried


def run_finalizers(app: dibs.Dibs, name: str) -> None:
    while claim := app.claim(name, queues=[FINALIZERS]):
        app.complete(claim, {"by": name})


def claim(app: dibs.Dibs, name: str, workflow: int, timeout: float) -> int | None:
    """Claim the finalization; its token."""
    return app.claim_finalization(workflow, name, timeout).token


def finalize(app: dibs.Dibs, name: str, workflow: int, token: int) -> str:
    """Finalize under this token; the state that it led to, or that the claim was lost."""
    try:
        return app.finalize(workflow, name, token).state
    except FinalizationLost:
        return "lost"


def renew(app: dibs.Dibs, name: str, workflow: int, token: int) -> bool:
    """Whether the claim could be extended."""
    return app.renew_finalization(workflow, name, token).claimed


def release(app: dibs.Dibs, name: str, workflow: int, token: int) -> bool:
    """Whether the claim could be given up."""
    return app.release_finalization(workflow, name, token)


COMMANDS: dict[str, Any] = {
    "hold": hold,
    "finish": finish,
    "finalize_all": finalize_all,
    "claim": claim,
    "finalize": finalize,
    "renew": renew,
    "release": release,
}

if __name__ == "__main__":
    main(COMMANDS, *sys.argv[1:])
