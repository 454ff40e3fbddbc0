"""`dibs server` is killed with kill -9 under many enqueues, and started again on the same port.

Promises 1, 4, 6 and 9. Acknowledged requests are stored; the others are repeated with the same key, token or request
id, and done once.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.helpers.servers import ServerProcess, server_process
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 2.0, 0.3


def play(stage: Stage) -> None:
    server = stage.enter(Server(stage.database, stage.folder))
    stage.url = server.url
    storm = stage.senders(2, batch=3 if stage.short else 20, backlog=20_000, linger=0)
    naps = stage.senders(1, naps=0.001, batch=5, backlog=20_000)
    workers = stage.start_processes(1, kind="worker", lease=LEASE, upkeep_every=UPKEEP)
    plain_workers = stage.start_processes(
        1, sends=False, lease=LEASE, upkeep_every=UPKEEP, queues=["queue-0", "queue-1"]
    )
    for _ in stage.rounds():
        storm.wait_for(5 if stage.short else stage.chance.randint(10, 100))
        server.kill()
        server.start()
        stage.tally.injected += 1
        for group in (storm, plain_workers, workers, naps):
            for member in group.members:
                member.wait_for(2)
        if stage.short:
            return


class Server:
    """The same address, one process after the other."""

    def __init__(self, database: str, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return self._process.url

    def start(self) -> None:
        """At the port that the last one had."""
        self._stack = ExitStack()
        options = ("--no-keys", "--no-access-log", "--port", str(self._port))
        started = server_process(self._database, self._folder, *options)
        self._process: ServerProcess = self._stack.enter_context(started)
        self._port = self._process.port

    def kill(self) -> None:
        """kill -9."""
        self._process.process.kill()
        self._process.process.wait()
        self._stack.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


SCENARIO = Scenario(
    name="server_killed",
    fault="`dibs server` is killed with kill -9 in a storm of enqueues, and started again",
    promises=(1, 2, 3, 4, 6, 9),
    engines=("http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
