"""Many tasks at once: those that somebody picked, or all that match, in small batches.

The page asks for one batch after the other and can stop between them. A batch begins below the last task of the one
before, so that nothing is done twice, and nothing to what was enqueued after the first.
"""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from dibs.batch_size import Batches
from dibs.model.key import Scope
from dibs.model.search import TaskSearch, TaskSummary
from dibs.model.task import CANCELLABLE, RETRYABLE, State
from dibs.server.auth import missing
from dibs.server.dashboard.page import Content, Visit, page, wants_json
from dibs.server.dashboard.search import Wish, look
from dibs.store.operation import Operation
from dibs.wire.errors import RequestRefused

PICKED_AT_MOST = 100
FOR_A_SCRIPT = 0.08
"""Seconds of work for a script, which asks again until all is done."""

FOR_A_READER = 5.0
"""Seconds of work for who has no script, and waits for the next page."""

Action = Literal["retry", "cancel", "redrive", "discard"]
STATES = {
    "retry": RETRYABLE,
    "cancel": CANCELLABLE,
    "redrive": frozenset({State.FAILED}),
    "discard": frozenset({State.FAILED}),
}
OF_THE_DEAD = frozenset({"redrive", "discard"})
"""Actions on tasks of the dead letter only."""

NEEDS = {"retry": Scope.ENQUEUE, "cancel": Scope.ENQUEUE, "redrive": Scope.ADMIN, "discard": Scope.ADMIN}


class Deed(Wish, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do, to which tasks: those with the `ids`, or all that match. `sure`: asked before. `to`: where to go on
    afterwards."""

    action: Action
    which: Literal["picked", "matching"] = "picked"
    ids: str = ""
    cursor: int | None = None
    sure: Literal["yes"] | None = None
    to: Literal["tasks", "dead"] = "tasks"

    @property
    def place(self) -> str:
        """Where it was said."""
        if self.to == "tasks":
            return self.address()
        asked = Wish(queue=self.queue, type=None if self.alike else self.type, error=self.error)
        return asked.address("/dead")

    def picked(self) -> list[int]:
        """The ids."""
        ids = [part for part in self.ids.split(",") if part]
        if len(ids) > PICKED_AT_MOST or not all(part.isdecimal() and len(part) < 19 for part in ids):
            raise RequestRefused("bad_request", f"Pick up to {PICKED_AT_MOST} tasks at a time.")
        return sorted({int(part) for part in ids}, reverse=True)


class Done(msgspec.Struct, frozen=True):
    """What a batch came to. `cursor`: go on from there; None: that was all."""

    moved: int
    looked: int
    cursor: int | None


@page("POST", "/tasks/bulk", Scope.ENQUEUE, Scope.ADMIN, form=Deed)
async def bulk(visit: Visit) -> Content:
    """Do it, a batch for a script, some seconds' worth for who has none and has said yes."""
    deed: Deed = visit.body
    _check_scope(visit, deed.action)
    if wants_json(visit.http[0]):
        return visit.json(await do(visit, deed, FOR_A_SCRIPT))
    if deed.sure is None:
        return visit.render("sure.html", deed=deed, count=len(deed.picked()), example=await _example(visit, deed))
    done = await do(visit, deed, FOR_A_READER)
    return visit.back(deed.place, told(deed.action, done))


async def _example(visit: Visit, deed: Deed) -> TaskSummary | None:
    """A task with an error of the kind that is meant: its name alone says nothing to who is asked about it."""
    return next(iter((await look(visit, deed, None, 1)).tasks), None) if deed.alike else None


async def do(visit: Visit, deed: Deed, enough: float) -> Done:
    """The work of up to `enough` seconds."""
    if deed.which == "picked":
        return await _do_picked(visit, deed)
    return await _do_matching(visit, deed, enough)


async def _do_picked(visit: Visit, deed: Deed) -> Done:
    ids = deed.picked()
    seen = await visit.visible(ids)
    mine = [task_id for task_id in ids if seen is None or task_id in seen]
    if deed.action in OF_THE_DEAD:
        mine = [task_id for task_id in mine if await _is_dead(visit, task_id)]
    return Done(await visit.run(_many(visit, deed.action, mine)) if mine else 0, len(ids), None)


async def _is_dead(visit: Visit, task_id: int) -> bool:
    which = TaskSearch(id=task_id, dead=True)
    return bool((await visit.run(visit.service.store.tasks.search(which))).tasks)


async def _do_matching(visit: Visit, deed: Deed, enough: float) -> Done:
    began, moved, looked, cursor, batches = time.monotonic(), 0, 0, deed.cursor, Batches()
    wish = msgspec.structs.replace(deed, dead="yes") if deed.action in OF_THE_DEAD else deed
    while True:
        left = enough - (time.monotonic() - began)
        found = await look(visit, wish, cursor, batches.size, min(max(left, enough / 4), FOR_A_SCRIPT))
        start = time.monotonic()
        ids = [task.id for task in found.tasks if _can(task, deed.action)]
        moved += await visit.run(_many(visit, deed.action, ids, wish.state)) if ids else 0
        batches.took(time.monotonic() - start)
        looked, cursor = looked + found.looked, found.cursor
        if cursor is None or time.monotonic() - began >= enough:
            # How many tasks were looked through would tell a limited key how many there are in other queues.
            return Done(moved, looked if visit.caller.queues is None else 0, cursor)


def _can(task: TaskSummary, action: Action) -> bool:
    return task.state in STATES[action]


def _many(visit: Visit, action: Action, ids: list[int], state: State | None = None) -> Operation[int]:
    store, only = visit.service.store, visit.caller.queues
    if action == "discard":
        return store.tasks.discard_many(ids, only)
    return store.tasks.cancel_many(ids, only, state) if action == "cancel" else store.tasks.retry_many(ids, only, state)


def _check_scope(visit: Visit, action: Action) -> None:
    """The scopes that the API asks for: `enqueue` to retry and cancel, `admin` to redrive and discard."""
    key = visit.caller.key
    if key is not None and (refusal := missing(frozenset({NEEDS[action]}), key)) is not None:
        raise refusal


def told(action: Action, done: Done) -> str:
    """What was done, in a sentence."""
    tasks = "1 task" if done.moved == 1 else f"{done.moved:,} tasks"
    what = {"cancel": f"Cancelled {tasks}, or asked to stop.", "discard": f"Discarded {tasks}."}.get(
        action, f"Sent {tasks} back to be claimed."
    )
    return what if done.cursor is None else f"{what} There may be more: do it again to go on."


PAGES = [bulk]
