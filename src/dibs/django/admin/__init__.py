"""Django's admin for dibs: tasks, dead letter, queues, workflows, schedules, workers and limits.

The pages are registered with the default site. A project with a site of its own calls `register(site)`.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from dibs.django import models
from dibs.django.admin.limits import LimitAdmin
from dibs.django.admin.queues import QueueAdmin
from dibs.django.admin.schedules import ScheduleAdmin
from dibs.django.admin.tasks import DeadTaskAdmin, TaskAdmin
from dibs.django.admin.workers import WorkerAdmin
from dibs.django.admin.workflows import WorkflowAdmin

PAGES = {
    models.Task: TaskAdmin,
    models.DeadTask: DeadTaskAdmin,
    models.Queue: QueueAdmin,
    models.Workflow: WorkflowAdmin,
    models.Schedule: ScheduleAdmin,
    models.Worker: WorkerAdmin,
    models.Limit: LimitAdmin,
}


def register(site: Any) -> None:
    """Add the pages to an admin site."""
    for model, pages in PAGES.items():
        site.register(model, pages)


register(admin.site)
