"""DibsBackend: Django's task framework on dibs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from dibs.django import app
from tests.frameworks.django.conftest import DEFAULTS
from tests.frameworks.django.shop import tasks
from tests.frameworks.django.shop.framework import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    task_enqueued,
    task_finished,
    task_started,
)


def work() -> None:
    """Run what can be claimed now, in a worker of this process."""
    assert app.worker(burst=True, worker_id="tester", poll=0.05).run() == 0


@contextmanager
def options(alias: str, **more: Any) -> Iterator[None]:
    with override_settings(TASKS={"default": {**DEFAULTS, "OPTIONS": {"database": alias, **more}}}):
        yield


@contextmanager
def signals() -> Iterator[list[tuple[str, str, str]]]:
    """The signals that are sent: name, status at that time, id."""
    sent: list[tuple[str, str, str]] = []
    receivers = {}
    for name, signal in {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}.items():

        def note(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
            sent.append((name, str(task_result.status), task_result.id))

        receivers[name] = (signal, note)
        signal.connect(note)
    try:
        yield sent
    finally:
        for signal, note in receivers.values():
            signal.disconnect(note)


def test_a_result_is_what_get_result_returns(alias: str) -> None:
    result = tasks.add.using(priority=7, queue_name="slow").enqueue(1, b=2)
    assert result.status == "READY"
    assert not result.is_finished
    assert (result.args, result.kwargs, result.backend, result.attempts) == ([1], {"b": 2}, "default", 0)
    assert tasks.add.get_result(result.id) == result
    assert asyncio.run(tasks.add.aget_result(result.id)) == result


def test_a_result_follows_its_task_to_the_end(alias: str) -> None:
    result = tasks.add.enqueue(1, b=2)
    work()
    result.refresh()
    assert (result.status, result.return_value, result.worker_ids, result.errors) == ("SUCCESSFUL", 3, ["tester"], [])
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at


def test_coroutine_functions_run(alias: str) -> None:
    result = asyncio.run(tasks.add_async.aenqueue(1, b=2))
    work()
    result.refresh()
    assert result.return_value == 3


def test_a_failure_has_the_class_and_the_traceback_of_the_exception(alias: str) -> None:
    with options(alias, max_attempts=1):
        own, plain, wrong = tasks.fail.enqueue("no more"), tasks.fail_plainly.enqueue(), tasks.return_object.enqueue()
        work()
        for result, kind in ((own, tasks.OutOfStock), (plain, ValueError), (wrong, TypeError)):
            result.refresh()
            assert result.status == "FAILED"
            [error] = result.errors
            assert error.exception_class is kind
            assert kind.__name__ in error.traceback
            with pytest.raises(ValueError, match="failed"):
                _ = result.return_value


def test_a_task_that_is_run_again_is_ready_and_keeps_its_error(alias: str) -> None:
    result = tasks.fail.enqueue("later")
    work()
    result.refresh()
    assert (result.status, result.attempts, result.finished_at) == ("READY", 1, None)
    assert result.errors[0].exception_class is tasks.OutOfStock
    app.retry(int(result.id))
    work()
    result.refresh()
    assert (result.status, result.worker_ids) == ("READY", ["tester", "tester"])
    assert [error.exception_class for error in result.errors] == [tasks.OutOfStock] * 2


def test_a_task_that_was_changed_by_hand_still_runs(alias: str) -> None:
    narrow = {**DEFAULTS, "QUEUES": ["default"], "OPTIONS": {"database": alias}}
    with override_settings(TASKS={"default": narrow}):
        result = tasks.add.enqueue(1)
        app.change(int(result.id), queue="other", priority=1000)
        work()
        result.refresh()
    assert result.return_value == 1


def test_a_receiver_that_raises_does_not_repeat_the_work(alias: str) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("no")

    task_finished.connect(refuse)
    try:
        result = tasks.add.enqueue(1)
        other = tasks.add_async.enqueue(1, 2)
        work()
    finally:
        task_finished.disconnect(refuse)
    for each in (result, other):
        each.refresh()
        assert (each.status, each.attempts) == ("SUCCESSFUL", 1)


def test_a_cancelled_task_has_failed(alias: str) -> None:
    result = tasks.add.enqueue(1)
    app.cancel(int(result.id))
    result.refresh()
    assert result.status == "FAILED"
    assert result.errors[0].exception_class.__name__ == "Cancel"


def test_the_context_has_the_attempt_and_the_result(alias: str) -> None:
    result = tasks.tell.enqueue("Ada")
    work()
    result.refresh()
    assert result.return_value == {"name": "Ada", "attempt": 1, "id": result.id, "status": "RUNNING"}


def test_signals_are_sent_when_a_task_is_enqueued_started_and_finished(alias: str) -> None:
    with options(alias, max_attempts=1), signals() as sent:
        one, other = tasks.add.enqueue(1), tasks.fail.enqueue("no")
        third = tasks.add_async.enqueue(1, 2)
        work()
    assert [each for each in sent if each[2] == one.id] == [
        ("enqueued", "READY", one.id),
        ("started", "RUNNING", one.id),
        ("finished", "SUCCESSFUL", one.id),
    ]
    assert [name for name, *_ in sent].count("finished") == 3
    assert ("finished", "FAILED", other.id) in sent
    assert ("finished", "SUCCESSFUL", third.id) in sent


def test_a_deferred_task_waits(alias: str) -> None:
    later = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    assert app.get(int(later.id)).state == "scheduled"  # type: ignore[union-attr]
    assert tasks.add.get_result(later.id) == later


def test_naive_times_are_those_of_the_project_without_time_zones(alias: str) -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
        due = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(run_after=due).enqueue(1)
        found = tasks.add.get_result(result.id)
        assert found == result
        assert found.task.run_after == due
        assert timezone.is_naive(found.enqueued_at)
    with override_settings(USE_TZ=True):
        assert abs(app.get(int(result.id)).run_at - timezone.now() - timedelta(hours=1)) < timedelta(minutes=1)  # type: ignore[union-attr]


def test_larger_priorities_run_first_in_the_whole_range(alias: str) -> None:
    ids = {priority: tasks.add.using(priority=priority).enqueue(1).id for priority in (0, -100, 100)}
    assert [task.id for task in app.peek(3)] == [int(ids[100]), int(ids[0]), int(ids[-100])]
    with pytest.raises(InvalidTask):
        tasks.add.using(priority=101)


def test_only_the_queues_of_the_backend_are_accepted(alias: str) -> None:
    assert app.get(int(tasks.hurry.enqueue().id)).queue == "urgent"  # type: ignore[union-attr]
    narrow = {**DEFAULTS, "QUEUES": ["default"], "OPTIONS": {"database": alias}}
    with override_settings(TASKS={"default": narrow}), pytest.raises(InvalidTask):
        tasks.hurry.enqueue()


def test_options_of_the_backend_are_those_of_its_tasks(alias: str) -> None:
    with options(alias, max_attempts=7, timeout=30, tags=["web"]):
        task = app.get(int(tasks.add.enqueue(1).id))
    assert task is not None
    assert (task.max_attempts, task.timeout, task.tags) == (7, 30, ["web"])


def test_with_enqueue_on_commit_the_task_is_stored_after_the_commit(alias: str) -> None:
    with options(alias, enqueue_on_commit=True):
        with transaction.atomic(using=alias):
            result = tasks.add.enqueue(1)
            assert app.list_tasks() == []
            with pytest.raises(TaskResultDoesNotExist):
                tasks.add.get_result(result.id)
        assert tasks.add.get_result(result.id) == result
        work()
        result.refresh()
        assert (result.return_value, result.worker_ids) == (1, ["tester"])
        with transaction.atomic(using=alias):
            tasks.add.enqueue(1)
            transaction.set_rollback(True, using=alias)
        assert len(app.list_tasks()) == 1


def test_the_result_of_another_task_or_of_none_is_refused(alias: str) -> None:
    with pytest.raises(TaskResultMismatch):
        tasks.fail.get_result(tasks.add.enqueue(1).id)
    for unknown in ("99999", "x", "", "²", "9" * 40, str(tasks.ship.enqueue(1).id)):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(unknown)


def test_a_stored_path_never_decides_what_is_imported_or_called(alias: str) -> None:
    """A name in the store that is no task of the project stays where it is."""
    module = "tests.frameworks.django.shop.bystander"
    for path in ("os.system", f"{tasks.__name__}.not_a_task", f"{module}.task", f"{tasks.__name__}.ship"):
        stored = app.enqueue(path, {"args": ["x"], "kwargs": {}, "backend": "default"})
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(str(stored.id))
    work()
    assert {task.state for task in app.list_tasks()} == {"pending"}
    assert module not in sys.modules


def test_another_client_can_enqueue_a_task_by_its_path(alias: str) -> None:
    stored = app.enqueue(f"{tasks.__name__}.add", {"kwargs": {"a": 2, "b": 3}})
    work()
    result = tasks.add.get_result(str(stored.id))
    assert (result.return_value, result.args, result.kwargs) == (5, [], {"a": 2, "b": 3})


@pytest.mark.parametrize("wrong", [{"backend": ["default"]}, {"backend": "lost"}, {"run_after": 5}, {"run_after": "x"}])
def test_options_that_another_client_has_written_wrongly_are_ignored(alias: str, wrong: dict[str, Any]) -> None:
    stored = app.enqueue(f"{tasks.__name__}.add", {"args": [2, 3], **wrong})
    assert tasks.add.get_result(str(stored.id)).status == "READY"
    work()
    assert tasks.add.get_result(str(stored.id)).status == "SUCCESSFUL"


def test_values_that_are_not_json_are_refused_before_anything_is_stored(alias: str) -> None:
    for value in (object(), {1, 2}, timezone.now()):
        with pytest.raises(TypeError):
            tasks.add.enqueue(value)
    assert app.list_tasks() == []


def test_a_worker_runs_handlers_and_tasks_on_the_models(alias: str) -> None:
    order = tasks.Order.objects.create(number=1)
    marked, counted, chained = (
        tasks.mark_shipped.enqueue(order.pk),
        tasks.count_async.enqueue(),
        tasks.chain.enqueue(order.pk),
    )
    work()
    assert (app.get(marked.id).result, app.get(counted.id).result) == (1, 1)  # type: ignore[union-attr]
    assert tasks.Order.objects.get().shipped
    assert app.get(app.get(chained.id).result).state == "completed"  # type: ignore[union-attr]


def test_checks_name_unknown_and_invalid_options(alias: str) -> None:
    with options(alias, max_attempt=1, timeout=-1):
        assert {message.id for message in run_checks()} >= {"dibs.E003", "dibs.E004"}
    call_command("check")
