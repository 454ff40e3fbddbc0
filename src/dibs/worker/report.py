"""What a supervised worker process reports to its supervisor: a small file that the process replaces.

The supervisor imports no program of the user. So each process reports what it serves, its figures, and the source files
of its program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dibs.worker.figures import WaitingTasks, WorkerFigures

REPORT_FILE = "DIBS_REPORT"
"""The environment variable with the file of the report."""

RELOAD = "DIBS_RELOAD"
"""The environment variable that asks for the source files of the program."""


class WorkerAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker serves. `store`: its URL without a password. `queues`: with their bounds; None for all. `lanes`:
    how many tasks each runs at once."""

    worker_id: str
    store: str
    program: str
    handlers: Sequence[str]
    queues: Sequence[str] | None
    lanes: dict[str, int]
    grace: float


class ProcessReport(msgspec.Struct, kw_only=True):
    """The report of one process. `about` is None until the program is imported. `files`: the files to watch for
    changes, each with its state when the program was imported."""

    pid: int = 0
    about: WorkerAbout | None = None
    figures: WorkerFigures = WorkerFigures()
    waiting: WaitingTasks | None = None
    files: dict[str, str] = {}


class ReportFile:
    """The file of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    @classmethod
    def of_environment(cls) -> ReportFile | None:
        """The file that the supervisor has named. The variable is removed: child processes of lanes report nothing."""
        path = os.environ.pop(REPORT_FILE, None)
        return None if path is None else cls(Path(path))

    def read(self) -> ProcessReport:
        """The last report, also of an earlier process with this file."""
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
    """The file for the report of the process with this number."""
    return folder / f"{number}.report"


def read_reports(folder: Path) -> list[ProcessReport]:
    """The reports of all processes, in the order of their numbers."""
    return [_read(path) for path in sorted(folder.glob("*.report"), key=lambda path: int(path.stem))]


def _read(path: Path) -> ProcessReport:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProcessReport)
    except (OSError, msgspec.MsgspecError):
        return ProcessReport()
