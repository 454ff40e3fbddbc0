"""The progress of a wait for many tasks, on standard error: a bar on a terminal, else one line at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from dibs.many.watch import Watch

Show = Callable[[], None]
"""Shows what the watch knows now."""


def showing(progress: bool, watch: Watch) -> AbstractContextManager[Show]:
    """Show the progress of the wait inside the block, if that is wanted."""
    if not progress:
        return nullcontext(_nothing)
    return _bar(watch) if sys.stderr.isatty() else _line(watch)


def _nothing() -> None:
    pass


@contextmanager
def _bar(watch: Watch) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False), TimeRemainingColumn())
    began = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(_about(watch, began), total=watch.total)

        def show() -> None:
            bar.update(task, completed=watch.total - len(watch.open), description=_about(watch, began))

        yield show


@contextmanager
def _line(watch: Watch) -> Iterator[Show]:
    """A file or a pipe gets no control codes: one line when the wait is over, also after a timeout or Ctrl-C."""
    began = time.monotonic()
    try:
        yield _nothing
    finally:
        finished = watch.total - len(watch.open)
        sys.stderr.write(f"{finished:,} of {watch.total:,} tasks finished, {_about(watch, began)}\n")


def _about(watch: Watch, began: float) -> str:
    """The rate, and the number of tasks that failed or were cancelled."""
    seconds = max(time.monotonic() - began, 0.001)
    return f"{(watch.total - len(watch.open)) / seconds:,.0f}/s, {watch.failures:,} failed"
