"""The lists of tasks and of the dead letter: filters, search, paging, actions on selected or on matching tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django.http import HttpResponseRedirect
from django.utils.html import format_html

from dibs import procedures
from dibs.client import Dibs
from dibs.django.admin.base import ROWS, StoreAdmin
from dibs.django.admin.html import Html, badge, lines, link, list_url, listed, moment, soft, text
from dibs.django.admin.one_task import page_of
from dibs.django.admin.parts import FilterLinks, ListColumn, ListPage, MatchAction, ObjectPage, StoreAction
from dibs.django.models import Task, Worker
from dibs.errors import InvalidValue
from dibs.model import task as model
from dibs.model.search import PAGE_CONTENT, TaskFilter, TaskPage
from dibs.model.task import CANCELLABLE, RETRYABLE, SetAside, State
from dibs.server.dashboard.texts import str_of

SEARCH_SECONDS = 0.5
"""Seconds after which a search ends; the page then offers to continue it."""

MATCH_SECONDS = 10.0
"""Seconds after which an action on all matching tasks ends; the user can repeat it."""

MATCH_LIMIT = 20_000
"""Maximum number of tasks of the dead letter that one action changes."""

WITHIN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
TEXT_FILTERS = {"queue": "Queue", "type": "Type", "tags": "Tags", "key": "Key", "worker": "Worker"}
DEAD_FILTERS = {"queue": "Queue", "type": "Type", "tags": "Tags", "error": "Text in the error"}


class _TimeIsUp(Exception):
    """An action on matching tasks has run for long enough."""


def _can_be_retried(task: model.Task) -> bool:
    return task.state in RETRYABLE and task.set_aside is not SetAside.IGNORED


RETRY = StoreAction("retry", "Retry", "Retried", "change", Dibs.retry, applies=_can_be_retried)
CANCEL = StoreAction(
    "cancel",
    "Cancel",
    "Cancelled or asked to stop:",
    "change",
    Dibs.cancel,
    applies=lambda task: task.state in CANCELLABLE and not task.cancel_requested,
    confirm="A waiting task is cancelled at once. The worker of a running task is asked to stop it.",
)
DISCARD = StoreAction(
    "discard",
    "Discard",
    "Discarded",
    "delete",
    Dibs.discard,
    applies=lambda task: task.state is State.FAILED and task.set_aside is None,
    confirm="The tasks stay failed and are removed from the dead letter.",
)
ACTIONS = (RETRY, CANCEL, DISCARD)


def given(request: Any, names: Sequence[str]) -> dict[str, str]:
    """Return the filters of the query string that are set."""
    values = {name: request.GET.get(name, "").strip() for name in names}
    return {name: value for name, value in values.items() if value}


def number_in(value: str | None, what: str) -> int | None:
    """Return a number of the query string. Raises InvalidValue."""
    if value is None:
        return None
    if not value.isdecimal() or not value.isascii() or len(value) > 19:
        raise InvalidValue(f"{what} must be a number, not {value[:40]!r}.")
    return int(value)


def tags_in(value: str | None) -> list[str] | None:
    """Return the tags of a filter, which are separated by commas."""
    tags = [tag.strip() for tag in (value or "").split(",") if tag.strip()]
    return tags or None


class TaskListAdmin(StoreAdmin):
    """What the lists of tasks and of the dead letter have in common."""

    store_actions: ClassVar[Sequence[StoreAction]] = ACTIONS
    permission_model = Task
    plural = "tasks"
    filter_names: ClassVar[Sequence[str]] = ()
    field_names: ClassVar[dict[str, str]] = {}
    matches_without_filter: ClassVar[bool] = False
    """True if the actions on all matching tasks are offered without a filter as well."""

    def parse_key(self, key: str) -> int:
        """Return the id of a task."""
        found = number_in(key, "The id of a task")
        assert found is not None
        return found

    def read_object(self, request: Any, app: Dibs, key: int) -> ObjectPage:
        """Return the page of a task."""
        return page_of(request, app, key, self.admin_site.name)

    def which(self, request: Any) -> TaskFilter:
        """Return the filters of the query string."""
        raise NotImplementedError

    def check_filters(self, request: Any) -> None:
        """See StoreAdmin."""
        for name, value in request.GET.items():
            if value and name not in (*self.filter_names, "cursor"):
                raise InvalidValue(
                    f"{name[:40]!r} is not a filter of this list, so nothing was changed.",
                    hint=f"Use {', '.join(self.filter_names)}.",
                )

    def read_list(self, request: Any, app: Dibs) -> Any:
        """Return a page of tasks, newest first."""
        filters = given(request, self.filter_names)
        page = read_page(app, self.which(request))
        found = [(self, task) for task in page.tasks]
        older = None if page.cursor is None else "?" + encoded(request, cursor=str(page.cursor))
        note = "" if page.cursor is None or len(found) == ROWS else "The search goes on with the next page."
        shown = {name: value for name, value in filters.items() if name != "q"}
        return ListPage(
            rows=found,
            older=older,
            newer="?" + encoded(request, cursor=None) if "cursor" in request.GET else None,
            note=note,
            links=self.links(request),
            fields=[(name, label, filters.get(name, "")) for name, label in self.field_names.items()],
            search=self.search_text(filters),
            kept=shown,
            matching=bool(filters) or self.matches_without_filter,
        )

    def search_text(self, filters: dict[str, str]) -> str | None:
        """Return the text of the search box; None for a list without one."""
        return filters.get("q", "")

    def links(self, request: Any) -> list[FilterLinks]:
        """Return the filters that are links."""
        return []

    def key_of_row(self, row: Any) -> int:
        """Return the id of a task."""
        return int(row[1].id)


def _id(row: tuple[StoreAdmin, model.Task]) -> Html:
    admin, task = row
    return format_html('<a href="{}">{}</a>', admin.address(Task, task.id), task.id)


def _type(row: tuple[StoreAdmin, model.Task]) -> Html:
    admin, task = row
    tags = listed(format_html('<span class="dibs-tag">{}</span>', text(tag, 40)) for tag in task.tags)
    name = link(admin.list_address(type=task.type), task.type)
    return lines([name, tags]) if task.tags else name


def _state(row: tuple[StoreAdmin, model.Task]) -> Html:
    task = row[1]
    label = f"failed, {task.set_aside}" if task.set_aside is not None else task.state.value
    return badge(task.state, "stopping" if task.cancel_requested and not task.finished else label)


def _about(row: tuple[StoreAdmin, model.Task]) -> Html:
    """Return the error of a task, or its worker and progress."""
    admin, task = row
    if task.error is not None and task.state is not State.COMPLETED:
        return text(str_of(task.error), 160)
    if task.state is State.CLAIMED:
        progress = "" if task.progress is None else f" {task.progress} %"
        workers = list_url(admin.admin_site.name, Worker)
        return format_html("{}{}", link(workers, task.worker_id), progress)
    return format_html("due {}", moment(task.run_at)) if task.state is State.SCHEDULED else soft("")


COLUMNS = (
    ListColumn("Task", _id),
    ListColumn("Type", _type),
    ListColumn("State", _state),
    ListColumn("Queue", lambda row: link(row[0].list_address(queue=row[1].queue), row[1].queue)),
    ListColumn("Attempts", lambda row: text(f"{row[1].attempts} of {row[1].max_attempts}")),
    ListColumn("Created", lambda row: moment(row[1].created_at)),
    ListColumn("Note", _about),
)


class TaskAdmin(TaskListAdmin):
    """The list of all tasks."""

    columns = COLUMNS
    filter_names = ("q", "state", "within", *TEXT_FILTERS)
    field_names = TEXT_FILTERS
    match_actions = (
        MatchAction(
            "retry-matching",
            "Retry all tasks that match",
            "Retried",
            "change",
            lambda app, request: _until_time_is_up(app.retry_matching, request),
            "All failed, cancelled or scheduled tasks that match the filters become pending, with all their attempts.",
        ),
        MatchAction(
            "cancel-matching",
            "Cancel all tasks that match",
            "Cancelled or asked to stop:",
            "change",
            lambda app, request: _until_time_is_up(app.cancel_matching, request),
            "All tasks that match the filters and have not ended are cancelled. Running tasks are asked to stop.",
        ),
    )

    def which(self, request: Any) -> TaskFilter:
        """Return the filters of the query string."""
        cursor = number_in(request.GET.get("cursor"), "The cursor")
        return TaskFilter(**match_of(request), limit=ROWS, cursor=cursor)

    def read_list(self, request: Any, app: Dibs) -> Any:
        """Return a page of tasks; a number in the search box leads to the task with this id."""
        words = request.GET.get("q", "").strip().removeprefix("#")
        if words.isdecimal() and len(words) < 19 and app.get(int(words)) is not None:
            return HttpResponseRedirect(self.address(Task, words))
        return super().read_list(request, app)

    def links(self, request: Any) -> list[FilterLinks]:
        """Return the filters by state and by age."""
        ages = {"hour": "Past hour", "day": "Past day", "week": "Past 7 days"}
        return [
            filter_links(request, "state", "state", {state.value: state.value.capitalize() for state in State}),
            filter_links(request, "within", "time of creation", ages),
        ]


class DeadTaskAdmin(TaskListAdmin):
    """The list of the dead letter."""

    columns = (
        *(column for column in COLUMNS if column.heading not in ("State", "Note")),
        ListColumn("Failed", lambda row: moment(row[1].finished_at)),
        ListColumn("Error", _about),
    )
    store_actions = (RETRY, DISCARD)
    filter_names = tuple(DEAD_FILTERS)
    field_names = DEAD_FILTERS
    matches_without_filter = True
    match_actions = (
        MatchAction(
            "retry-matching",
            "Retry all tasks that match",
            "Retried",
            "change",
            lambda app, request: _limited(app.redrive(limit=MATCH_LIMIT, **dead_filters(request))),
            "All tasks of the dead letter that match the filters become pending, with all their attempts.",
        ),
        MatchAction(
            "discard-matching",
            "Discard all tasks that match",
            "Discarded",
            "delete",
            lambda app, request: _limited(app.discard_dead(limit=MATCH_LIMIT, **dead_filters(request))),
            "All tasks of the dead letter that match the filters stay failed and are removed from the dead letter.",
        ),
    )

    def which(self, request: Any) -> TaskFilter:
        """Return the filters of the query string."""
        cursor = number_in(request.GET.get("cursor"), "The cursor")
        return TaskFilter(**dead_filters(request), dead=True, limit=ROWS, cursor=cursor)

    def search_text(self, filters: dict[str, str]) -> None:
        """Return None: the dead letter is searched by error, in a filter."""


def read_page(app: Dibs, which: TaskFilter) -> TaskPage:
    """Return a page of tasks. It may end before its limit: after SEARCH_SECONDS, or when the tasks are large."""
    if which.needs_search and not which.dead:
        return app._follow(procedures.find(app._store, which, which.cursor, which.limit, SEARCH_SECONDS))
    page = app._run(app._store.tasks.list_tasks(which, PAGE_CONTENT))
    return TaskPage([task.of(app) for task in page.tasks], page.cursor, page.looked)


def match_of(request: Any) -> dict[str, Any]:
    """Return the filters of the list of tasks as arguments of the verbs."""
    filters: dict[str, Any] = given(request, ("state", "queue", "type", "key", "worker"))
    filters["text"] = request.GET.get("q", "").strip() or None
    filters["tags"] = tags_in(request.GET.get("tags"))
    if within := request.GET.get("within"):
        if within not in WITHIN:
            raise InvalidValue(f"{within[:40]!r} is not a valid age.", hint=f"Use one of: {', '.join(WITHIN)}.")
        filters["since"] = datetime.now(UTC) - WITHIN[within]
    return filters


def dead_filters(request: Any) -> dict[str, Any]:
    """Return the filters of the dead letter as arguments of the verbs."""
    filters: dict[str, Any] = given(request, ("queue", "type", "error"))
    return {**filters, "tags": tags_in(request.GET.get("tags"))}


def filter_links(request: Any, name: str, title: str, choices: dict[str, str]) -> FilterLinks:
    """Return a filter as links to the same list with another value of the filter."""
    chosen = request.GET.get(name, "")
    options = [("", "All"), *choices.items()]
    links = [(label, "?" + encoded(request, cursor=None, **{name: value}), chosen == value) for value, label in options]
    return FilterLinks(title, links)


def encoded(request: Any, **changes: str | None) -> str:
    """Return the query string with changes; None or an empty text removes a parameter."""
    query = request.GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value:
            query[name] = value
    return str(query.urlencode())


def _until_time_is_up(verb: Callable[..., int], request: Any) -> tuple[int, bool]:
    """Call a verb for all matching tasks, which are changed in batches, until MATCH_SECONDS have passed and some tasks
    were changed. A repetition begins with the newest tasks again, and passes those that need no change."""
    ends_at, counts = time.monotonic() + MATCH_SECONDS, list[int]()

    def note(count: int) -> None:
        counts.append(count)
        if time.monotonic() > ends_at and any(counts):
            raise _TimeIsUp

    try:
        return verb(note=note, **match_of(request)), False
    except _TimeIsUp:
        return sum(counts), True


def _limited(count: int) -> tuple[int, bool]:
    return count, count >= MATCH_LIMIT
