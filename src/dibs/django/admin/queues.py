"""The list of queues: depth by state, pause and resume; and the page of a queue with its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.html import format_html

from dibs.client import Dibs
from dibs.django.admin.base import StoreAdmin, paged
from dibs.django.admin.html import Html, badge, link, list_url, listed, moment, object_url, soft, text
from dibs.django.admin.parts import ListColumn, ListPage, ListTable, ObjectPage, PageSection, StoreAction
from dibs.django.models import Limit, Queue, Task
from dibs.model.limit import GroupInfo
from dibs.model.registry import QueueInfo
from dibs.model.task import State

GROUPS = 100

_Row = tuple["QueueAdmin", QueueInfo]


def _depth(state: State) -> Callable[[_Row], Html]:
    return lambda row: depth(row[0].admin_site.name, row[1], state)


def depth(site: str, info: QueueInfo, state: State) -> Html:
    """Return the number of tasks of a queue in a state, as a link to them."""
    count = info.depth.get(state, 0)
    if not count:
        return soft("0")
    address = list_url(site, Task, queue=info.name, state=state.value)
    return format_html('<a href="{}">{}</a>', address, f"{count:,}")


def _name(row: _Row) -> Html:
    return link(row[0].address(Queue, row[1].name), row[1].name)


def condition(info: QueueInfo) -> Html:
    """Return whether the queue is paused."""
    if info.paused:
        return format_html("{} {}", badge("paused"), moment(info.paused_at))
    return badge("paused", "resuming") if info.parked else soft("")


class QueueAdmin(StoreAdmin):
    """The queues."""

    columns = (
        ListColumn("Queue", _name),
        ListColumn("Paused", lambda row: condition(row[1])),
        *(ListColumn(state.value.capitalize(), _depth(state)) for state in State),
    )
    store_actions = (
        StoreAction(
            "pause",
            "Pause",
            "Paused",
            "change",
            Dibs.pause,
            applies=lambda info: not info.paused,
            confirm="Claimed tasks continue. No further task of the queue is claimed until the queue is resumed.",
        ),
        StoreAction("resume", "Resume", "Resumed", "change", Dibs.resume, applies=lambda info: info.paused),
    )

    def read_list(self, request: Any, app: Dibs) -> ListPage:
        """Return the queues, by name."""
        return paged(request, [(self, info) for info in app.queues()])

    def key_of_row(self, row: _Row) -> str:
        """Return the name of a queue."""
        return row[1].name

    def read_object(self, request: Any, app: Dibs, key: str) -> ObjectPage:
        """Return the page of a queue. A queue exists as soon as a task names it."""
        found = next((info for info in app.queues() if info.name == key), None)
        info = found or QueueInfo(key, paused=False, paused_at=None, depth={})
        site, settings = self.admin_site.name, app.get_queue(key)
        facts = [
            ("Queue", text(info.name, 255)),
            ("Paused", condition(info)),
            *((state.value.capitalize(), depth(site, info, state)) for state in State),
            ("Groups take turns", text("yes" if settings.fair else "no")),
            ("Limits", listed(link(object_url(site, Limit, name), name) for name in settings.limits)),
        ]
        groups = app.groups(key, GROUPS)
        sections = [PageSection("Queue", facts=facts)]
        if groups:
            table = ListTable(("Group", "Weight", "Waiting"), [_group(each) for each in groups])
            sections.append(PageSection("Groups", table=table))
        return ObjectPage(f"Queue {key}", info, sections)


def _group(group: GroupInfo) -> list[Html]:
    return [text(group.group or "no group"), text(f"{group.weight:g}"), text(f"{group.waiting:,}")]
