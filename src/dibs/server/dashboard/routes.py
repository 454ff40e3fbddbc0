"""The list of all pages of the dashboard."""

from __future__ import annotations

from dibs.server.dashboard import (
    assets,
    bulk,
    change_form,
    dead,
    keys,
    limits,
    live,
    overview,
    queues,
    retention,
    schedules,
    signin,
    task,
    tasks,
    workers,
    workflows,
)
from dibs.server.dashboard.page import Page
from dibs.server.dashboard.plain_page import PlainPage

PAGES: list[Page | PlainPage] = [
    assets.files,
    *signin.PAGES,
    *tasks.PAGES,
    *bulk.PAGES,
    *task.PAGES,
    *change_form.PAGES,
    *dead.PAGES,
    *live.PAGES,
    *overview.PAGES,
    *queues.PAGES,
    *limits.PAGES,
    *retention.PAGES,
    *workers.PAGES,
    *workflows.PAGES,
    *schedules.PAGES,
    *keys.PAGES,
]
