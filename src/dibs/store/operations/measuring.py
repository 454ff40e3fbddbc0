"""Measure: numbers for whoever watches, beyond those that `stats` has for everybody."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dibs.model.statistics import DatabaseHealth
from dibs.store.operation import Operation, Statement, Steps


class Measuring(ABC):
    """Numbers about the whole store."""

    @abstractmethod
    def vitals(self) -> Operation[DatabaseHealth]:
        """How large the database is, and what keeps its engine from cleaning up."""

    def workflow_counts(self) -> Operation[dict[str, int]]:
        """How many workflows there are in each state."""
        return Operation("workflow_counts", _workflow_counts, writes=False)


def _workflow_counts() -> Steps[dict[str, int]]:
    rows = yield Statement("workflow_counts")
    return {state: count for state, count in rows if count}
