"""The limits page: limits with their use and backlog, the groups of a limit or of a queue, a form to set a limit.

A key that is limited to queues sees the limits that its queues and types carry, and no groups of other queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from dibs.errors import DibsError, InvalidValue, LimitNotFound
from dibs.model.key import Scope
from dibs.model.limit import Limit, LimitChange, QueueSettings, TypeSettings
from dibs.server.api.limits import usable_limits
from dibs.server.dashboard.page import NameForm, PageRequest, PageResult, page
from dibs.wire.errors import status_of
from dibs.wire.limits import next_cursor

SHOWN = 200
"""Maximum number of limits on the page; `dibs limits list` shows them all."""

GROUPS_SHOWN = 50
"""Maximum number of groups on a page."""

BAR = 1000
"""The width of a bar, in SVG units."""


class LimitsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of the page beside the limits: groups of the limit `show`, or of the queue `queue`, after `cursor`."""

    show: str | None = None
    queue: str | None = None
    cursor: str | None = None


class LimitForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form that sets a limit; numbers are texts, which may be empty. `shown`: the limit whose values the form
    showed: an empty field removes its value. Without it, the value of a limit that exists stays."""

    name: str = ""
    shown: str = ""
    max: str = ""
    rate: str = ""
    burst: str = ""
    per: str = ""

    def change(self) -> LimitChange:
        """Return the new values, validated."""
        name = self.name.strip()
        empty = None if self.shown == name else UNSET
        burst = _number(self.burst, "The burst")
        return LimitChange(
            name=name,
            max=empty if (maximum := _number(self.max, "The maximum")) is None else maximum,
            rate=self.rate.strip() or empty,
            burst=(UNSET if empty is UNSET else 1) if burst is None else burst,
            per=self.per or empty,
        )


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A row of the table: a limit, and what carries it."""

    limit: Limit
    carriers: Sequence[tuple[str, str]]

    @property
    def used(self) -> int:
        """The width of the bar. A limit per group has none, because its maximum holds for each group."""
        if self.limit.max is None or self.limit.per is not None:
            return 0
        return min(BAR, round(BAR * self.limit.used / self.limit.max))

    @property
    def full(self) -> bool:
        """True if tasks wait because the limit is reached."""
        return self.used == BAR and self.limit.waiting > 0


@page("GET", "/limits", Scope.READ, query=LimitsQuery)
async def limits(request: PageRequest) -> PageResult:
    """Render all limits, by name."""
    return await _show(request, request.query)


@page("POST", "/limits", Scope.ADMIN, form=LimitForm)
async def set_limit(request: PageRequest) -> PageResult:
    """Create or change a limit."""
    request.caller.check_whole_store()
    try:
        limit = await request.run(request.service.store.limits.change_limit(request.body.change()))
    except DibsError as error:
        return await _show(request, LimitsQuery(), given=request.body, problem=error)
    return request.redirect_with_notice("/limits", f"Limit {limit.name}: {limit.rule}. The next claims obey it.")


@page("POST", "/limits/remove", Scope.ADMIN, form=NameForm)
async def remove_limit(request: PageRequest) -> PageResult:
    """Remove a limit: its tasks run without it."""
    request.caller.check_whole_store()
    await request.run(request.service.store.limits.remove_limit(request.body.name))
    return request.redirect_with_notice("/limits", f"Limit {request.body.name} is removed: its tasks run without it.")


def _number(text: str, what: str) -> int | None:
    """Return the number in a field of the form; None for an empty field."""
    if not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(f"{what} must be a whole number, not {text[:40]!r}.") from None


async def _show(
    request: PageRequest, query: LimitsQuery, *, given: LimitForm | None = None, problem: DibsError | None = None
) -> PageResult:
    operations, whole = request.service.store.limits, request.caller.queues is None
    usable = await usable_limits(request)
    found = [each for each in await request.run(operations.list_limits()) if usable is None or each.name in usable]
    queues = [each for each in await request.run(operations.queue_settings()) if request.caller.serves(each.queue)]
    types = await request.run(operations.type_settings())
    shown = _find(found, query.show)
    return request.render(
        "limits.html",
        200 if problem is None else status_of(problem),
        rows=[LimitRow(each, _carriers(each.name, queues, types)) for each in found[:SHOWN]],
        hidden=len(found[SHOWN:]),
        queues=queues,
        types=types,
        shown=shown,
        **await _groups(request, query, shown if whole else None),
        given=given or _form(shown),
        problem=problem,
        whole=whole,
    )


def _find(limits: Sequence[Limit], name: str | None) -> Limit | None:
    if name is None:
        return None
    found = next((limit for limit in limits if limit.name == name), None)
    if found is None:
        raise LimitNotFound(name)
    return found


def _carriers(name: str, queues: Sequence[QueueSettings], types: Sequence[TypeSettings]) -> Sequence[tuple[str, str]]:
    """Return the queues and task types that carry a limit: kind and name."""
    return [
        *(("queue", each.queue) for each in queues if name in each.limits),
        *(("type", each.type) for each in types if name in each.limits),
    ]


async def _groups(request: PageRequest, query: LimitsQuery, limit: Limit | None) -> dict[str, Any]:
    """Return a page of the groups of the limit or queue that the visitor has chosen."""
    operations = request.service.store.limits
    groups: list[Any] = []
    if limit is not None:
        groups = await request.run(operations.limit_groups(limit.name, GROUPS_SHOWN, query.cursor))
    elif query.queue is not None:
        request.caller.check_queue(query.queue)
        groups = await request.run(operations.groups(query.queue, GROUPS_SHOWN, query.cursor))
    more = next_cursor(groups, GROUPS_SHOWN)
    subject = {"show": limit.name} if limit is not None else {"queue": query.queue}
    return {"groups": groups, "queue": query.queue, "more": None if more is None else {**subject, "cursor": more}}


def _form(limit: Limit | None) -> LimitForm:
    """Return the form, filled with the values of the limit that is shown."""
    if limit is None:
        return LimitForm()
    return LimitForm(
        name=limit.name,
        shown=limit.name,
        max="" if limit.max is None else str(limit.max),
        rate=limit.rate or "",
        burst=str(limit.burst) if limit.rate else "",
        per=limit.per or "",
    )


PAGES = [limits, set_limit, remove_limit]
