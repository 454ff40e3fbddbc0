"""Workflows written down in Python: steps, what they come after, and a finalizer.

A graph is made in memory and stored when its block ends; after an error in the block, nothing is stored.
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
    """A handler: it has a name, and makes a task of a call's arguments."""

    name: str

    def new(self, *args: Any, **kwargs: Any) -> NewTask:
        """The task of this call."""


Which = TaskMaker | str
"""A handler, or the name of a task type."""


@dataclass(frozen=True, slots=True)
class StepRef:
    """A step that was added, to be named in `after`."""

    name: str
    draft: Draft = field(repr=False)


class Draft:
    """Steps that are being written down: those of a flow, or those that a running step adds to its workflow."""

    def __init__(self) -> None:
        self._steps: dict[str, NewStep | SubFlow] = {}
        self._numbers: dict[str, int] = {}

    def step(self, which: Which, /, *args: Any, after: After = None, **params: Any) -> StepRef:
        """A step for this handler with these arguments, or for this task type with these params.

        It begins when the steps in `after` are done: a step, a sub-flow, the name of one, or a list of them.
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
        """A step that is a workflow of its own: `with flow.workflow("pages", after=fetched) as pages: …`."""
        return self.options().workflow(name, after=after, on_failure=on_failure, deadline=deadline)

    def options(self, *, name: str | None = None, on_failure: str | None = None) -> Adding:
        """The next step with a name of its own, or another policy for its failure: `flow.options(name="a").step(…)`."""
        return Adding(self, name, on_failure)

    def written(self) -> list[NewStep]:
        """The steps, in the order in which they were added."""
        return [each.as_step() if isinstance(each, SubFlow) else each for each in self._steps.values()]

    def _add(self, name: str, step: NewStep | SubFlow) -> StepRef:
        self._check_open()
        self._steps[name] = step
        return StepRef(name, self)

    def _check_open(self) -> None:
        """Nothing is stored yet, so there may be more."""

    def _name(self, wish: str | None, otherwise: str) -> str:
        """The wished name, which must be new; else the other one, numbered where it is taken."""
        if wish is not None:
            if check_name(wish, "The name of a step") in self._steps:
                raise InvalidGraph(f"Two steps are named {wish!r}.", hint="Give one of them another name.")
            return wish
        return free_name(otherwise, self._steps, self._numbers)

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
            raise InvalidValue(f"{ref!r} is no step.", hint="`after` takes what step() gave, or the name of a step.")
        if ref.draft is not self:
            raise InvalidGraph(
                f"The step {ref.name!r} belongs to another workflow.",
                hint="Steps come after steps of their own workflow; a sub-flow as a whole may come after others.",
            )
        return ref.name


@dataclass(frozen=True, slots=True)
class Adding:
    """The next step of a draft, with its options."""

    draft: Draft
    name: str | None
    on_failure: str | None

    def __post_init__(self) -> None:
        check_policy(self.on_failure)

    def step(self, which: Which, /, *args: Any, after: After = None, **params: Any) -> StepRef:
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
        """See Draft.workflow. `on_failure`: of the steps inside; that of the whole is the option."""
        empty = NewWorkflow(name=name, on_failure=on_failure, deadline=deadline)
        names = self.draft._names(after)
        sub = SubFlow(empty, StepRef(self.draft._name(self.name, name), self.draft), names, self.on_failure)
        self.draft._add(sub.ref.name, sub)
        return sub


class Graph(Draft):
    """A whole workflow that is being written down."""

    def __init__(self, empty: NewWorkflow) -> None:
        super().__init__()
        self._empty = empty
        self._finalizer: NewTask | None = None

    def finalize(self, which: Which, /, *args: Any, **params: Any) -> None:
        """What to run once, when every step is done. At most one."""
        self._check_open()
        if self._finalizer is not None:
            raise InvalidGraph(
                f"The workflow {self._empty.name!r} already has a finalizer: {self._finalizer.type!r}.",
                hint="What else there is to do can be a step.",
            )
        self._finalizer = _new_task(which, args, params)

    def new(self) -> NewWorkflow:
        """The workflow as written so far, checked: InvalidGraph where it could not run to its end."""
        return msgspec.structs.replace(self._empty, steps=self.written(), finalizer=self._finalizer)


class SubFlow(Graph):
    """A workflow inside another, where it is a step. Dropped if its block raises."""

    def __init__(self, empty: NewWorkflow, ref: StepRef, after: Sequence[str], on_failure: str | None) -> None:
        super().__init__(empty)
        self.ref = ref
        self._after = after
        self._on_failure = on_failure

    @property
    def name(self) -> str:
        """Its name among the steps of the workflow around it."""
        return self.ref.name

    def as_step(self) -> NewStep:
        """What it is to the workflow around it."""
        return NewStep(name=self.name, workflow=self.new(), after=self._after, on_failure=self._on_failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.ref.draft._steps.pop(self.name, None)

    def _check_open(self) -> None:
        self.ref.draft._check_open()


class Flow(Graph):
    """A workflow in its block, `with app.workflow(…) as flow:`, at whose end it is stored."""

    def __init__(self, empty: NewWorkflow, start: Callable[[NewWorkflow], Any]) -> None:
        super().__init__(empty)
        self._start = start
        self._stored: Workflow | None = None

    @property
    def stored(self) -> Workflow:
        """The workflow, after the block."""
        if self._stored is None:
            raise InvalidValue(
                f"The workflow {self._empty.name!r} is not stored.",
                hint="It is at the end of its block, unless that raises.",
            )
        return self._stored

    @property
    def id(self) -> int:
        """The workflow's id, after the block."""
        return self.stored.id

    def __enter__(self) -> Self:
        if inspect.iscoroutinefunction(self._start):
            raise InvalidValue("The workflows of an AsyncDibs are awaited.", hint="Write `async with app.workflow(…)`.")
        self._check_open()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._stored = self._start(self.new())

    async def __aenter__(self) -> Self:
        if not inspect.iscoroutinefunction(self._start):
            raise InvalidValue("The workflows of a Dibs are not awaited.", hint="Write `with app.workflow(…)`.")
        self._check_open()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._stored = await self._start(self.new())

    def _check_open(self) -> None:
        if self._stored is not None:
            raise InvalidValue(
                f"The workflow {self._stored.id} is stored.", hint="add_steps() adds to a workflow that runs."
            )


After = StepRef | SubFlow | str | Sequence[StepRef | SubFlow | str] | None


def _new_task(which: Which, args: tuple[Any, ...], params: dict[str, Any]) -> NewTask:
    if not isinstance(which, str):
        if not hasattr(which, "new"):
            raise InvalidValue(f"{which!r} is neither a handler nor the name of a task type.", hint="Use @app.task.")
        return which.new(*args, **params)
    if args:
        raise InvalidValue(f"The params of {which!r} have no names.", hint="Give them by name: step(type, page=1).")
    return NewTask(which, params)
