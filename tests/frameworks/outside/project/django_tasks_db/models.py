"""The table of dibs as the tests of django-tasks-db read the table of their own model."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import models

from dibs.django import app
from dibs.model.task import State


class DBTaskQuerySet(models.QuerySet["DBTaskResult"]):
    """The queries of the tests. `update` does what a worker or an operator would do: no state is written by hand."""

    def ready(self) -> DBTaskQuerySet:
        """Tasks that a worker may claim now."""
        is_due = models.Q(state=State.SCHEDULED, run_at__lte=time.time_ns() // 1000)
        return self.filter(is_due | models.Q(state=State.PENDING))

    def successful(self) -> DBTaskQuerySet:
        """Tasks that have ended without an error."""
        return self.filter(state=State.COMPLETED)

    def failed(self) -> DBTaskQuerySet:
        """Tasks that have ended with an error."""
        return self.filter(state=State.FAILED)

    def update(
        self, run_after: datetime | None = None, return_value: Any = None, worker_ids: Any = None, **_: Any
    ) -> int:
        """Change the due time, or run the task by hand as this worker and with this result."""
        for each in self:
            if run_after is not None:
                app.change(each.id, run_at=run_after)
            else:
                app.complete(app.claim_by_id(each.id, *worker_ids), return_value)
        return self.count()

    async def aupdate(self, **values: Any) -> int:
        """See `update`."""
        return await sync_to_async(self.update)(**values)


class DBTaskResult(models.Model):
    """A task of dibs."""

    id = models.BigAutoField(primary_key=True)
    state = models.TextField()
    run_at = models.BigIntegerField()

    objects = DBTaskQuerySet.as_manager()

    class Meta:
        app_label = "django_tasks_db"
        managed = False
        db_table = "dibs_tasks"

    @property
    def worker_ids(self) -> list[str]:
        """The workers that have claimed the task."""
        return list(self._result.worker_ids)

    @property
    def task(self) -> Any:
        """The task of the framework."""
        return self._result.task

    @property
    def _result(self) -> Any:
        from dibs.django.framework import task_backends

        return task_backends["default"].get_result(str(self.id))


get_date_max = datetime.now
"""A name that the tests import. The tests that use it are left out."""
