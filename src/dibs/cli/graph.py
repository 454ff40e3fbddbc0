"""A workflow in a file: the JSON that the HTTP API takes, read without a server, and refused where it is wrong."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dibs.cli.enqueue import read_object
from dibs.codec import MAX_NAME
from dibs.errors import InvalidGraph, InvalidValue
from dibs.retry import Backoff
from dibs.step import NewStep, NewWorkflow, OnFailure
from dibs.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, NewTask

MAX_NESTED = 50
HINT = 'Such as {"name": "order", "steps": [{"task_type": "fetch"}, {"task_type": "render", "after": ["fetch"]}]}.'


def read_workflow(file: str) -> NewWorkflow:
    """The workflow in this file, or in standard input for `-`."""
    content = read_object(_content(file), "The workflow", HINT)
    try:
        return msgspec.convert(content, _Outermost).new(0)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"The workflow is not as it should be: {_said(error)}.", hint=HINT) from None


def _content(file: str) -> str:
    if file == "-":
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    try:
        return Path(file).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}.", hint="Name a file, or - for stdin.") from None


def _said(error: msgspec.ValidationError) -> str:
    """Its words, with the root of the path named as people would."""
    words = str(error)
    return words[:1].lower() + words[1:].replace("`$", "`workflow")


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is not known is refused, never ignored."""


class _Backoff(_Body, frozen=True):
    base_seconds: float = 1.0
    cap_seconds: float = 300.0


class _Task(_Body, frozen=True):
    task_type: str | None = None
    params: dict[str, Any] = {}
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    delay_seconds: float | None = None
    run_at: datetime | None = None
    timeout_seconds: float | None = None
    backoff: _Backoff | None = None

    def task(self, task_type: str) -> NewTask:
        rest = Backoff()
        if self.backoff is not None:
            rest = Backoff(min(self.backoff.base_seconds, self.backoff.cap_seconds), self.backoff.cap_seconds)
        return NewTask(
            task_type, self.params, self.queue, self.priority, self.max_attempts, self.delay_seconds, self.run_at,
            self.timeout_seconds, None, rest
        )  # fmt: skip


class _Step(_Task, frozen=True):
    name: str | None = None
    after: list[str] = []
    on_failure: OnFailure | None = None
    workflow: _Workflow | None = None

    @property
    def base(self) -> str:
        """What it is called after, if it has no name."""
        return self.task_type or (self.workflow.name if self.workflow else "step")

    def step(self, name: str, depth: int) -> NewStep:
        task = None if self.task_type is None else self.task(self.task_type)
        if self.workflow is not None and task is None and self.task("none") != NewTask("none"):
            raise InvalidValue(
                f"The step {name!r} is a workflow, and has options of a task.", hint="Give them to its own steps."
            )
        workflow = None if self.workflow is None else self.workflow.new(depth + 1)
        return NewStep(name=name, task=task, workflow=workflow, after=self.after, on_failure=self.on_failure)


class _Workflow(_Body, frozen=True, kw_only=True):
    name: str
    steps: list[_Step]
    finalizer: _Task | None = None
    on_failure: OnFailure = OnFailure.FAIL
    deadline_seconds: float | None = None
    deadline_at: datetime | None = None

    def new(self, depth: int, key: str | None = None) -> NewWorkflow:
        if depth > MAX_NESTED:
            raise InvalidGraph(f"The workflow {self.name!r} is nested deeper than {MAX_NESTED} levels.")
        if self.deadline_seconds is not None and self.deadline_at is not None:
            raise InvalidValue("Give either deadline_seconds or deadline_at, not both.")
        names = _names(self.steps)
        return NewWorkflow(
            name=self.name,
            steps=[step.step(name, depth) for step, name in zip(self.steps, names, strict=True)],
            finalizer=self._finalizer(),
            key=key,
            on_failure=self.on_failure,
            deadline=self.deadline_at if self.deadline_seconds is None else self.deadline_seconds,
        )

    def _finalizer(self) -> NewTask | None:
        if self.finalizer is None:
            return None
        if self.finalizer.task_type is None:
            raise InvalidValue(f"The finalizer of the workflow {self.name!r} has no task_type.")
        return self.finalizer.task(self.finalizer.task_type)


class _Outermost(_Workflow, frozen=True, kw_only=True):
    idempotency_key: str | None = None

    def new(self, depth: int, key: str | None = None) -> NewWorkflow:
        return super().new(depth, self.idempotency_key if key is None else key)


def _names(steps: list[_Step]) -> list[str]:
    """Their names; who has none is called after its type, with the next number that is free."""
    taken = {step.name for step in steps if step.name is not None}
    last: dict[str, int] = {}
    names = []
    for step in steps:
        name = step.name
        while name is None or (step.name is None and name in taken):
            last[step.base] = number = last.get(step.base, 0) + 1
            end = "" if number == 1 else f"-{number}"
            name = step.base[: MAX_NAME - len(end)] + end
        taken.add(name)
        names.append(name)
    return names
