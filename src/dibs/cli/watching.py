"""Watches a worker, or the processes of a supervisor: prints or logs totals, and what holds tasks up."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from dibs.cli.logs import configure, is_for_people, supports_colours
from dibs.handlers import running
from dibs.source_files import SourceWatch, source_files, states_of
from dibs.worker.attempt import now
from dibs.worker.figures import OutcomeTotals, WaitingTasks, WorkerFigures
from dibs.worker.report import RELOAD, ProcessReport, ReportFile, WorkerAbout, read_reports
from dibs.worker.worker import Worker, running_tasks_text, stop_text

logger = logging.getLogger("dibs.worker")

LIVE_INTERVAL, LOG_INTERVAL = 5.0, 60.0
"""Seconds between two lines of totals on a terminal, and between two summaries in a log."""

REPORT_INTERVAL = 0.25
"""Seconds between two reports of a process to its supervisor."""

BLOCK_INTERVAL = 0.1
"""Seconds between two looks of a supervisor for the first report of a process."""


@dataclass(frozen=True)
class LogChoice:
    """How a worker logs. `live`: for a person at a terminal. `summaries`: whether totals are logged at all."""

    level: str
    log_format: str

    @property
    def live(self) -> bool:
        """Whether a person reads the log on a terminal."""
        return is_for_people(self.log_format) and sys.stderr.isatty()

    @property
    def summaries(self) -> bool:
        """Whether the level lets totals through."""
        return self.level.lower() in ("debug", "info")

    @property
    def interval(self) -> float:
        """Seconds between two lines of totals."""
        return LIVE_INTERVAL if self.live else LOG_INTERVAL

    def configure(self, supervised: bool) -> None:
        """Configure the log of this process. Entries that handlers log have the fields of their task."""
        running.LogReaders.exist = True
        if not self.live:
            configure(self.level, self.log_format)
            return
        from dibs.cli.worker_text import HIDDEN, HIDDEN_IN_CHILD, TerminalFormatter, hide_events

        formatter = TerminalFormatter(on_terminal=True, coloured=supports_colours())
        configure(self.level, self.log_format, formatter)
        for handler in logging.getLogger().handlers:
            handler.addFilter(hide_events(HIDDEN_IN_CHILD if supervised else HIDDEN))

    def print_start(self, about: WorkerAbout, processes: int = 1, reload: bool = False) -> None:
        """Print what the worker serves, for a person at a terminal."""
        if self.live and self.summaries:
            from dibs.cli.worker_text import start_block

            sys.stderr.write(f"{start_block(about, processes, reload, coloured=supports_colours())}\n")
            sys.stderr.flush()


class SummaryLog:
    """Logs the totals of a worker or of several processes, if something has changed."""

    def __init__(self, live: bool) -> None:
        self._live = live
        self._logged: tuple[Any, ...] = self._changes(WorkerFigures(), None)
        self._at, self._done = now(), 0

    def log(self, figures: WorkerFigures, waiting: WaitingTasks | None, processes: int = 1) -> None:
        """Log the totals, unless they are those of the last entry."""
        at, done = now(), figures.completed + figures.failed
        seconds, ended = max(at - self._at, 0.001), done - self._done
        self._at, self._done = at, done
        changes = self._changes(figures, waiting)
        if changes != self._logged:
            self._logged = changes
            _log_summary(
                figures, waiting, {"seconds": round(seconds, 1), "per_second": round(ended / seconds, 1)}, processes
            )

    def _changes(self, figures: WorkerFigures, waiting: WaitingTasks | None) -> tuple[Any, ...]:
        own = (figures.completed, figures.failed, figures.running, () if waiting is None else tuple(waiting.held_up_by))
        return (*own, 0 if waiting is None else waiting.count) if self._live else own


def _log_summary(figures: WorkerFigures, waiting: WaitingTasks | None, pace: dict[str, float], processes: int) -> None:
    about: dict[str, Any] = {
        "event": "worker.summary",
        "processes": processes,
        "completed": figures.completed,
        "failed": figures.failed,
        "retried": figures.retried,
        "running": figures.running,
        **pace,
    }
    message = f"{figures.completed} completed ({pace['per_second']}/s), {figures.failed} failed"
    message += f" ({figures.retried} retried), {figures.running} running"
    if waiting is not None:
        about |= {
            "waiting": waiting.count,
            "oldest_waiting": waiting.oldest,
            "held_up_by": list(waiting.held_up_by),
        }
        message += f", {waiting.count} waiting"
        message += f"; held up: {'; '.join(waiting.held_up_by)}" if waiting.held_up_by else ""
    logger.info("the worker so far: %s", message, extra=about)


@contextmanager
def repeating(step: Callable[[], float], name: str) -> Iterator[None]:
    """Call the function in a thread during the block, and once at its end. It returns the seconds until the next
    call."""
    ending = threading.Event()

    def try_step() -> float:
        try:
            return step()
        except Exception:
            about = {"event": "service.failed", "service": name}
            logger.exception("%s failed and will try again", name, extra=about)
            return LOG_INTERVAL

    def repeat() -> None:
        pause = try_step()
        while not ending.wait(pause):
            pause = try_step()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        try_step()


@contextmanager
def watching(worker: Worker, about: WorkerAbout, log: LogChoice, report: ReportFile | None) -> Iterator[None]:
    """Watch the worker in this process: log its totals, or report them to the supervisor."""
    if not log.summaries and report is None:
        log.print_start(about)
        yield
        return
    watch = WorkerWatch(worker, about, log, report)
    with repeating(watch.step, "dibs-watch"):
        yield


class WorkerWatch:
    """Watches the worker of this process."""

    def __init__(self, worker: Worker, about: WorkerAbout, log: LogChoice, report: ReportFile | None) -> None:
        self._worker, self._about, self._log, self._report = worker, about, log, report
        before = WorkerFigures() if report is None else report.read().figures
        worker.totals = OutcomeTotals(before.completed, before.failed, before.retried)
        self._waiting = worker.waiting_reader(log.interval)
        self._summary = SummaryLog(log.live)
        self._with_files = bool(os.environ.get(RELOAD))
        self._files: dict[str, str] = {}
        if report is None:
            log.print_start(about)

    def step(self) -> float:
        """Log or report once."""
        figures = self._worker.figures
        waiting = self._waiting.read(figures) if self._worker.health.running and self._log.summaries else None
        if self._report is None:
            self._summary.log(figures, waiting)
            return self._log.interval
        if self._with_files:  # a handler may import a module late; the files that are known keep their first state
            self._files |= states_of(set(source_files()) - self._files.keys())
        self._report.write(
            ProcessReport(pid=os.getpid(), about=self._about, figures=figures, waiting=waiting, files=self._files)
        )
        return REPORT_INTERVAL


class ProcessesWatch:
    """Watches the processes of a supervisor through their reports."""

    def __init__(self, folder: Path, processes: int, log: LogChoice, *, reload: bool) -> None:
        self._folder, self._processes, self._log, self._reload = folder, processes, log, reload
        self._summary = SummaryLog(log.live)
        self._started = False

    def step(self) -> float:
        """Print what the processes serve, once; then log their totals."""
        reports = self.reports()
        if not self._started:
            about = next((report.about for report in reports if report.about is not None), None)
            if about is None:
                return BLOCK_INTERVAL
            self._started = True
            self._log.print_start(about, self._processes, self._reload)
        waiting = next((report.waiting for report in reports if report.waiting is not None), None)
        self._summary.log(total(reports), waiting, self._processes)
        return self._log.interval

    def log_signal(self, signals: int, interrupted: bool) -> None:
        """Say what happens to running tasks; each process logs that for itself where no person reads the log."""
        if not self._log.live:
            return
        time.sleep(REPORT_INTERVAL)  # so that the reports are from after the signal
        reports = self.reports()
        running = total(reports).running
        if signals == 1:
            follows = stop_text(running, _grace(reports), interrupted)
        elif running:
            follows = "the tasks that still run are released"
        else:
            return
        about = {"event": "supervisor.stop_requested", "running": running, "follows": follows}
        logger.info("stopping: %s", follows, extra=about)

    def reports(self) -> Sequence[ProcessReport]:
        """The newest report of each process."""
        return read_reports(self._folder)


def total(reports: Sequence[ProcessReport]) -> WorkerFigures:
    """The sum of the figures of all processes."""
    return reduce(WorkerFigures.plus, (report.figures for report in reports), WorkerFigures())


class CodeReloader:
    """Restarts the processes of a supervisor when source files of their program change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watch = SourceWatch(self._loaded)

    def changed(self) -> bool:
        """Whether files have changed, which is logged with the number of tasks that may end first."""
        files = self._watch.changed()
        if not files:
            return False
        reports = read_reports(self._folder)
        running = total(reports).running
        waits = f"; first, {running_tasks_text(running, _grace(reports))}" if running else ""
        about = {"event": "worker.reload", "files": files, "running": running}
        names = ", ".join(_name(file) for file in files[:3])
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        logger.info("%s%s changed: the worker starts again%s", names, more, waits, extra=about)
        return True

    def has_imported(self, pid: int) -> bool:
        """Whether the process has imported the program."""
        return any(report.pid == pid and report.about is not None for report in read_reports(self._folder))

    def failed(self) -> None:
        """Log that the program cannot be imported."""
        about = {"event": "worker.reload_failed"}
        logger.error("the program cannot be imported; the worker starts again after the next change", extra=about)

    def _loaded(self) -> list[tuple[str, str]]:
        return [entry for report in read_reports(self._folder) for entry in report.files.items()]


def _grace(reports: Sequence[ProcessReport]) -> float:
    return next((report.about.grace for report in reports if report.about is not None), 0.0)


def _name(file: str) -> str:
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"the folder {shown}" if path.is_dir() else str(shown)
