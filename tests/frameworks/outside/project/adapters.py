"""What differs from a suite's own project: the backends, and what a suite assumes about its own worker."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.test import SimpleTestCase
from django.test.utils import CaptureQueriesContext

from dibs.django import app


def of_django() -> list[str]:
    """Put DibsBackend in the place of Django's backends, and allow the tests to use the database. They call sync
    methods on the event loop, which Django refuses to a backend with a database, so that is allowed as well."""
    from backends import Immediate, Inspected
    from django.tasks.backends import dummy, immediate

    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    dummy.DummyBackend, immediate.ImmediateBackend = Inspected, Immediate
    SimpleTestCase.databases = {"default"}
    return [f"tasks.test_{name}" for name in ("tasks", "dummy_backend", "immediate_backend", "custom_backend")]


def of_django_tasks_db() -> list[str]:
    """Count no queries, since those of dibs are others, and wait for workers as long as they need."""
    tests: Any = importlib.import_module("tests.tests")
    for each in vars(tests).values():
        if isinstance(each, type) and issubclass(each, SimpleTestCase):
            each.assertNumQueries = uncounted
    processes = tests.DatabaseWorkerProcessTestCase
    processes.start_worker = started(processes.start_worker)
    processes.WORKER_STARTUP_TIME = 0
    processes.test_kill = a_killed_worker_does_not_keep_its_task
    processes.test_repeat_ctrl_c = a_second_ctrl_c_releases_the_task
    processes.test_multiple_workers = with_long_ids(processes.test_multiple_workers)
    tests.subprocess = Patient
    return ["tests.tests"]


SUITES = {"django": of_django, "django-tasks-db": of_django_tasks_db}


@contextmanager
def uncounted(case: Any, number: int, **_: Any) -> Iterator[CaptureQueriesContext]:
    """In the place of assertNumQueries."""
    from django.db import connection

    with CaptureQueriesContext(connection) as captured:
        yield captured


class Patient:
    """In the place of the module subprocess: a machine under load is slower than the timeouts of the suite."""

    PIPE, STDOUT = subprocess.PIPE, subprocess.STDOUT

    class Popen(subprocess.Popen[str]):
        """A process for which `wait` waits longer."""

        def wait(self, timeout: float | None = None) -> int:
            """See subprocess.Popen."""
            return super().wait(60)


def started(start_worker: Callable[..., Any]) -> Callable[..., Any]:
    """Start a worker as the suite does, and wait until it has begun to claim: the suite sleeps instead."""

    def start(case: Any, *args: Any, **options: Any) -> Any:
        process = start_worker(case, *args, **options)
        _until(lambda: process.poll() is not None or _claims(_worker_id(process)))
        return process

    return start


def _worker_id(process: Any) -> str:
    return str(process.args[process.args.index("--worker-id") + 1])


def _claims(worker_id: str) -> bool:
    """True if the worker is registered, and nothing waits for it."""
    is_there = any(each.id == worker_id for each in app.workers())
    return is_there and not app.list_tasks(state="pending")


def _until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_at, "The condition did not come true within 60 s."
        time.sleep(0.05)


def a_killed_worker_does_not_keep_its_task(self: Any) -> None:
    """test_kill, inverted: the suite expects that the task is RUNNING for ever after SIGKILL."""
    import dibs
    from tests import tasks

    result = tasks.hang.enqueue()
    process = self.start_worker(["--lease", "1"])
    result.refresh()
    assert result.status == "RUNNING"
    process.kill()
    assert process.wait() == -9
    self.start_worker()

    def has_ended() -> bool:
        result.refresh()
        return result.is_finished

    _until(has_ended)
    assert result.status == "FAILED"  # the project gives tasks one attempt
    assert result.errors[0].exception_class is dibs.ClaimLost


def a_second_ctrl_c_releases_the_task(self: Any) -> None:
    """test_repeat_ctrl_c, inverted: the suite expects that the second Ctrl-C makes the task fail."""
    from tests import tasks

    result = tasks.hang.enqueue()
    process = self.start_worker()
    process.send_signal(signal.SIGINT)
    assert any("Ctrl-C again" in line for line in process.stdout), "The worker has ended."
    result.refresh()
    assert result.status == "RUNNING"
    process.send_signal(signal.SIGINT)
    process.wait()
    result.refresh()
    assert result.status == "READY"
    assert result.errors == []


def with_long_ids(test: Callable[[Any], None]) -> Callable[[Any], None]:
    """Let the tasks of the test have long ids: it counts how often each id is in the output, where 1 is in many
    numbers."""

    def run(case: Any) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            for statement in START_IDS_AT_A_BILLION[connection.vendor]:
                cursor.execute(statement)
        test(case)

    return run


START_IDS_AT_A_BILLION = {
    "sqlite": (
        "DELETE FROM sqlite_sequence WHERE name = 'dibs_tasks'",
        "INSERT INTO sqlite_sequence (name, seq) VALUES ('dibs_tasks', 1000000000)",
    ),
    "postgresql": ("ALTER TABLE dibs_tasks ALTER COLUMN id RESTART WITH 1000000000",),
}
