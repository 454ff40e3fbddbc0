"""No fault of a child process costs its worker a lane, or delays the exit of the program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import dibs
from dibs import State
from tests.helpers import broken
from tests.helpers.processes import ROOT


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """The broken handlers, and a worker with one child process for them."""
    broken.app.use_url(url)
    with broken.app as app, app.worker(children=1):
        yield app


def test_the_death_of_a_killed_child_process_is_noticed_although_its_own_child_holds_the_pipe(app: dibs.Dibs) -> None:
    held = broken.leave_a_child_behind.options(timeout=2).enqueue(seconds=30).wait(20)
    assert held.error is not None
    assert (held.state, held.error.type) == (State.FAILED, "TimedOut")
    assert broken.number.enqueue().wait(20).state is State.COMPLETED


def test_the_exit_of_a_child_process_is_noticed_although_its_own_child_holds_the_pipe(app: dibs.Dibs) -> None:
    died = broken.leave_a_child_behind.enqueue(code=3).wait(20)
    assert died.error is not None
    assert (died.error.type, "exit code 3" in died.error.message) == ("ProcessDied", True)


def test_an_error_whose_text_cannot_be_stored_fails_its_attempt_like_any_other(app: dibs.Dibs) -> None:
    failed = broken.raise_what_no_text_holds.enqueue().wait(20)
    assert failed.error is not None
    assert (failed.attempts, failed.error.type) == (2, "FileNotFoundError")  # tried again: it is not permanent
    assert failed.error.message == "no file named \N{REPLACEMENT CHARACTER}\N{SYMBOL FOR NULL}"


def test_a_log_entry_that_cannot_be_formatted_does_not_fail_its_task(app: dibs.Dibs) -> None:
    assert broken.log_what_cannot_be_logged.enqueue().wait(20).result == "logged"


def test_a_keyboard_interrupt_of_a_handler_fails_its_attempt_and_not_its_process(app: dibs.Dibs) -> None:
    before = broken.number.enqueue().wait(20).result
    failed = broken.interrupt.enqueue().wait(20)
    assert failed.error is not None
    assert (failed.error.type, failed.error.message) == ("KeyboardInterrupt", "mine")
    assert broken.number.enqueue().wait(20).result == before


def test_the_start_of_a_child_process_does_not_count_for_the_timeout_of_its_task(
    app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIBS_TEST_IMPORT_TAKES", "2.5")
    assert broken.number.options(timeout=2, max_attempts=1).enqueue().wait(20).state is State.COMPLETED


def test_a_program_that_never_stops_its_worker_can_still_exit(url: str) -> None:
    command = [sys.executable, "-m", "tests.helpers.broken", url]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "completed\n"), ended.stderr
