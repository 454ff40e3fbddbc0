"""Workflow builders: steps, their dependencies, and a finalizer.

A graph is built in memory and stored at the end of its `with` block; after an error in the block nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

import msgspec

from dibs.errors import InvalidGraph, InvalidValue
from dibs.json_values import check_name
from dibs.model.task import NewTask
from dibs.model.workflow import (
    FinalizeWhen,
    NewStep,
    NewWorkflow,
    OnFailure,
    Workflow,
    WorkflowRecord,
    check_policy,
    check_when,
    free_name,
)

if TYPE_CHECKING:
    P = ParamSpec("P")
    When = Literal["success", "failure", "always"]

    class TaskMaker(Protocol[P]):
        """The interface of a handler: a name, and a method that creates a task from the arguments of a call."""

        name: str

        def new_step(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
            """Create the task of a step for these arguments."""


W = TypeVar("W", bound=WorkflowRecord)
"""The class of the stored workflow: Workflow or AsyncWorkflow."""

HandlerOrType: TypeAlias = "TaskMaker[...] | str"
"""A handler, or the name of a task type."""


@dataclass(frozen=True, slots=True)
class StepRef:
    """A reference to an added step, for use in `after`."""

    name: str
    draft: Draft = field(repr=False)


class AddsSteps:
    """Has the method `step`, with its types."""

    __slots__ = ()

    @overload
    def step(self, which: NewTask, /, *, after: After = None) -> StepRef: ...
    @overload
    def step(self, which: TaskMaker[P], /, *args: P.args, **params: P.kwargs) -> StepRef: ...
    @overload
    def step(self, which: str, /, *, after: After = None, **params: Any) -> StepRef: ...
    @overload  # types cannot express the arguments of the handler and `after`: with `after`, they are not checked
    def step(self, which: TaskMaker[...], /, *args: Any, after: After, **params: Any) -> StepRef: ...
    def step(self, which: Any, /, *args: Any, after: Any = None, **params: Any) -> StepRef:
        """Add a step for this handler with these arguments, for this task type with these params, or for a task that
        `new` of a handler has created.

        The step starts when the steps in `after` have ended: a step, a sub-workflow, the name of one, or a list of
        them. Type checkers check the arguments of `step(resize, picture=7)` and of `step(resize.new(7), after=a)`, but
        not those of `step(resize, picture=7, after=a)`. Inside a handler, the step is added when the attempt completes:
        steps that wait for the handler's step then also wait for the added steps, and receive the results of the last
        of them.
        """
        return self._add_step(new_task(which, args, params), after)

    def _add_step(self, task: NewTask, after: After) -> StepRef:
        raise NotImplementedError


class Draft(AddsSteps):
    """Collects steps of a new workflow, or steps that a running step adds to its workflow."""

    def __init__(self) -> None:
        self._steps: dict[str, NewStep | SubFlow] = {}
        self._numbers: dict[str, int] = {}

    def _add_step(self, task: NewTask, after: After) -> StepRef:
        return self.options()._add_step(task, after)

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
class StepBuilder(AddsSteps):
    """Adds the next step of a draft, with options."""

    draft: Draft
    name: str | None
    on_failure: str | None

    def __post_init__(self) -> None:
        check_policy(self.on_failure)

    def _add_step(self, task: NewTask, after: After) -> StepRef:
        name = self.draft._name(self.name, task.type)
        parents = self.draft._names(after)
        return self.draft._add(name, NewStep(name=name, task=task, after=parents, on_failure=self.on_failure))

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

    @overload
    def finalize(self, which: NewTask, /, *, when: When = "success") -> None: ...
    @overload
    def finalize(self, which: TaskMaker[P], /, *args: P.args, **params: P.kwargs) -> None: ...
    @overload
    def finalize(self, which: str, /, *, when: When = "success", **params: Any) -> None: ...
    @overload  # types cannot express the arguments of the handler and `when`: with `when`, they are not checked
    def finalize(self, which: TaskMaker[...], /, *args: Any, when: When, **params: Any) -> None: ...
    def finalize(self, which: Any, /, *args: Any, when: Any = FinalizeWhen.SUCCESS, **params: Any) -> None:
        """Set the finalizer: a task that runs once, after every step has ended. At most one.

        `when`: "success" if it runs only if all steps have passed, "failure" if it runs only otherwise (also after a
        cancellation or the deadline), or "always". It reads in `ctx.execution` how the steps ended. Type checkers check
        the arguments of `finalize(report, to="ops")` and of `finalize(report.new("ops"), when="always")`, but not those
        of `finalize(report, "ops", when="always")`.
        """
        self._check_open()
        if self._finalizer is not None:
            raise InvalidGraph(
                f"The workflow {self._empty.name!r} already has a finalizer: {self._finalizer.type!r}.",
                hint="Add further work as a step.",
            )
        check_when(when)
        self._finalizer = new_task(which, args, params)
        self._empty = msgspec.structs.replace(self._empty, finalize_when=when)

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


class FlowBase(GraphBuilder, Generic[W]):
    """What Flow and AsyncFlow have in common: `start` stores the workflow at the end of the block. `W`: the class of
    the stored workflow."""

    def __init__(self, empty: NewWorkflow, start: Callable[[NewWorkflow], Any]) -> None:
        super().__init__(empty)
        self._start = start
        self._stored: W | None = None

    @property
    def stored(self) -> W:
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

    def _check_open(self) -> None:
        if self._stored is not None:
            raise InvalidValue(
                f"The workflow {self._stored.id} is already stored.", hint="Use add_steps() to add steps to it."
            )


class Flow(FlowBase[Workflow]):
    """Builds a workflow in a block, `with app.workflow(…) as flow:`, and stores it at the end of the block."""

    def wait(self, timeout: float | None = None) -> Workflow:
        """Wait until the stored workflow has ended, and return it. Raises WaitTimeout; the workflow continues."""
        return self.stored.wait(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the stored workflow has ended. Returns the result of its finalizer, or the results of its steps by
        name. Raises WorkflowFailed, whose `execution` tells what failed, and WaitTimeout."""
        return self.stored.result(timeout)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._stored = self._start(self.new())

    if not TYPE_CHECKING:  # type checkers refuse `async with` by themselves

        async def __aenter__(self) -> Self:
            raise InvalidValue(
                "A workflow of Dibs needs `with`, not `async with`.", hint="Write `with app.workflow(…)`."
            )

        async def __aexit__(self, *_: object) -> None:
            """Python looks for this method before it calls __aenter__."""


After = StepRef | SubFlow | str | Sequence[StepRef | SubFlow | str] | None


def new_task(which: NewTask | HandlerOrType, args: tuple[Any, ...], params: dict[str, Any]) -> NewTask:
    """The task of a step: of a handler with these arguments, or of a task type with these params."""
    if isinstance(which, NewTask):
        if args or params:
            raise InvalidValue(
                "The step has a task with its params, and further arguments.",
                hint="Pass all arguments to the handler: step(resize.new(picture=7), after=…).",
            )
        return which
    if not isinstance(which, str):
        if not hasattr(which, "new_step"):
            raise InvalidValue(f"{which!r} is neither a handler nor the name of a task type.", hint="Use @app.task.")
        return which.new_step(*args, **params)
    if args:
        raise InvalidValue(f"The params of {which!r} must be passed by name.", hint="For example: step(type, page=1).")
    return NewTask(which, params)
