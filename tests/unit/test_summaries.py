"""When a worker logs its totals, and how they look on a terminal."""

from __future__ import annotations

import logging
import time

import pytest

from dibs.cli.watching import SummaryLog
from dibs.cli.worker_text import TerminalFormatter, start_block
from dibs.worker.figures import WaitingTasks, WorkerFigures
from dibs.worker.report import WorkerAbout


def test_a_summary_is_logged_if_the_worker_did_something_or_other_things_hold_tasks_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dibs.worker")
    log, live = SummaryLog(live=False), SummaryLog(live=True)

    def logged(summary: SummaryLog, figures: WorkerFigures, waiting: WaitingTasks | None) -> int:
        caplog.clear()
        summary.log(figures, waiting)
        return len(caplog.records)

    for summary in (log, live):
        assert logged(summary, WorkerFigures(), None) == 0
        assert logged(summary, WorkerFigures(completed=1), WaitingTasks(2)) == 1
        assert logged(summary, WorkerFigures(completed=1, free=9), WaitingTasks(2, 60.0)) == 0
        assert logged(summary, WorkerFigures(completed=1), WaitingTasks(2, 60.0, ["queue a is paused"])) == 1
    assert logged(log, WorkerFigures(completed=1), WaitingTasks(3, 60.0, ["queue a is paused"])) == 0
    assert logged(live, WorkerFigures(completed=1), WaitingTasks(3, 60.0, ["queue a is paused"])) == 1


def test_names_from_the_store_cannot_control_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dibs.worker")
    SummaryLog(live=True).log(WorkerFigures(completed=1234), WaitingTasks(5, 90.0, ["queue \x1b[2J\n is paused"]))
    [record] = caplog.records
    record.created = time.time()
    first, second = TerminalFormatter(on_terminal=True).format(record).splitlines()
    assert first.endswith("/s · 1,234 completed · 0 running · 5 waiting, the oldest for 1 min")
    assert second == r"           held up · queue \x1b[2J\n is paused"


def test_a_long_list_of_handlers_is_cut() -> None:
    names = [f"handler_number_{n}" for n in range(30)]
    about = WorkerAbout(
        worker_id="ada", store="sqlite:///dibs.db", program="jobs", handlers=names, queues=None, lanes={}, grace=25.0
    )
    [line] = [each for each in start_block(about, 1, False, coloured=False).splitlines() if "handlers" in each]
    assert line.endswith(" and 25 more")
