"""A witness is told what a store does to tasks, for whoever counts: a store itself keeps no numbers."""

from __future__ import annotations

from collections.abc import Container, Iterable

from dibs.store.operation import Rows


class Witness:
    """Forgets what it is told; others remember.

    It is told in the middle of a transaction, so that also what an operation does in passing is seen: it must be quick,
    and in the rare case that the transaction fails afterwards it has been told of something that did not happen.
    """

    def added(self, queues: Iterable[str]) -> None:
        """Tasks are new in these queues, one for each name."""

    def moved(self, rows: Rows, ignored: Container[int] = frozenset()) -> None:
        """Claims ended, by their workers or by themselves: the history columns of each first, its task's queue and type
        last. `ignored`: the tasks that failed and are no dead letters, because their workflows go on without them."""


class Witnessed:
    """What has a witness."""

    witness: Witness = Witness()
