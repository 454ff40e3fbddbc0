"""Finding tasks: what an address asks for, and a look that takes a moment however many tasks there are.

Everything that is asked for stands in the address, so that a search can be kept and handed on. The store looks through
a stretch of tasks at a time; here it is asked again until a page is full or a tenth of a second is spent, and the page
says how far that came.
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
from dibs.server.dashboard.error_groups import check_kind, is_of
from dibs.server.dashboard.page import Visit

PAGE = 50
"""Tasks on a page."""

ENOUGH = 0.1
"""Seconds after which a look ends, wherever it is."""

AT_ONCE = 500
WITHIN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
MAX_TRAIL = 50


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks somebody wants to see. `text` stands in the params or the error, `error` in the beginning of the
    error alone. `alike`: those whose error is of the kind of this name. `dead`: those in the dead letter."""

    id: int | None = None
    state: State | None = None
    queue: str | None = None
    type: str | None = None
    worker: str | None = None
    key: str | None = None
    text: str | None = None
    error: str | None = None
    alike: str | None = None
    within: Literal["hour", "day", "week"] | None = None
    since: str | None = None
    until: str | None = None
    dead: Literal["yes"] | None = None

    def given(self) -> dict[str, str]:
        """What is asked for, by name."""
        values = {name: getattr(self, name) for name in Wish.__struct_fields__}
        return {name: str(value) for name, value in values.items() if value is not None}

    def address(self, path: str = "/tasks", **also: Any) -> str:
        """Where the answer stands; `also` changes what is asked for, None takes it away."""
        asked = {**dict.fromkeys(Wish.__struct_fields__), **self.given(), **also}
        return _with_query(path, {name: value for name, value in asked.items() if value is not None})

    def words(self) -> str:
        """The wish as one would write it into the box."""
        return " ".join(f"{name}:{_quoted(value)}" for name, value in self.given().items())

    def search(self, visit: Visit, cursor: int | None) -> TaskSearch:
        """The question to the store, of nobody's queues but the visitor's."""
        if self.queue is not None:
            visit.caller.check_queue(self.queue)
        check_kind(self.alike)
        return TaskSearch(
            id=self.id, state=self.state, type=self.type, queue=self.queue, key=self.key, worker=self.worker,
            text=self.text or self.error, since=self._since(), until=_moment(self.until, "until"), cursor=cursor,
            queues=visit.caller.queues if self.queue is None else None, dead=self.dead is not None
        )  # fmt: skip

    def fits(self, task: TaskSummary) -> bool:
        """True if the task is wanted, as far as the store cannot say."""
        has = self.error is None or self.error in (task.error or "")
        return has and (self.alike is None or is_of(self.alike, task))

    def _since(self) -> datetime | None:
        """The later of both beginnings: what was said narrows a search, and never widens it."""
        within = None if self.within is None else datetime.now(UTC) - WITHIN[self.within]
        return max(filter(None, (within, _moment(self.since, "since"))), default=None)


class Address(Wish, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of what was found. `q`: what was written into the box. `cursor`: below this id; `trail`: the cursors of
    the pages before, so that there is a way back."""

    q: str | None = None
    cursor: int | None = None
    trail: str | None = None

    def asked(self) -> Address:
        """The same with the words of the box in their places."""
        if self.q is None:
            return self
        said = read_box(self.q)
        for name, choices in (("state", list(State)), ("within", list(WITHIN)), ("dead", ["yes"])):
            if said.get(name, choices[0]) not in choices:
                raise InvalidValue(f"There is no {name} {said[name]!r}.", hint=f"Use one of: {', '.join(choices)}.")
        return msgspec.convert({**self.given(), **said}, Address, strict=False)

    def older(self, cursor: int) -> str:
        """The next page."""
        trail = [*self._trail(), str(self.cursor or 0)][-MAX_TRAIL:]
        return self.address(cursor=cursor, trail=".".join(trail))

    def newer(self) -> str | None:
        """The page before; None on the first."""
        if self.cursor is None:
            return None
        *trail, last = self._trail() or ["0"]
        return self.address(cursor=None if last == "0" else last, trail=".".join(trail) or None)

    def _trail(self) -> list[str]:
        return [part for part in (self.trail or "").split(".") if part.isdecimal()]


@dataclass(frozen=True, slots=True)
class Look:
    """What was found. `cursor`: where to go on, None at the end of all tasks; `looked`: through how many tasks."""

    tasks: list[TaskSummary]
    cursor: int | None
    looked: int

    @property
    def whole(self) -> bool:
        """True if the page is full, or there is nothing more to find."""
        return self.cursor is None or len(self.tasks) >= PAGE


async def look(visit: Visit, wish: Wish, cursor: int | None, count: int = PAGE, enough: float = ENOUGH) -> Look:
    """The next tasks that are wanted, for as long as `enough` seconds."""
    began, looked, tasks = time.monotonic(), 0, list[TaskSummary]()
    which = wish.search(visit, cursor)
    span = first_span(which.text)
    while True:
        wanted = AT_ONCE if wish.alike or wish.error else count - len(tasks)
        which = msgspec.structs.replace(which, cursor=cursor, limit=wanted)
        found = await visit.run(visit.service.store.tasks.search(which, span))
        looked, cursor = looked + _passed(cursor, found), found.cursor
        fitting = [task for task in found.tasks if wish.fits(task)]
        tasks += fitting[: count - len(tasks)]
        if len(tasks) == count:
            return _ended(tasks, cursor if fitting[-1:] == tasks[-1:] else tasks[-1].id, looked, found.cursor)
        spent = time.monotonic() - began
        if cursor is None or spent >= enough:
            return Look(tasks, cursor, looked)
        span = next_span(span, looked, spent, enough - spent)


def _passed(before: int | None, found: FoundTasks) -> int:
    """How many tasks were looked through: no more than there are ids from the one to the other, where a look was ended
    by finding enough."""
    if found.cursor is None or not found.tasks:
        return found.looked
    top = found.tasks[0].id + 1 if before is None else before
    return min(found.looked, max(top - found.cursor, len(found.tasks)))


def _ended(tasks: list[TaskSummary], cursor: int | None, looked: int, reached: int | None) -> Look:
    """A page that is full; what was looked through beyond its end is looked through again for the next."""
    beyond = 0 if cursor is None or reached is None else cursor - reached
    return Look(tasks, cursor, max(looked - beyond, len(tasks)))


# The box

_CHIP = re.compile(
    r'(?:^|(?<=\s))(id|state|queue|type|worker|key|text|error|alike|within|last|since|until|dead):("[^"]*"|\S+)'
)
_ID = re.compile(r"#?([0-9]{1,18})")
_NAMES = {"last": "within"}


def read_box(words: str) -> dict[str, str]:
    """What `state:failed queue:mail some text` says: names with their values, the rest is a text. A number alone is the
    id of a task; in quotation marks everything is a text."""
    words = words.strip()
    if len(words) > 2 and words[0] == words[-1] == '"':
        return {"text": words[1:-1]}
    if found := _ID.fullmatch(words):
        return {"id": found[1]}
    said, texts, end = dict[str, str](), list[str](), 0
    for chip in _CHIP.finditer(words):
        name, value = _NAMES.get(chip[1], chip[1]), _value(chip)
        if name in said:
            _refuse_twice(name, said[name], value)
        said[name] = value
        texts += [words[end : chip.start()].strip(), value if name == "text" else ""]
        end = chip.end()
    text = " ".join(filter(None, [*texts, words[end:].strip()]))
    return {**said, "text": text} if text else said


def _value(chip: re.Match[str]) -> str:
    """What stands after the colon. Nothing is left out that makes no sense: what is found would be more than was asked
    for, and is acted upon."""
    name, value = chip[1], chip[2]
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if not value:
        raise InvalidValue(f"There is nothing after {name}:.", hint=f"Write {name}:… or take it away.")
    return _id(value) if name == "id" else value


def _id(value: str) -> str:
    if found := _ID.fullmatch(value):
        return found[1]
    raise InvalidValue(f"There is no task with the id {value[:40]!r}.", hint="An id is a number, as in id:12.")


def _refuse_twice(name: str, one: str, other: str) -> NoReturn:
    problem = f"{name} is written twice: {one[:40]!r} and {other[:40]!r}."
    raise InvalidValue(problem, hint="Every condition has to hold, so write it once.")


def boxed(text: str | None) -> str:
    """A text as the box shows it, so that reading it again gives the same."""
    if text is None:
        return ""
    return text if _is_read_as(text) else f'"{text}"'


def _is_read_as(text: str) -> bool:
    try:
        return read_box(text) == {"text": text}
    except InvalidValue:
        return False


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value or not value else value


def _moment(text: str | None, what: str) -> datetime | None:
    """A time in an address: 2026-11-15, 2026-11-15T10:30, with a zone or in UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidValue(f"{what} is no time: {text[:40]!r}.", hint="Write 2026-11-15 or 2026-11-15T10:30.") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _with_query(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
