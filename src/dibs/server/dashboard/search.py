"""Search for tasks: the query in the URL, and a search that takes a bounded time however many tasks there are.

The whole query is in the URL, so that a search can be bookmarked and shared. The store searches a range of ids at a
time. `search_tasks` repeats this until the page is full or a tenth of a second has passed; the page shows how many
tasks were inspected.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn
from urllib.parse import urlencode

import msgspec

from dibs.batch_size import first_span, next_span
from dibs.errors import InvalidValue
from dibs.model.search import FoundTasks, TaskSearch, TaskSummary
from dibs.model.task import State
from dibs.server.dashboard.error_groups import belongs_to, check_kind
from dibs.server.dashboard.page import PageRequest

PAGE = 50
"""Number of tasks on a page."""

MAX_SECONDS = 0.1
"""Seconds after which a search ends."""

FILTER_BATCH = 500
WITHIN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
MAX_TRAIL = 50


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query for tasks.

    `text`: text in the params or the error. `error`: text in the beginning of the error. `alike`: the error group.
    `tags`: tags with commas between them; a task must have all of them.
    `dead`: only tasks of the dead letter.
    """

    id: int | None = None
    state: State | None = None
    queue: str | None = None
    type: str | None = None
    worker: str | None = None
    key: str | None = None
    tags: str | None = None
    group: str | None = None
    with_limit: str | None = None
    text: str | None = None
    error: str | None = None
    alike: str | None = None
    within: Literal["hour", "day", "week"] | None = None
    since: str | None = None
    until: str | None = None
    dead: Literal["yes"] | None = None

    def given(self) -> dict[str, str]:
        """Return the filters that are set, by name."""
        values = {name: getattr(self, name) for name in TaskQuery.__struct_fields__}
        return {name: str(value) for name, value in values.items() if value is not None}

    def address(self, path: str = "/tasks", **also: Any) -> str:
        """Return the URL of the result. `also` changes filters; None removes a filter."""
        parameters = {**dict.fromkeys(TaskQuery.__struct_fields__), **self.given(), **also}
        return _with_query(path, {name: value for name, value in parameters.items() if value is not None})

    def as_text(self) -> str:
        """Return the query in the syntax of the search box."""
        return " ".join(f"{name}:{_quoted(value)}" for name, value in self.given().items())

    def search(self, request: PageRequest, cursor: int | None) -> TaskSearch:
        """Return the search for the store, limited to the queues of the visitor."""
        if self.queue is not None:
            request.caller.check_queue(self.queue)
        check_kind(self.alike)
        return TaskSearch(
            id=self.id, state=self.state, type=self.type, queue=self.queue, key=self.key, worker=self.worker,
            tags=None if self.tags is None else self.tags.split(","),
            text=self.text or self.error, since=self._since(), until=_parse_time(self.until, "until"), cursor=cursor,
            group=self.group, with_limit=self.with_limit,
            queues=request.caller.queues if self.queue is None else None, dead=self.dead is not None
        )  # fmt: skip

    def matches(self, task: TaskSummary) -> bool:
        """Return True if the task matches the filters that the store does not apply."""
        has = self.error is None or self.error in (task.error or "")
        return has and (self.alike is None or belongs_to(self.alike, task))

    def _since(self) -> datetime | None:
        """Return the later of `within` and `since`, so that both filters apply."""
        within = None if self.within is None else datetime.now(UTC) - WITHIN[self.within]
        return max(filter(None, (within, _parse_time(self.since, "since"))), default=None)


class TaskListQuery(TaskQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of a search. `q`: the text of the search box. `cursor`: tasks below this id. `trail`: the cursors of the
    previous pages, for the way back."""

    q: str | None = None
    cursor: int | None = None
    trail: str | None = None

    def parsed(self) -> TaskListQuery:
        """Return the query with the text of the search box parsed into filters."""
        if self.q is None:
            return self
        filters = parse_search(self.q)
        for name, choices in (("state", list(State)), ("within", list(WITHIN)), ("dead", ["yes"])):
            if filters.get(name, choices[0]) not in choices:
                raise InvalidValue(
                    f"{filters[name]!r} is not a valid {name}.", hint=f"Use one of: {', '.join(choices)}."
                )
        return msgspec.convert({**self.given(), **filters}, TaskListQuery, strict=False)

    def older(self, cursor: int) -> str:
        """Return the URL of the next page."""
        trail = [*self._trail(), str(self.cursor or 0)][-MAX_TRAIL:]
        return self.address(cursor=cursor, trail=".".join(trail))

    def newer(self) -> str | None:
        """Return the URL of the previous page; None on the first page."""
        if self.cursor is None:
            return None
        *trail, last = self._trail() or ["0"]
        return self.address(cursor=None if last == "0" else last, trail=".".join(trail) or None)

    def _trail(self) -> list[str]:
        return [part for part in (self.trail or "").split(".") if part.isdecimal()]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The tasks found. `cursor`: where to continue, None at the end. `looked`: the number of tasks inspected."""

    tasks: list[TaskSummary]
    cursor: int | None
    looked: int

    @property
    def whole(self) -> bool:
        """True if the page is full, or no more tasks exist."""
        return self.cursor is None or len(self.tasks) >= PAGE


async def search_tasks(
    request: PageRequest, query: TaskQuery, cursor: int | None, count: int = PAGE, enough: float | None = None
) -> SearchResult:
    """Search for the next matching tasks, for up to `enough` seconds (MAX_SECONDS)."""
    enough = MAX_SECONDS if enough is None else enough
    began, looked, tasks = time.monotonic(), 0, list[TaskSummary]()
    search = query.search(request, cursor)
    span = first_span(search.text)
    while True:
        limit = FILTER_BATCH if query.alike or query.error else count - len(tasks)
        search = msgspec.structs.replace(search, cursor=cursor, limit=limit)
        found = await request.run(request.service.store.tasks.search(search, span))
        looked, cursor = looked + _count_inspected(cursor, found), found.cursor
        matching = [task for task in found.tasks if query.matches(task)]
        tasks += matching[: count - len(tasks)]
        if len(tasks) == count:
            return _full_page(tasks, cursor if matching[-1:] == tasks[-1:] else tasks[-1].id, looked, found.cursor)
        spent = time.monotonic() - began
        if cursor is None or spent >= enough:
            return SearchResult(tasks, cursor, looked)
        span = next_span(span, looked, spent, enough - spent)


def _count_inspected(before: int | None, found: FoundTasks) -> int:
    """Return the number of tasks inspected. If the search stopped because it found enough tasks, this is at most the
    range of ids."""
    if found.cursor is None or not found.tasks:
        return found.looked
    top = found.tasks[0].id + 1 if before is None else before
    return min(found.looked, max(top - found.cursor, len(found.tasks)))


def _full_page(tasks: list[TaskSummary], cursor: int | None, looked: int, reached: int | None) -> SearchResult:
    """Return a full page. Tasks inspected beyond its end count for the next page, which inspects them again."""
    beyond = 0 if cursor is None or reached is None else cursor - reached
    return SearchResult(tasks, cursor, max(looked - beyond, len(tasks)))


# The search box

_FILTER = re.compile(
    r'(?:^|(?<=\s))(id|state|queue|type|worker|key|tags|tag|group|with_limit|limit|text|error|alike|within|last|since|until|dead):("[^"]*"|\S+)'
)
_ID = re.compile(r"#?([0-9]{1,18})")
_NAMES = {"last": "within", "tag": "tags", "limit": "with_limit"}


def parse_search(words: str) -> dict[str, str]:
    """Parse `state:failed queue:mail some text` into filters; the rest is text. A number alone is the id of a task;
    everything in quotation marks is text."""
    words = words.strip()
    if len(words) > 2 and words[0] == words[-1] == '"':
        return {"text": words[1:-1]}
    if found := _ID.fullmatch(words):
        return {"id": found[1]}
    filters, texts, end = dict[str, str](), list[str](), 0
    for found_filter in _FILTER.finditer(words):
        name, value = _NAMES.get(found_filter[1], found_filter[1]), _value(found_filter)
        if name in filters and name == "tags":
            value = f"{filters[name]},{value}"
        elif name in filters:
            _refuse_twice(name, filters[name], value)
        filters[name] = value
        texts += [words[end : found_filter.start()].strip(), value if name == "text" else ""]
        end = found_filter.end()
    text = " ".join(filter(None, [*texts, words[end:].strip()]))
    return {**filters, "text": text} if text else filters


def _value(found_filter: re.Match[str]) -> str:
    """Return the value after the colon. An invalid value is refused: without the filter, a bulk action would change
    more tasks than intended."""
    name, value = found_filter[1], found_filter[2]
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if not value:
        raise InvalidValue(f"{name}: has no value.", hint=f"Write {name}:VALUE, or remove it.")
    return _id(value) if name == "id" else value


def _id(value: str) -> str:
    if found := _ID.fullmatch(value):
        return found[1]
    raise InvalidValue(f"{value[:40]!r} is not a task id.", hint="An id is a number, for example id:12.")


def _refuse_twice(name: str, first: str, second: str) -> NoReturn:
    problem = f"{name} is written twice: {first[:40]!r} and {second[:40]!r}."
    raise InvalidValue(problem, hint="All filters apply together, so write each one once.")


def format_text(text: str | None) -> str:
    """Return a text for the search box, quoted if it would be parsed as filters."""
    if text is None:
        return ""
    return text if _parses_as_text(text) else f'"{text}"'


def _parses_as_text(text: str) -> bool:
    try:
        return parse_search(text) == {"text": text}
    except InvalidValue:
        return False


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value or not value else value


def _parse_time(text: str | None, what: str) -> datetime | None:
    """Parse a time: 2026-11-15, 2026-11-15T10:30, with a time zone or in UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidValue(
            f"{what} is not a valid time: {text[:40]!r}.", hint="Write 2026-11-15 or 2026-11-15T10:30."
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _with_query(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
