"""Workflow builders: steps, their dependencies, and a finalizer.

A graph is built in memory and stored at the end of its `with` block; after an error in the block nothing is stored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from dibs.codec import check_name
from dibs.errors import InvalidGraph, InvalidValue
from dibs.model.task import NewTask
from dibs.model.workflow import NewStep, NewWorkflow, OnFailure, Workflow, check_policy, free_name


class TaskMaker(Protocol):
    """The interface of a handler: a name, and a method that creates a task from the arguments of a call."""

    name: str

    def new(self, *args: Any, **kwargs: Any) -> NewTask:
        """Create the task for these arguments."""


HandlerOrType = TaskMaker | str
"""A handler, or the name of a task type."""


@dataclass(frozen=True, slots=True)
class StepRef:
    """A reference to an added step, for use in `after`."""

    name: str
    draft: Draft = field(repr=False)


class Draft:
    """Collects steps of a new workflow, or steps that a running step adds to its workflow."""

    def __init__(self) -> None:
        self._steps: dict[str, NewStep | SubFlow] = {}
        self._numbers: dict[str, int] = {}

    def step(self, which: HandlerOrType, /, *args: Any, after: After = None, **params: Any) -> StepRef:
        """Add a step for this handler with these arguments, or for this task type with these params.

        The step starts when the steps in `after` have ended: a step, a sub-workflow, the name of one, or a list of
        them.
        """
        return self.options().step(which, *args, after=after, **params)

    def workflow(
        self,
        name: str,
        *,
        after: After = None,
        on_failure: str = OnFailure.FAIL,
        deadline: float | datetime | None = None,
    ) -> SubFlow:
        """Add a sub-workflow as a step: `with flow.workflow("pages", after=fetched) as pages: …`."""
        return self.options().workflow(name, after=after, on_failure=on_failure, deadline=deadline)

    def options(self, *, name: str | None = None, on_failure: str | None = None) -> StepBuilder:
        """Set the name or the failure policy of the next step: `flow.options(name="a").step(…)`."""
        return StepBuilder(self, name, on_failure)

    def new_steps(self) -> list[NewStep]:
        """The steps to store, in the order in which they were added."""
        return [each.as_step() if isinstance(each, SubFlow) else each for each in self._steps.values()]

    def _add(self, name: str, step: NewStep | SubFlow) -> StepRef:
        self._check_open()
        self._steps[name] = step
        return StepRef(name, self)

    def _check_open(self) -> None:
        """Raise if the steps are already stored. Steps that a running step adds are never stored before it ends."""

    def _name(self, name: str | None, default: str) -> str:
        """The given name, which must be unique; else the default, with a number if it is taken."""
        if name is not None:
            if check_name(name, "The name of a step") in self._steps:
                raise InvalidGraph(f"Two steps are named {name!r}.", hint="Give one of them another name.")
            return name
        return free_name(default, self._steps, self._numbers)

    def _names(self, after: After) -> list[str]:
        if after is None:
            return []
        parents = after if isinstance(after, Sequence) and not isinstance(after, str) else [after]
        return [self._name_of(parent) for parent in parents]

    def _name_of(self, parent: Any) -> str:
        ref = parent.ref if isinstance(parent, SubFlow) else parent
        if isinstance(ref, str):
            return ref
        if not isinstance(ref, StepRef):
            raise InvalidValue(f"{ref!r} is not a step.", hint="`after` takes results of step(), or names of steps.")
        if ref.draft is not self:
            raise InvalidGraph(
                f"The step {ref.name!r} belongs to another workflow.",
                hint="A step can only be after steps of its own workflow. Set `after` of the sub-workflow instead.",
            )
        return ref.name


@dataclass(frozen=True, slots=True)
class StepBuilder:
    """Adds the next step of a draft, with options."""

    draft: Draft
    name: str | None
    on_failure: str | None

    def __post_init__(self) -> None:
        check_policy(self.on_failure)

    def step(self, which: HandlerOrType, /, *args: Any, after: After = None, **params: Any) -> StepRef:
        """See Draft.step."""
        task = _new_task(which, args, params)
        name = self.draft._name(self.name, task.type)
        after = self.draft._names(after)
        return self.draft._add(name, NewStep(name=name, task=task, after=after, on_failure=self.on_failure))

    def workflow(
        self,
        name: str,
        *,
        after: After = None,
        on_failure: str = OnFailure.FAIL,
        deadline: float | datetime | None = None,
    ) -> SubFlow:
        """See Draft.workflow. `on_failure` applies to the steps inside; the option of this builder to the
        sub-workflow."""
        empty = NewWorkflow(name=name, on_failure=on_failure, deadline=deadline)
        names = self.draft._names(after)
        sub = SubFlow(empty, StepRef(self.draft._name(self.name, name), self.draft), names, self.on_failure)
        self.draft._add(sub.ref.name, sub)
        return sub


class GraphBuilder(Draft):
    """Builds a complete workflow: steps and a finalizer."""

    def __init__(self, empty: NewWorkflow) -> None:
        super().__init__()
        self._empty = empty
        self._finalizer: NewTask | None = None

    def finalize(self, which: HandlerOrType, /, *args: Any, **params: Any) -> None:
        """Set the finalizer: a task that runs once, after every step has ended. At most one."""
        self._check_open()
        if self._finalizer is not None:
            raise InvalidGraph(
                f"The workflow {self._empty.name!r} already has a finalizer: {self._finalizer.type!r}.",
                hint="Add further work as a step.",
            )
        self._finalizer = _new_task(which, args, params)

    def new(self) -> NewWorkflow:
        """The workflow to store. Raises InvalidGraph if it could not run to its end."""
        return msgspec.structs.replace(self._empty, steps=self.new_steps(), finalizer=self._finalizer)


class SubFlow(GraphBuilder):
    """Builds a sub-workflow, which is a step of another workflow. Dropped if its block raises."""

    def __init__(self, empty: NewWorkflow, ref: StepRef, after: Sequence[str], on_failure: str | None) -> None:
        super().__init__(empty)
        self.ref = ref
        self._after = after
        self._on_failure = on_failure

    @property
    def name(self) -> str:
        """The name of its step in the outer workflow."""
        return self.ref.name

    def as_step(self) -> NewStep:
        """The step that represents the sub-workflow in the outer workflow."""
        return NewStep(name=self.name, workflow=self.new(), after=self._after, on_failure=self._on_failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.ref.draft._steps.pop(self.name, None)

    def _check_open(self) -> None:
        self.ref.draft._check_open()


class Flow(GraphBuilder):
    """Builds a workflow in a block, `with app.workflow(…) as flow:`, and stores it at the end of the block."""

    def __init__(self, empty: NewWorkflow, start: Callable[[NewWorkflow], Any]) -> None:
        super().__init__(empty)
        self._start = start
        self._stored: Workflow | None = None

    @property
    def stored(self) -> Workflow:
        """The stored workflow; available after the block."""
        if self._stored is None:
            raise InvalidValue(
                f"The workflow {self._empty.name!r} is not stored.",
                hint="It is stored at the end of its `with` block, unless the block raises.",
            )
        return self._stored

    @property
    def id(self) -> int:
        """The id of the stored workflow; available after the block."""
        return self.stored.id

    def __enter__(self) -> Self:
        if inspect.iscoroutinefunction(self._start):
            raise InvalidValue(
                "A workflow of AsyncDibs needs `async with`.", hint="Write `async with app.workflow(…)`."
            )
        self._check_open()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._stored = self._start(self.new())

    async def __aenter__(self) -> Self:
        if not inspect.iscoroutinefunction(self._start):
            raise InvalidValue(
                "A workflow of Dibs needs `with`, not `async with`.", hint="Write `with app.workflow(…)`."
            )
        self._check_open()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._stored = await self._start(self.new())

    def _check_open(self) -> None:
        if self._stored is not None:
            raise InvalidValue(
                f"The workflow {self._stored.id} is already stored.", hint="Use add_steps() to add steps to it."
            )


After = StepRef | SubFlow | str | Sequence[StepRef | SubFlow | str] | None


def _new_task(which: HandlerOrType, args: tuple[Any, ...], params: dict[str, Any]) -> NewTask:
    if not isinstance(which, str):
        if not hasattr(which, "new"):
            raise InvalidValue(f"{which!r} is neither a handler nor the name of a task type.", hint="Use @app.task.")
        return which.new(*args, **params)
    if args:
        raise InvalidValue(f"The params of {which!r} must be passed by name.", hint="For example: step(type, page=1).")
    return NewTask(which, params)
