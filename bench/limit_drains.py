"""Workers that drain tasks with limits: dibs beside the limits of PGQueuer and DBOS, each as its users set them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from bench.contest import Contestant
from bench.databases import Engine
from bench.limit_shapes import GROUPS, ONE, Shape
from bench.queues.contests import drain
from bench.queues.limited import Limits
from bench.queues.peers import PEERS
from bench.queues.processes import Program
from bench.queues.systems import DibsSystem, PeerSystem


class Setting(NamedTuple):
    """How a peer is set up, the share of the tasks that it gets, and in words."""

    setting: str
    share: float
    words: str


PEER_SETTINGS = {
    ("PGQueuer", ONE): Setting("1x50", 0.5, "concurrency_limit=50, 1 consumer of 50"),
    ("PGQueuer", GROUPS): Setting("1x50", 0.1, "1,000 entrypoints with concurrency_limit=2, 1 consumer of 50"),
    ("DBOS", ONE): Setting("0.1", 0.05, "global_concurrency=50, polls every 0.1 s"),
    ("DBOS", GROUPS): Setting("0.1", 0.02, "partition_concurrency=2, polls every 0.1 s"),
}


LANES = (10, 50)
"""Lanes of dibs' worker: those that it has by default, and as many as the consumer of PGQueuer takes jobs at once."""


class LimitedDibs(DibsSystem):
    """dibs with an `async def`, and a worker of so many lanes."""

    program = Program("limited_dibs_queue")

    def __init__(self, shape: Shape, lanes: int) -> None:
        self.setting = str(Limits(shape.max, shape.groups, str(lanes)))
        self._shape = shape

    def fill(self, url: str, tasks: int) -> None:  # type: ignore[override]
        """See System."""
        self._shape.fill(url, tasks)


class LimitedPeer(PeerSystem):
    """Another queue; as in other drains, its clock starts when it asks for its first task."""

    def __init__(self, engine: Engine, name: str, shape: Shape) -> None:
        peer = next(each for each in PEERS if (each.name, each.engine) == (name, engine.family))
        super().__init__(peer)
        self.program = Program(f"limited_{peer.module}", self.program.python, peer.stop_with)
        chosen = PEER_SETTINGS[name, shape]
        self.setting = str(Limits(shape.max, shape.groups, chosen.setting))
        self._share = chosen.share

    def share(self, tasks: int) -> int:
        """See System."""
        return max(1, round(tasks * self._share))

    def fill(self, url: str, tasks: int) -> None:
        """See System."""
        self.program.run("limited-fill", url, self.setting, tasks)


def drains(engine: Engine, peers: Iterable[str], processes: Iterable[int], tasks: int) -> Iterator[list[Contestant]]:
    """All queues in turns, each shape with each number of processes."""
    for shape in (ONE, GROUPS):
        systems: list[tuple[LimitedDibs | LimitedPeer, str]]
        systems = [(LimitedDibs(shape, lanes), f"async def, {lanes} lanes") for lanes in LANES]
        systems += [(LimitedPeer(engine, name, shape), PEER_SETTINGS[name, shape].words) for name in peers]
        for count in processes:
            yield [
                Contestant(
                    "drains", shape.name, engine.name, system.name, count, words,
                    partial(drain, engine, system, system.setting, count, system.share(tasks)),
                )
                for system, words in systems
            ]  # fmt: skip
