"""Queue bounds: how many tasks of a queue one worker process runs at once, over all its lanes.

A task counts from its claim until its handler has ended, so tasks claimed ahead count as well: a worker never holds
more tasks of a queue than the bound allows to run. Only the claimer claims, one claim after the other, so the room of a
queue can only grow between the moment it is read and the end of the claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dibs.worker.lanes import LaneRunner


class QueueBounds:
    """The bounds of some of the queues that a worker serves. `queues`: all of them."""

    def __init__(self, queues: Sequence[str], bounds: Mapping[str, int], lanes: Sequence[LaneRunner]) -> None:
        self._queues = list(queues)
        self._bounds = dict(bounds)
        self._lanes = lanes

    def __contains__(self, queue: str) -> bool:
        return queue in self._bounds

    @property
    def full(self) -> list[str]:
        """The queues without room for another task."""
        rooms = self._rooms()
        return [queue for queue in self._bounds if rooms[queue] <= 0]

    @property
    def closed(self) -> bool:
        """True while no queue has room for another task."""
        return len(self._bounds) == len(self._queues) == len(self.full)

    def start_round(self) -> ClaimRound:
        """Plan the claims for one lane."""
        rooms = self._rooms()
        return ClaimRound([queue for queue in self._queues if rooms.get(queue, 1) > 0], rooms)

    def _rooms(self) -> dict[str, int]:
        """The number of tasks that may be claimed from each queue with a bound."""
        rooms = dict(self._bounds)
        for lane in self._lanes:
            for queue in lane.held_queues():
                if queue in rooms:
                    rooms[queue] -= 1
        return rooms


class ClaimRound:
    """The claims that together ask for a number of tasks, without exceeding a bound.

    Each claim names all queues with room, and asks for no more tasks than the smallest room among them: even if all
    come from that queue, its bound holds. A queue with the smallest room that gave no task is left out of the next
    claims of this round: it had its turn, in the order of the claim. So every queue with room takes part in the first
    claim of each round, and none is starved because of the bound of another one.
    """

    def __init__(self, queues: list[str], rooms: dict[str, int]) -> None:
        self._rooms = rooms
        self.queues = queues

    def most(self, wanted: int) -> int:
        """The number of tasks to ask for in the next claim."""
        return min([wanted, *(room for _, room in self._bounded())])

    def claimed(self, queues: Sequence[str]) -> None:
        """Record the queues of the claimed tasks."""
        smallest = self.most(len(queues))
        passed_over = {queue for queue, room in self._bounded() if room == smallest and queue not in queues}
        for queue in queues:
            if queue in self._rooms:
                self._rooms[queue] -= 1
        full = {queue for queue, room in self._bounded() if room <= 0}
        self.queues = [queue for queue in self.queues if queue not in passed_over | full]

    def _bounded(self) -> Iterator[tuple[str, int]]:
        return ((queue, self._rooms[queue]) for queue in self.queues if queue in self._rooms)
