"""The verdict on a run: the replies that processes got and the content of the store, read once and compared.

The rules are those of dibs.observe.verify. Here they are counted as the table shows them, and violations that only a
run of processes can show are added: acknowledged tasks that are not stored, keys of two tasks, false refusals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dibs
from dibs import Event, State, Task, Verdict
from dibs.model.history import HistoryEntry
from dibs.observe.limits_check import LimitsRecord
from dibs.observe.verify import Acknowledged, verify
from dibs.observe.violations import Code, Violation
from tests.stress.reply_log import ENQUEUED, REFUSED, acknowledged, lines

PAGE = 1000

STALE = frozenset({Code.STALE_TOKEN, Code.FOREIGN_WORKER})
DOUBLED = frozenset({Code.DOUBLED_COMPLETION})
LOST = frozenset({Code.LOST_TASK})


@dataclass
class Death:
    """When a worker was killed, or frozen; and until when, if it was thawed."""

    at: float
    until: float = math.inf


@dataclass
class Findings:
    """What was checked and what was wrong with it. `problems` has a line for each wrong, whatever its kind."""

    operations: int = 0
    lost: int = 0
    doubled: int = 0
    honoured: int = 0
    refused: int = 0
    recovery: list[float] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def wrong(self, what: str, *, lost: int = 0, doubled: int = 0, honoured: int = 0) -> None:
        """One thing that must not be."""
        self.lost, self.doubled, self.honoured = self.lost + lost, self.doubled + doubled, self.honoured + honoured
        self.problems.append(what)


def check(
    app: dibs.Dibs,
    folder: Path,
    *,
    deaths: Mapping[str, list[Death]] | None = None,
    also_told: Iterable[Acknowledged] = (),
    limits: LimitsRecord | None = None,
) -> Findings:
    """Check the run whose members wrote into this folder; all of them must have ended."""
    heard = Heard.read(folder)
    history = (entry for page in pages(app) for entry in page)
    return judge(history, stored(app), [*heard.told, *also_told], heard, deaths or {}, doctor(app), limits)


def judge(
    history: Iterable[HistoryEntry],
    tasks: Iterable[Task],
    told: list[Acknowledged],
    heard: Heard,
    deaths: Mapping[str, list[Death]],
    ills: Iterable[str] = (),
    limits: LimitsRecord | None = None,
) -> Findings:
    """The verdict on a recorded run."""
    found = Findings(refused=len(heard.refused))
    watched = _Watched(found, heard, deaths)
    report = verify(map(watched.enter, history), tasks=map(watched.hold, tasks), acknowledged=told, limits=limits)
    found.operations = report.operations + len(told) + len(heard.refused)
    for violation in report.violations:
        _count(found, violation)
    watched.close()
    for ill in ills:
        found.wrong(ill)
    return found


@dataclass
class Heard:
    """The answers that the members received, beyond those that the checker of histories reads."""

    told: list[Acknowledged] = field(default_factory=list)
    enqueued: set[int] = field(default_factory=set)
    keys: dict[str, int] = field(default_factory=dict)
    refused: set[Acknowledged] = field(default_factory=set)
    two_ids: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Heard:
        """From the files in this folder."""
        heard = cls(told=list(acknowledged(folder)))
        for _, (kind, what, more) in lines(folder):
            if kind == ENQUEUED:
                heard._note_keys(what, more)
            elif kind == REFUSED:
                heard.refused.update(Acknowledged(*told, Event(event), worker) for *told, event, worker in what)
        return heard

    def _note_keys(self, ids: list[int], keys: list[str | None]) -> None:
        self.enqueued.update(ids)
        for task_id, key in zip(ids, keys, strict=False):
            if key is not None and self.keys.setdefault(key, task_id) != task_id:
                self.two_ids.append(f"the key {key} was told as task {self.keys[key]} and as task {task_id}")


class _Watched:
    """History and tasks on their way to the checker, each looked at once."""

    def __init__(self, found: Findings, heard: Heard, deaths: Mapping[str, list[Death]]) -> None:
        self._found, self._heard, self._deaths = found, heard, deaths
        self._completed: set[int] = set()
        self._missing = set(heard.enqueued)

    def enter(self, entry: HistoryEntry) -> HistoryEntry:
        self._found.events[entry.event] += 1
        if entry.event is Event.COMPLETED:
            if entry.task_id in self._completed:
                self._found.wrong(f"task {entry.task_id}: completed twice, entry {entry.id}", doubled=1)
            self._completed.add(entry.task_id)
        elif entry.event is Event.RECOVERED:
            self._measure(entry)
        elif entry.event is Event.RETRIED:
            self._completed.discard(entry.task_id)
        if self._heard.refused and _as_told(entry) in self._heard.refused:
            what = (
                f"task {entry.task_id}: {entry.event} under token {entry.token} was refused, and stands in the history"
            )
            self._found.wrong(what, honoured=1)
        return entry

    def hold(self, task: Task) -> Task:
        self._found.states[task.state] += 1
        self._missing.discard(task.id)
        if not task.finished:
            self._found.wrong(f"task {task.id}: still {task.state} after healthy workers had their time", lost=1)
        if task.key is not None and self._heard.keys.get(task.key, task.id) != task.id:
            self._found.wrong(f"task {task.id}: its key {task.key} was told as task {self._heard.keys[task.key]}")
        if task.workflow_id is None and task.state is State.COMPLETED and _token_in(task) not in (None, task.token):
            what = f"task {task.id}: its result is of token {_token_in(task)}, its own is {task.token}"
            self._found.wrong(what, honoured=1)
        return task

    def close(self) -> None:
        """What was never seen."""
        for task_id in sorted(self._missing):
            self._found.wrong(f"task {task_id}: its enqueueing was acknowledged, and it is not stored", lost=1)
        for what in self._heard.two_ids:
            self._found.wrong(what)

    def _measure(self, entry: HistoryEntry) -> None:
        at = entry.at.timestamp()
        before = [death for death in self._deaths.get(entry.worker_id or "", ()) if death.at <= at]
        if before and at <= before[-1].until:  # what it loses after it was thawed has other reasons
            self._found.recovery.append(at - before[-1].at)


def _as_told(entry: HistoryEntry) -> Acknowledged:
    return Acknowledged(entry.task_id, entry.token, entry.event, entry.worker_id)


def _token_in(task: Task) -> int | None:
    return task.result.get("token") if isinstance(task.result, dict) else None


def _count(found: Findings, violation: Violation) -> None:
    if violation.code in LOST:
        found.wrong(str(violation), lost=1)
    elif violation.code in DOUBLED:
        found.wrong(str(violation), doubled=1)
    elif violation.code in STALE:
        found.wrong(str(violation), honoured=1)
    else:
        found.wrong(str(violation))


def pages(app: dibs.Dibs) -> Iterator[list[HistoryEntry]]:
    """The whole history, a page at a time."""
    last = 0
    while page := app.history_after(last, PAGE):
        yield page
        last = page[-1].id


def stored(app: dibs.Dibs) -> Iterator[Task]:
    """Every task, newest first, a page at a time."""
    cursor: int | None = None
    while page := app.list_tasks(limit=PAGE, cursor=cursor):
        yield from page
        cursor = page[-1].id


def doctor(app: dibs.Dibs) -> list[str]:
    """What the doctor found."""
    return [f"doctor: {check}" for check in app.doctor() if check.verdict is Verdict.FAIL]
