"""The report of a worker process to its supervisor: a small file, which the process replaces when the report changes.

The supervisor does not import the program of the user. So each process reports what it serves, its figures, and the
source files of the program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dibs.worker.figures import WaitingTasks, WorkerFigures

REPORT_FILE = "DIBS_REPORT"
"""The environment variable with the path of the report."""

RELOAD = "DIBS_RELOAD"
"""The environment variable that adds the source files of the program to the report (`dibs worker --reload`)."""


class WorkerAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker serves. `store`: its URL without a password. `program`: the module and variable of the app.
    `queues`: with their bounds; None for all. `lanes`: the number of tasks that each runs at once. `grace`: seconds."""

    worker_id: str
    store: str
    program: str
    handlers: Sequence[str]
    queues: Sequence[str] | None
    lanes: dict[str, int]
    grace: float


class ProcessReport(msgspec.Struct, kw_only=True):
    """The report of one process. `about` is None until the program is imported. `waiting`: the tasks that wait for the
    worker, None if they are not known. `files`: the source files to watch, each with its state when it was imported."""

    pid: int = 0
    about: WorkerAbout | None = None
    figures: WorkerFigures = WorkerFigures()
    waiting: WaitingTasks | None = None
    files: dict[str, str] = {}


class ReportFile:
    """The file with the report of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    @classmethod
    def of_environment(cls) -> ReportFile | None:
        """The file that the supervisor has named; None without a supervisor. The variable is removed, so that child
        processes of lanes do not report."""
        path = os.environ.pop(REPORT_FILE, None)
        return None if path is None else cls(Path(path))

    def read(self) -> ProcessReport:
        """The last report, which an earlier process with the same number may have written."""
        return _read(self._path)

    def write(self, report: ProcessReport) -> None:
        """Replace the report, if it has changed. A full disk, or a folder that is gone, must not stop a worker."""
        text = msgspec.json.encode(report)
        if text == self._written:
            return
        new = self._path.with_suffix(".new-report")
        with contextlib.suppress(OSError):
            new.write_bytes(text)
            new.replace(self._path)
            self._written = text


def report_path(folder: Path, number: int) -> Path:
    """The path of the report of a process. `number`: of the process among those of the supervisor, from 1."""
    return folder / f"{number}.report"


def read_reports(folder: Path) -> list[ProcessReport]:
    """The reports of all processes, in the order of their numbers."""
    return [_read(path) for path in sorted(folder.glob("*.report"), key=lambda path: int(path.stem))]


def _read(path: Path) -> ProcessReport:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProcessReport)
    except (OSError, msgspec.MsgspecError):
        return ProcessReport()
