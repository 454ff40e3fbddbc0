"""What a step can read of the steps before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from dibs.step import StepResult
from dibs.task import Failure, State
from dibs.workflow.flow import Which

_CANCELLED = Failure("Cancelled", "The step was cancelled.")

_SHOWN = 10


class Results(Mapping[str, Any]):
    """The results of a step's parents by their names, in the order in which they were added to the workflow.

    A parent whose failure is ignored has the result None, and its error in `errors`.
    """

    def __init__(self, parents: Sequence[StepResult] = ()) -> None:
        self._parents = {parent.name: parent for parent in parents}

    def __getitem__(self, name: str) -> Any:
        if name not in self._parents:
            raise KeyError(self._no_parent(name))
        return self._parents[name].result

    def __iter__(self) -> Iterator[str]:
        return iter(self._parents)

    def __len__(self) -> int:
        return len(self._parents)

    def of(self, which: Which) -> list[Any]:
        """The results of those parents of this handler, or task type, that have completed."""
        name = which if isinstance(which, str) else which.name
        ours = [parent for parent in self._parents.values() if parent.type == name]
        return [parent.result for parent in ours if parent.state is State.COMPLETED]

    @property
    def errors(self) -> dict[str, Failure]:
        """How those parents ended whose failure, or cancellation, is ignored, by their names."""
        ended = [parent for parent in self._parents.values() if parent.state is not State.COMPLETED]
        return {parent.name: parent.error or _CANCELLED for parent in ended}

    def __repr__(self) -> str:
        return f"Results({dict(self)!r})"

    def _no_parent(self, name: str) -> str:
        known = ", ".join(map(repr, islice(self._parents, _SHOWN))) or "no step"
        more = ", …" if len(self._parents) > _SHOWN else ""
        return f"This step is not after {name!r}, but after {known}{more}. To read its result, name it in `after`."
