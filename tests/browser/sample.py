"""A store with something of everything in it, made by hand: nothing moves but what a test does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dibs
from dibs import Failed, Failure, NewTask
from tests.helpers.workflows import step, sub

PAGES = ("/", "/tasks", "/queues", "/workers", "/workflows", "/schedules", "/dead", "/keys")
"""The pages that the menu links to."""


@dataclass(frozen=True)
class Sample:
    """What is in it."""

    pending: int
    claimed: int
    completed: int
    failed: int
    workflow: int

    @property
    def pages(self) -> tuple[str, ...]:
        """Every page there is."""
        of_one = (f"/tasks/{self.failed}", f"/tasks/{self.claimed}", f"/workflows/{self.workflow}")
        return (*PAGES, "/retention", "/limits", *of_one)


def fill(app: dibs.Dibs, text: str = "ordinary", queue: str = "pictures") -> Sample:
    """Tasks in every state, workers, a workflow on its way, a schedule, a paused queue. `text` is everywhere where
    somebody who enqueues tasks or works on them can put it."""
    name = "".join(each for each in text[:100] if each.isprintable() or each == "\u202e")  # what a name may hold
    app.heartbeat("worker-1", queues=[queue, "mail"], metadata={"host": text})
    completed = _claimed(app, queue, text)
    app.complete(completed, {"said": text})
    failed = _claimed(app, queue, text)
    app.fail(failed, Failure(text[:200], text, f"Traceback: {text}"), permanent=True)
    retried = _claimed(app, queue, text)
    app.fail(retried, Failure("TimeoutError", text), retry_in=3600)
    claimed = _claimed(app, queue, text)
    app.progress(claimed, 40, text[:500])
    app.cancel(app.enqueue("send_mail", {"to": text}, queue="mail").id)
    pending = app.enqueue("resize", {"picture": 1, "text": text}, queue=queue, priority=5, key=f"k {name}")
    app.pause("imports")
    app.set_retention("completed", None, type=f"t {name}")
    app.set_schedule("nightly", "0 3 * * *", "clean_up", {"text": text})
    workflow = _workflow(app, text, name)
    return Sample(pending.id, claimed.task.id, completed.task.id, failed.task.id, workflow)


def fail_many(app: dibs.Dibs, count: int, error: str = "no such picture", **options: Any) -> list[int]:
    """Put this number of tasks into the dead letter; return their ids."""
    ids = [task.id for task in app.enqueue_many([NewTask("resize", {"n": n}, **options) for n in range(count)])]
    claims = app.claim_many("worker-1", count, types=["resize"])
    app.finish([(claim, Failed(Failure("LookupError", error), permanent=True)) for claim in claims])
    return ids


def _claimed(app: dibs.Dibs, queue: str, text: str) -> dibs.Claim:
    task = app.enqueue("resize", {"picture": 7, "text": text}, queue=queue, priority=1)
    return app.claim_by_id(task.id, "worker-1", lease=3600)


def _workflow(app: dibs.Dibs, text: str, name: str) -> int:
    """Fetched, one of three parts done and one failed, the rest and a sub-workflow to come."""
    parts = [step(name, "fetch", on_failure="ignore") for name in ("left", name, "right")]
    graph = [step("fetch"), *parts, sub("publish", step("upload"), step("tell", "upload"), after=["left", "right"])]
    workflow = app.start_workflow(dibs.NewWorkflow(name=f"film {name}", steps=[*graph, step("merge", "publish", name)]))
    for outcome in ("done", "done", "broken"):
        types = {"done": ["fetch", "left"], "broken": [name]}[outcome]
        claim = app.claim("worker-1", types=types)
        assert claim is not None
        if outcome == "done":
            app.complete(claim, {"said": text})
        else:
            app.fail(claim, Failure("ValueError", text), permanent=True)
    return workflow.id
