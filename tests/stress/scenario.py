"""A scenario is one fault, played on one engine for a time, and checked by the replies and the content of the store."""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import dibs
from dibs import Completed
from dibs.observe.verify import Acknowledged, dump
from tests.helpers.consistency import percentile
from tests.stress.checking import Findings, check, pages
from tests.stress.limited import Limits
from tests.stress.process_group import ProcessGroup

T = TypeVar("T")

ENGINES = ("sqlite", "postgres", "http", "http+postgres")
SHORT_ROUNDS = 2
SHORT_LINGER = 0.02
"""Seconds for which plain workers hold their claims, and senders pause, in a short play: it needs no full load, and
many faults are played at the same time."""

SLACK = 10.0
"""Seconds that a busy machine may add to a recovery."""

HEALTHY = 120.0
"""Seconds that healthy workers have for what a run has left, since the last task that they could end."""


@dataclass(frozen=True)
class Scenario:
    """A fault and how it is played. `needs`: programs; `engines`: those on which the fault exists."""

    name: str
    fault: str
    promises: tuple[int, ...]
    engines: tuple[str, ...]
    play: Callable[[Stage], None]
    needs: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Programs that it needs and this machine has not."""
        return [program for program in self.needs if shutil.which(program) is None]


@dataclass
class Tally:
    """What a scenario did, and what came of it. `promised`: the longest recovery that is within the promise."""

    scenario: Scenario
    engine: str
    seed: int
    injected: int = 0
    refused: int = 0
    recovery: list[float] = field(default_factory=list)
    promised: float | None = None
    must_refuse: bool = False
    """Where the fault makes stale writers: if none of them tried, nothing is shown."""
    operations: int = 0
    lost: int = 0
    doubled: int = 0
    honoured: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)
    acknowledged: list[Acknowledged] = field(default_factory=list)

    def acknowledge(self, *what: Acknowledged) -> None:
        """Add replies that the scenario itself got."""
        self.acknowledged += what

    @property
    def ok(self) -> bool:
        """True if nothing was wrong and the fault did happen."""
        return not self.problems

    def add(self, found: Findings) -> None:
        """The verdict of the checker."""
        self.operations, self.lost, self.doubled = found.operations, found.lost, found.doubled
        self.honoured, self.refused = found.honoured, self.refused + found.refused
        self.recovery += found.recovery
        self.problems += found.problems
        if not self.injected:
            self.problems.append("the fault never happened, so nothing is shown")
        if self.must_refuse and not self.refused:
            self.problems.append("no stale write was tried, so nothing is shown about them")
        if self.promised and self.recovery and percentile(self.recovery, 0.99) > self.promised + SLACK:
            self.problems.append(f"recovery took {percentile(self.recovery, 0.99):.1f} s, promised {self.promised} s")


class Stage:
    """What a scenario plays on: a fresh database of one engine, a folder, a seeded chance, and processes."""

    def __init__(
        self,
        scenario: Scenario,
        engine: str,
        database: str,
        folder: Path,
        *,
        seed: int,
        serve: Callable[[str], contextlib.AbstractContextManager[str]] | None = None,
        seconds: float | None = None,
        show: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.scenario, self.engine, self.database, self.folder = scenario, engine, database, folder
        self.chance = random.Random(seed)
        self.tally = Tally(scenario, engine, seed)
        self.short = seconds is None
        self.checks: list[Callable[[dibs.Dibs], Iterable[str]]] = []
        """More to be looked at once all is done; each gives what is wrong."""
        self.limits: Limits | None = None
        """The limits of the tasks of plain workers and senders. A scenario sets it before it starts processes."""
        self._serve, self._url = serve, None if serve else database
        self.seconds, self._show = seconds, show
        self._stack = contextlib.ExitStack()
        self._groups: list[ProcessGroup] = []
        self._began = time.monotonic()
        (folder / "told").mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """What clients use. Where the engine is served, its server starts when this is first asked for."""
        if self._url is None:
            assert self._serve is not None
            self._url = self._stack.enter_context(self._serve(self.database))
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        """A scenario may have a server of its own."""
        self._url = url

    def enter(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Something that is closed only after the books were checked."""
        return self._stack.enter_context(context)

    def open(self, url: str | None = None, **options: Any) -> dibs.Dibs:
        """A client, closed with the stage."""
        return self.enter(dibs.Dibs(url or self.url, **options))

    def start_processes(
        self, count: int, *, kind: str = "plain", url: str | None = None, **options: Any
    ) -> ProcessGroup:
        """Start plain workers, or (kind="worker") real workers. All are at work when this returns.

        Options of plain workers: lease, batch, sends, upkeep_every, mixed, queues, linger, replays; of real workers:
        those of `app.worker`, which begin with the handlers' first task. `kind` may also be "module:function" of a
        scenario. `under`: a program to run them under; `env`: more environment variables.
        """
        if self.short and kind in ("plain", "sender"):
            options.setdefault("linger", SHORT_LINGER)
        if self.limits is not None:
            self.limits.begin(self.database)
            if kind in ("plain", "sender"):
                options.setdefault("limited", True)
        group = ProcessGroup(kind, url or self.url, self.folder, self.chance, **options)
        self._groups.append(group)
        group.start(count)
        if kind != "worker":
            group.wait_until_at_work()
        return group

    def senders(self, count: int, **options: Any) -> ProcessGroup:
        """Processes that enqueue with keys. Options: batch, linger, most (batches), backlog, payload, naps (seconds:
        of tasks for real workers, in the queue "naps")."""
        return self.start_processes(count, kind="sender", **options)

    def rounds(self) -> Iterator[int]:
        """A few rounds when short, else until the time is over."""
        number = 0
        while self._goes_on(number):
            yield number
            number += 1
            told = sum(group.reply_count() for group in self._groups)
            self._show(f"round {number}, {self.tally.injected:,} faults, {told:,} answers")

    def _goes_on(self, number: int) -> bool:
        if self.seconds is None:
            return number < SHORT_ROUNDS
        return number == 0 or time.monotonic() - self._began < self.seconds

    def finish(self) -> None:
        """Let healthy workers empty the store, then read the books and judge."""
        for group in self._groups:
            group.close()
        with dibs.Dibs(self.database) as app:
            self._show("healthy workers")
            settle(app)
            self._show("checking")
            deaths = {name: at for group in self._groups for name, at in group.deaths().items()}
            limits = None if self.limits is None else self.limits.record(app)
            found = check(app, self.folder, deaths=deaths, also_told=self.tally.acknowledged, limits=limits)
            for look in self.checks:
                for what in look(app):
                    found.wrong(what)
            self.tally.add(found)
            self.tally.seconds = time.monotonic() - self._began
            if not self.tally.ok:
                self.keep_history(app)

    def keep_history(self, app: dibs.Dibs) -> None:
        """Write the history and the problems to the folder of the run."""
        dump((entry for page in pages(app) for entry in page), self.folder / "history.jsonl")
        (self.folder / "problems.txt").write_text("\n".join(self.tally.problems) + "\n", encoding="utf-8")

    def close(self) -> None:
        """No process and no connection is left."""
        for group in self._groups:
            group.close()
        self._stack.close()


def settle(app: dibs.Dibs, name: str = "healthy") -> None:
    """A healthy worker ends everything that is left, however long the leases of the dead still run."""
    deadline = time.monotonic() + HEALTHY
    while time.monotonic() < deadline:
        claims = app.claim_many(name, 500, lease=600)
        if claims:
            app.finish([(claim, Completed({"token": claim.token})) for claim in claims])
            deadline = time.monotonic() + HEALTHY
        else:
            app.upkeep()
            if is_settled(app):
                return
            time.sleep(0.05)


def is_settled(app: dibs.Dibs) -> bool:
    """True if every task is in a final state, and every workflow as well."""
    waiting = ("pending", "scheduled", "claimed", "blocked")
    flows = ("running", "finalizing")
    return not any(app.list_tasks(state=state, limit=1) for state in waiting) and not any(
        app.list_workflows(state=state, limit=1) for state in flows
    )


def perform(stage: Stage) -> Tally:
    """Play to the end and judge; a scenario that breaks is a problem like any other."""
    try:
        stage.scenario.play(stage)
        stage.finish()
    except Exception as error:
        stage.tally.problems.append(f"{type(error).__name__}: {error}")
        raise
    finally:
        stage.tally.seconds = time.monotonic() - stage._began
        stage.close()
    return stage.tally


def main(scenario: Scenario) -> None:
    """One scenario alone: `python -m tests.stress.worker_killed --seed 7 --minutes 2 --engine sqlite`."""
    from tests.stress.__main__ import run

    sys.exit(run([scenario], sys.argv[1:]))


@contextlib.contextmanager
def folder_of(scenario: Scenario, engine: str, keep: Path | None) -> Iterator[Path]:
    """Where a play writes; removed unless it is to be kept, or something went wrong in there."""
    if keep is not None:
        place = keep / f"{scenario.name}-{engine}-{int(time.time())}"
        place.mkdir(parents=True)
    else:
        place = Path(tempfile.mkdtemp(prefix=f"dibs-{scenario.name}-{engine}-"))
    yield place
    if keep is None:
        shutil.rmtree(place, ignore_errors=True)
