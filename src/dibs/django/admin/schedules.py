"""The list of schedules, and the page of a schedule: run now, enable, disable, remove."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dibs.client import Dibs
from dibs.django.admin.base import StoreAdmin, paged
from dibs.django.admin.html import Html, badge, lines, link, list_url, listed, moment, object_url, soft, source, text
from dibs.django.admin.one_task import value
from dibs.django.admin.parts import ListColumn, ListPage, ObjectPage, PageSection, StoreAction
from dibs.django.models import Schedule, Task
from dibs.model import schedule as model
from dibs.model.schedule import next_runs
from dibs.server.dashboard.texts import DASH, pretty, seconds

_Row = tuple["ScheduleAdmin", model.Schedule]


def _last(row: _Row) -> Html:
    admin, schedule = row
    if schedule.last_error is not None:
        return text(schedule.last_error, 160)
    if schedule.last_task_id is None:
        return soft(DASH)
    return link(admin.address(Task, schedule.last_task_id), f"task {schedule.last_task_id}")


class ScheduleAdmin(StoreAdmin):
    """The schedules."""

    columns = (
        ListColumn("Schedule", lambda row: link(row[0].address(Schedule, row[1].name), row[1].name)),
        ListColumn("Ticks", lambda row: text(row[1].words)),
        ListColumn("State", lambda row: badge(row[1].state)),
        ListColumn("Type", lambda row: text(row[1].type)),
        ListColumn("Queue", lambda row: text(row[1].queue)),
        ListColumn("Next tick", lambda row: moment(row[1].next_at) if row[1].enabled else soft("")),
        ListColumn("Last tick", lambda row: moment(row[1].last_at)),
        ListColumn("Last task or error", _last),
    )
    store_actions = (
        StoreAction("run", "Run now", "Enqueued a task of", "change", Dibs.run_schedule),
        StoreAction(
            "enable",
            "Enable",
            "Enabled",
            "change",
            Dibs.enable_schedule,
            applies=lambda schedule: schedule.state == "disabled",
        ),
        StoreAction(
            "disable",
            "Disable",
            "Disabled",
            "change",
            Dibs.disable_schedule,
            applies=lambda schedule: schedule.state == "enabled",
        ),
        StoreAction(
            "remove",
            "Remove",
            "Removed",
            "delete",
            Dibs.remove_schedule,
            confirm="The schedules enqueue no further tasks; tasks that are enqueued stay. A schedule that code "
            "declares stays removed until its declaration changes.",
            deletes=True,
        ),
    )

    def key_of_row(self, row: _Row) -> str:
        """Return the name of a schedule."""
        return row[1].name

    def read_list(self, request: Any, app: Dibs) -> ListPage:
        """Return the schedules, by name."""
        return paged(request, [(self, schedule) for schedule in app.schedules()])

    def read_object(self, request: Any, app: Dibs, key: str) -> ObjectPage:
        """Return the page of a schedule."""
        schedule = app.get_schedule(key)
        sections = [
            PageSection("Schedule", facts=list(_timing(schedule, self))),
            PageSection("Tasks", facts=list(_tasks(schedule, self.admin_site.name))),
            PageSection("Params", content=value(pretty(schedule.params))),
        ]
        return ObjectPage(f"Schedule {schedule.name}", schedule, sections)


def _timing(schedule: model.Schedule, admin: ScheduleAdmin) -> Iterator[tuple[str, Html]]:
    yield "State", badge(schedule.state)
    yield "Ticks", text(schedule.words, 255)
    if schedule.cron is not None:
        yield "Cron", text(f"{schedule.cron} in {schedule.timezone}", 300)
    yield "Next runs", lines(moment(at) for at in next_runs(schedule)) or soft("none")
    yield "Last tick", moment(schedule.last_at)
    yield "Last task or error", _last((admin, schedule))
    yield "Overlap", text(schedule.overlap.value)
    yield "Catch-up", text(schedule.catch_up.value)
    if schedule.skipped:
        yield "Skipped ticks", text(schedule.skipped)
    yield "Set by", source(schedule)


def _tasks(schedule: model.Schedule, site: str) -> Iterator[tuple[str, Html]]:
    yield "Type", link(list_url(site, Task, type=schedule.type), schedule.type)
    yield "Queue", link(list_url(site, Task, queue=schedule.queue), schedule.queue)
    yield "Priority", text(schedule.priority)
    yield "Attempts", text(schedule.max_attempts)
    if schedule.timeout is not None:
        yield "Timeout", text(seconds(schedule.timeout))
    if schedule.tags:
        yield "Tags", listed(text(tag) for tag in schedule.tags)
    if schedule.unfinished_task_id is not None:
        yield "Unfinished task", link(object_url(site, Task, schedule.unfinished_task_id), schedule.unfinished_task_id)
