"""DibsBackend: a backend of Django's task framework (`django.tasks`, before Django 6 the package django_tasks)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from django.core import checks
from django.db import DEFAULT_DB_ALIAS, transaction
from django.utils import timezone

from dibs.django.client import app, refuse_models
from dibs.django.configuration import OPTIONS, TASK_OPTIONS, location
from dibs.django.framework import BaseTaskBackend, TaskResultDoesNotExist, normalize_json, task_enqueued
from dibs.django.results import BACKEND, RUN_AFTER, moment, new_result, result_of
from dibs.errors import InvalidValue
from dibs.model.task import NewTask


class DibsBackend(BaseTaskBackend):
    """Keeps the tasks of Django's task framework in dibs.

    A task has the path of its function as its type. `enqueue` joins the open transaction of the project's database;
    with the option `enqueue_on_commit`, the task is stored after the commit.
    """

    is_dibs = True
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._defaults = {name: value for name, value in self.options.items() if name in TASK_OPTIONS}

    def validate_task(self, task: Any) -> None:
        """See BaseTaskBackend. Workers that have imported the module of the task can run it from then on."""
        from dibs.django.runner import register

        super().validate_task(task)
        register(task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store the task, and return its result. See BaseTaskBackend."""
        self.validate_task(task)
        refuse_models(f"The task {task.module_path}", (*args, *kwargs.values()))
        if self.options.get("enqueue_on_commit"):
            return self._enqueue_after_commit(task, args, kwargs)
        new = self._new(task, plain(args), plain(kwargs))
        result = new_result(task, self.alias, args, kwargs, "")
        record = app._submit(new)
        object.__setattr__(result, "id", str(record.id))
        return self._enqueued(result, record)

    def get_result(self, result_id: str) -> Any:
        """See BaseTaskBackend. Reads in the open transaction."""
        record = self._read(result_id)
        if record is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(record, app.history(record.id), result_id)

    def result_id(self, record: Any) -> str:
        """The id of the result of a stored task: its key with `enqueue_on_commit`, else its number."""
        by_key = self.options.get("enqueue_on_commit") and record.key is not None
        return str(record.key if by_key else record.id)

    def check(self, **kwargs: Any) -> Iterator[checks.CheckMessage]:
        """See BaseTaskBackend: unknown and invalid OPTIONS."""
        for name in sorted(set(self.options) - OPTIONS):
            yield checks.Error(
                f"TASKS[{self.alias!r}] has the unknown option {name!r}.",
                hint=f"DibsBackend has the options {', '.join(sorted(OPTIONS))}.",
                id="dibs.E003",
            )
        try:
            NewTask("check", **self._defaults)
        except (InvalidValue, TypeError) as error:
            yield checks.Error(f"TASKS[{self.alias!r}] has an invalid option: {error}", id="dibs.E004")

    def _new(self, task: Any, args: Any, kwargs: Any, key: str | None = None) -> NewTask:
        params = {"args": args, "kwargs": kwargs, BACKEND: self.alias}
        options = {**self._defaults, "queue": task.queue_name, "priority": int(task.priority), "key": key}
        if (run_after := task.run_after) is not None:
            params[RUN_AFTER] = run_after.isoformat()
            options["run_at"] = run_after if timezone.is_aware(run_after) else timezone.make_aware(run_after)
        return NewTask(task.module_path, params, **options)

    def _enqueue_after_commit(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The id of the result is the key of the task: the id of the task is not known before the commit."""
        key = uuid.uuid4().hex
        new = self._new(task, plain(args), plain(kwargs), key)
        result = new_result(task, self.alias, args, kwargs, key)
        alias = location().database or DEFAULT_DB_ALIAS
        transaction.on_commit(partial(self._store_after_commit, new, result), using=alias)
        return result

    def _store_after_commit(self, new: NewTask, result: Any) -> None:
        self._enqueued(result, app._submit(new))

    def _enqueued(self, result: Any, record: Any) -> Any:
        object.__setattr__(result, "enqueued_at", moment(record.created_at))
        task_enqueued.send(sender=type(self), task_result=result)
        return result

    def _read(self, result_id: str) -> Any:
        if self.options.get("enqueue_on_commit") and result_id:
            for record in app.list_tasks(key=result_id, limit=1):
                return record
        is_number = result_id.isascii() and result_id.isdigit() and len(result_id) < 19
        return app.get(int(result_id)) if is_number else None


def plain(value: Any) -> Any:
    """The value as plain JSON: subclasses of str and int, such as choices and safe strings, as their base class."""
    return json.loads(json.dumps(normalize_json(value)))
