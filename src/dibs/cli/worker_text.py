"""What a worker prints on a terminal: a block at the start, lines of totals, failures in two lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dibs.cli import text
from dibs.cli.logs import HumanFormatter
from dibs.redaction import redact
from dibs.worker.report import WorkerAbout

MARGIN = " " * len("08:00:00 ")
LIST_WIDTH = 100
"""Characters of a list of handlers or queues before it is cut."""

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"

HIDDEN = frozenset({"worker.started"})
"""Events that the block at the start replaces."""

HIDDEN_IN_CHILD = HIDDEN | {"worker.stop_requested"}
"""Events of one of several processes that the supervisor prints for all."""

_ERASE_ECHO = "\r"
"""The terminal echoes Ctrl-C as ^C: the entry about it takes its place."""

_LANES = {"thread": "thread", "loop": "coroutine", "process": "child process"}


class TerminalFormatter(HumanFormatter):
    """Formats the entries of a worker for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry; summaries and failures in a form of their own."""
        render = _RENDERED.get(getattr(record, "event", ""))
        if render is None:
            return super().format(record)
        start = _ERASE_ECHO if render is _stop else ""
        return f"{start}{self.second(record)} {render(vars(record), self.coloured)}"


def hide_events(events: frozenset[str]) -> Callable[[logging.LogRecord], bool]:
    """Return a log filter that drops the entries of these events."""
    return lambda record: getattr(record, "event", None) not in events


def start_block(about: WorkerAbout, processes: int, watched: bool, *, coloured: bool) -> str:
    """Return what the worker serves, and how to stop it."""
    title = f"dibs worker {about.worker_id}" if processes == 1 else f"dibs worker, {processes} processes"
    return "\n".join(
        [
            paint(title, BOLD, coloured),
            *(f"  {paint(f'{name:<9}', DIM, coloured)} {value}" for name, value in _fields(about, processes, watched)),
        ]
    )


def paint(shown: str, colour: str, coloured: bool) -> str:
    """Return the text in a colour, where the terminal has colours."""
    return f"\x1b[{colour}m{shown}\x1b[0m" if coloured else shown


def _fields(about: WorkerAbout, processes: int, watched: bool) -> Iterator[tuple[str, str]]:
    yield "store", about.store
    yield "app", text.line(about.program)
    yield "handlers", _listed(about.handlers)
    yield "queues", "all" if about.queues is None else _listed(about.queues)
    places = ", ".join(_places(number, _LANES[lane]) for lane, number in about.lanes.items())
    yield "lanes", places if processes == 1 else f"{places}, in each process"
    if watched:
        yield "reload", "when a source file of the program changes"
    yield "stop", f"Ctrl-C gives running tasks {about.grace:g} s to end; a second Ctrl-C releases them at once"


def _places(number: int, what: str) -> str:
    return f"{number} child processes" if what == "child process" and number != 1 else text.count(number, what)


def _listed(names: Sequence[str]) -> str:
    """The names, as many as fit on a line."""
    shown: list[str] = []
    for name in names:
        if shown and len(", ".join([*shown, name])) > LIST_WIDTH:
            return text.line(f"{', '.join(shown)} and {len(names) - len(shown)} more")
        shown.append(name)
    return text.line(", ".join(shown))


def _summary(given: Mapping[str, Any], coloured: bool) -> str:
    parts = [f"{given['per_second']:,.1f}/s".rjust(9), paint(f"{given['completed']:,} completed", GREEN, coloured)]
    if given["failed"]:
        retried = f" ({given['retried']:,} retried)" if given["retried"] else ""
        parts.append(paint(f"{given['failed']:,} failed{retried}", RED, coloured))
    parts.append(f"{given['running']:,} running")
    if (waiting := given.get("waiting")) is not None:
        oldest = given["oldest_waiting"]
        parts.append(f"{waiting:,} waiting" + ("" if oldest is None else f", the oldest for {text.duration(oldest)}"))
    held_up = f"{MARGIN}{paint('held up'.rjust(9), YELLOW, coloured)} · "
    return "\n".join([" · ".join(parts), *(held_up + text.line(each) for each in given.get("held_up_by", ()))])


def _stop(given: Mapping[str, Any], coloured: bool) -> str:
    return f"{paint('stopping'.rjust(9), YELLOW, coloured)} · {text.line(given['follows'])}"


def _stopped(given: Mapping[str, Any], coloured: bool) -> str:
    return f"{paint('stopped'.rjust(9), BOLD, coloured)} · worker {given['worker_id']}"


def _failure(given: Mapping[str, Any], coloured: bool) -> str:
    task = f"task {given['task_id']} ({given['task_type']}), attempt {given['attempt']} of {given['max_attempts']}"
    error = text.line(redact(f"{given['error_type']}: {given['error']}".rstrip(": ")))
    after = f"{_what_follows(given)} · dibs tasks show {given['task_id']}"
    head = f"{paint('failed'.rjust(9), RED, coloured)} · {text.line(task)}: {error}"
    return f"{head}\n{MARGIN}{'':9}   {paint(after, DIM, coloured)}"


def _what_follows(given: Mapping[str, Any]) -> str:
    if given["next_at"] is not None:
        return f"tried again at {given['next_at']:%H:%M:%S} UTC"
    where = "in the dead letter" if given["dead"] else given["state"]
    return f"the failure is permanent: the task is {where}" if given["permanent"] else f"the task is {where}"


_RENDERED: dict[str, Callable[[Mapping[str, Any], bool], str]] = {
    "worker.summary": _summary,
    "task.failed": _failure,
    "worker.stop_requested": _stop,
    "supervisor.stop_requested": _stop,
    "worker.stopped": _stopped,
}
