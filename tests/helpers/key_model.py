"""The model of idempotency keys: when a key is in force, and what an enqueue does that meets a task with its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dibs import Event, State

if TYPE_CHECKING:
    from tests.helpers.model import Life, Model

SECOND = 1_000_000
ENDED = {State.COMPLETED, State.FAILED, State.CANCELLED}
New = dict[str, Any]


class Conflict(Exception):
    """The batch is refused."""


def in_force(life: Life, now: int) -> bool:
    """True if no other task of the queue can get the key of this task."""
    if life.key is None or life.key_lost:
        return False
    match life.key_scope:
        case "until_time":
            return life.key_until is not None and now < life.key_until
        case "until_finished":
            return not life.gone and life.state not in ENDED
        case "until_started":
            return not life.gone and life.state not in ENDED and life.token == 0
    return not life.gone


def shown_scope(life: Life) -> str | None:
    """The scope that the task shows."""
    return "ended" if life.key_lost else life.key_scope


def owner(model: Model, new: New) -> Life | None:
    """The task that has the key of the new one."""
    name = new.get("queue", "default"), new["key"]
    owners = [life for life in model.lives if (life.queue, life.key) == name and in_force(life, model.now)]
    return min(owners, key=lambda life: life.gone, default=None)


def meet(model: Model, life: Life, new: New, later: Sequence[New]) -> tuple[int, bool, bool]:
    """What the enqueue of `new` does, whose key `life` has. `later`: the tasks of the batch that follow."""
    rule = new.get("on_conflict", "return")
    same = (life.type, life.content) == (new["type"], new.get("params", {}))
    if rule == "replace" and replaceable(life, new):
        if not replaced_again(life, new, later):
            replace(model, life, new)
        return life.number, True, True
    if rule == "keep" or (same and rule != "raise"):
        return life.number, True, False
    raise Conflict


def replaceable(life: Life, new: New) -> bool:
    """True if the task has not started, and has the type of the new one."""
    waits = life.state in (State.PENDING, State.SCHEDULED) and not life.gone
    return waits and life.token == 0 and life.type == new["type"]


def replaced_again(life: Life, new: New, later: Sequence[New]) -> bool:
    """True if the next task of the batch with this key replaces the content once more."""
    name = new.get("queue", "default"), new["key"]
    following = [each for each in later if (each.get("queue", "default"), each.get("key")) == name]
    return bool(following) and following[0].get("on_conflict") == "replace" and replaceable(life, following[0])


def replace(model: Model, life: Life, new: New) -> None:
    """Give the waiting task the content of the new one."""
    due = model.now + round(new.get("delay", 0) * SECOND)
    if "max_delay" in new:
        due = min(due, life.created_at + round(new["max_delay"] * SECOND))
    life.params = life.content = new.get("params", {})
    life.priority, life.run_at = new.get("priority", 0), due
    life.limits, life.group = new.get("limits", []), new.get("group")
    life.expires_at = model.now + round(new["expires_in"] * SECOND) if "expires_in" in new else None
    life.move(Event.REPLACED, State.SCHEDULED if due > model.now else State.PENDING)


def waits_for_end(model: Model, new: New) -> bool:
    """True if a task has the key of the new one, and the key is past its time."""
    if new.get("key") is None or owner(model, new) is not None:
        return False
    name = new.get("queue", "default"), new["key"]
    return any((life.queue, life.key) == name and holds(life, model.now) for life in model.present())


def leave_to(model: Model, new: New) -> None:
    """The tasks whose key is past its time lose the key to the new one."""
    name = new.get("queue", "default"), new["key"]
    for life in model.present():
        if (life.queue, life.key, life.key_scope) == (*name, "until_time"):
            life.key_lost = True


def move(model: Model, life: Life, queue: str) -> bool:
    """True if the task can take its key into this queue."""
    if not holds(life, model.now):
        return True
    new = {"key": life.key, "queue": queue}
    if owner(model, new) is not None:
        return False
    leave_to(model, new)
    return True


def take_back(model: Model, life: Life) -> None:
    """A retried task has its key again, unless another task has it."""
    if life.key_scope not in ("until_finished", "until_started"):
        return
    life.key_lost = False
    others = [each for each in model.present() if each is not life and (each.queue, each.key) == (life.queue, life.key)]
    life.key_lost = in_force(life, model.now) and any(holds(other, model.now) for other in others)


def holds(life: Life, now: int) -> bool:
    """True if the key is in force, or is past its time and no enqueue has noticed."""
    return in_force(life, now) or (life.key_scope == "until_time" and not life.key_lost)
