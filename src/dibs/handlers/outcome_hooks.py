"""Outcome hooks: functions of the user that a worker calls after it has stored the outcome of an attempt."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from dibs.errors import InvalidValue
from dibs.handlers.middleware import name_of
from dibs.model.claim import Claim, Completed, Failed, Finished, Outcome
from dibs.model.task import Failure, State, Task


class HookKind(StrEnum):
    """After which outcomes a hook is called."""

    SUCCESS = "on_success"  # the attempt has completed its task
    ERROR = "on_error"  # the attempt failed, whether another one follows or not
    DEAD = "on_dead"  # the attempt failed, and no further one follows
    CANCEL = "on_cancel"  # the task is cancelled


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt whose outcome is stored, for hooks. `task`: as it was when it was claimed; `state`: its state now.

    `result`: of a completed task. `failure`: of a failed attempt. `next_at`: when the next attempt is due.
    `seconds`: how long the attempt took. `resources`: what the lifespan of the app yielded.
    """

    task: Task
    attempt: int
    token: int
    worker_id: str
    state: State
    result: Any = None
    failure: Failure | None = None
    next_at: datetime | None = None
    seconds: float | None = None
    resources: Any = None

    @property
    def will_retry(self) -> bool:
        """True if another attempt follows."""
        return self.next_at is not None


OutcomeHook = Callable[[EndedAttempt], Any]
"""Receives the ended attempt. A plain or an async function."""

OutcomeHooks = Mapping[HookKind, Sequence[OutcomeHook]]


def checked_hooks(kind: HookKind, hooks: Any) -> tuple[OutcomeHook, ...]:
    """The hooks of one option: a function, or a sequence of functions."""
    found = tuple(hooks) if isinstance(hooks, (list, tuple)) else (hooks,)
    for hook in found:
        _check(kind, hook)
    return found


def _check(kind: HookKind, hook: Any) -> None:
    example = f"Write `def {kind}(ended): …`; `ended` is a dibs.EndedAttempt."
    if not callable(hook) or isinstance(hook, type):
        raise InvalidValue(f"{hook!r} is not a function, so it cannot be a hook for {kind}.", hint=example)
    if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
        raise InvalidValue(f"{name_of(hook)} is a generator, so it cannot be a hook for {kind}.", hint=example)
    try:
        inspect.signature(hook).bind(None)
    except TypeError:
        raise InvalidValue(f"The hook {name_of(hook)} for {kind} does not take one argument.", hint=example) from None
    except ValueError:  # some functions written in C have no signature
        pass


def hooks_after(hooks: OutcomeHooks, outcome: Outcome, finished: Finished) -> list[OutcomeHook]:
    """The hooks to call after this outcome, in order."""
    return [hook for kind in _kinds(outcome, finished.state) for hook in hooks.get(kind, ())]


def _kinds(outcome: Outcome, state: State) -> list[HookKind]:
    if isinstance(outcome, Completed):
        return [HookKind.SUCCESS]
    kinds = [HookKind.ERROR] if isinstance(outcome, Failed) else []
    if isinstance(outcome, Failed) and state is State.FAILED:
        kinds.append(HookKind.DEAD)
    elif state is State.CANCELLED:  # also by a failure or a release, after a request to cancel the task
        kinds.append(HookKind.CANCEL)
    return kinds


class DecodesForHooks(Protocol):
    """What `ended_attempt` needs of the handler: hooks are given plain JSON, as far as it can be decoded."""

    def plain(self, stored: Any) -> Any:
        """The value as plain JSON."""

    def plain_task(self, task: Task) -> Task:
        """The task with plain params and a plain result."""


def ended_attempt(
    handler: DecodesForHooks,
    claim: Claim,
    outcome: Outcome,
    finished: Finished,
    *,
    seconds: float | None,
    resources: Any,
) -> EndedAttempt:
    """What the hooks of this handler are given after this outcome."""
    return EndedAttempt(
        task=handler.plain_task(claim.task),
        attempt=claim.attempt,
        token=claim.token,
        worker_id=claim.worker_id,
        state=finished.state,
        result=handler.plain(outcome.result) if isinstance(outcome, Completed) else None,
        failure=outcome.failure if isinstance(outcome, Failed) else None,
        next_at=finished.run_at if finished.will_retry else None,
        seconds=seconds,
        resources=resources,
    )
