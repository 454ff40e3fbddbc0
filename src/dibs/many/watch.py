"""What a wait for many tasks knows: which of them are still open, and how the others have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from dibs.model.search import MAX_STATES
from dibs.model.task import FINAL, State

PRUNED = "pruned"
"""In place of the state of a task that was deleted after its retention, or never existed."""


class Watch:
    """The tasks of one wait. Knows ids and counts only, however many tasks there are.

    Tasks finish roughly in the order of their ids. So a round reads the states of the first open tasks, part by part
    as long as a part has news, and one of the other parts in turn: the cost of a wait grows with the tasks that finish,
    not with the open tasks times the rounds.
    """

    def __init__(self, ids: Iterable[int]) -> None:
        self.open = list(dict.fromkeys(ids))
        self.total = len(self.open)
        self.ended: Counter[str] = Counter()
        self.rounds = 0
        self.rest = 0.0
        """Seconds to rest before the next round."""
        self._turn = 0

    @property
    def failures(self) -> int:
        """The number of tasks that failed or were cancelled."""
        return self.ended[State.FAILED] + self.ended[State.CANCELLED]

    def part(self, start: int) -> list[int]:
        """The open tasks from this position on, as many as one operation reads; none behind the last one."""
        return self.open[start : start + MAX_STATES]

    def part_in_turn(self, start: int) -> int | None:
        """The position of one of the parts from `start` on, another one each time; None if there is none."""
        positions = range(start, len(self.open), MAX_STATES)
        self._turn += 1
        return positions[self._turn % len(positions)] if positions else None

    def note(self, start: int, states: Mapping[int, State]) -> dict[int, str]:
        """Note the states of the part at this position. Returns the tasks that have ended, with their final states."""
        part = self.part(start)
        ended = {each: str(states.get(each, PRUNED)) for each in part if states.get(each) in FINAL_OR_PRUNED}
        if ended:
            self.open[start : start + len(part)] = [each for each in part if each not in ended]
            self.ended.update(ended.values())
        return ended

    def reopen(self, task_id: int, state: str) -> None:
        """Wait for a task again that has ended in this state and was retried since."""
        self.ended[state] -= 1
        self.open.append(task_id)


FINAL_OR_PRUNED = FINAL | {None}
