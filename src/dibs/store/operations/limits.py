"""Limits and settings: what is stored about limits, and which of them the tasks of a queue or type have."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dibs.errors import InvalidValue, LimitNotFound
from dibs.json_values import check_name, decode, encode
from dibs.model.checks import check_integer, from_micros
from dibs.model.declaration import Declarations, DeclaredKind, RefusedDeclaration, StoredDeclarations
from dibs.model.key import RateLimit
from dibs.model.limit import (
    GROUPS_AT_ONCE,
    SETTLED_AT_ONCE,
    GroupInfo,
    Limit,
    LimitChange,
    LimitGroup,
    NewLimit,
    NewQueueSettings,
    NewTypeSettings,
    QueueSettings,
    SettingSource,
    Settled,
    TypeSettings,
    check_group,
    check_weight,
)
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.flow import BacklogKey, RulesCache, limit_of
from dibs.store.operations.rows import NewRow, moment

if TYPE_CHECKING:
    from dibs.store.operations.dialect import Dialect

LIMIT: DeclaredKind = "limit"
QUEUE: DeclaredKind = "queue"
TYPE: DeclaredKind = "type"
"""What a declaration is about; the last two are the scopes of settings."""

NOTHING_DECLARED = {"limits": [], "fair": False, "group_by": None}
"""The declaration of settings that have their defaults."""

Known = dict[tuple[str, str], tuple[str | None, bool]]
"""Of each limit, queue and type by its name: its declaration, and whether it was removed."""

Declarable = TypeVar("Declarable", Limit, QueueSettings, TypeSettings)


class Limits:
    """Limits, settings of queues and types, weights of groups."""

    def __init__(self, rules: RulesCache, dialect: Dialect) -> None:
        self._rules = rules
        self._dialect = dialect

    @property
    def knows_rates(self) -> bool:
        """True if this process has read a limit with a rate."""
        return self._rules.rules.has_rates

    def put_limit(self, new: NewLimit, source: SettingSource) -> Operation[Limit]:
        """Store the limit, or change the limit of that name. Tasks that run are not stopped."""
        values = _limit_values(new, _check_source(source))
        return Operation("put_limit", lambda: self._put_limit(values), mode=Mode.TRANSACTION, wakes=True)

    def change_limit(self, change: LimitChange) -> Operation[Limit]:
        """Change values of the limit; a value that is left out stays."""
        return Operation("change_limit", lambda: self._change_limit(change), mode=Mode.TRANSACTION, wakes=True)

    def declare(self, declarations: Declarations) -> Operation[StoredDeclarations]:
        """Store what a program declares about limits, queues and task types; what is stored already is not written."""
        limits = [_limit_values(each, "code") for each in declarations.limits]
        types = [
            _setting_values((TYPE, each.type), each.limits, None, each.group_by, "code") for each in declarations.types
        ]
        queues = [
            _setting_values((QUEUE, each.queue), each.limits, each.fair, None, "code") for each in declarations.queues
        ]
        return Operation("declare", lambda: self._declare(limits, types + queues), mode=Mode.TRANSACTION, wakes=True)

    def get_limit(self, name: str) -> Operation[Limit]:
        """The limit with its use, or LimitNotFound."""
        check_name(name, "The limit's name")
        return Operation("get_limit", lambda: self._get_limit(name), mode=Mode.SNAPSHOT)

    def list_limits(self) -> Operation[list[Limit]]:
        """All limits with their use, by name."""
        return Operation("list_limits", self._list_limits, mode=Mode.SNAPSHOT)

    def remove_limit(self, name: str) -> Operation[None]:
        """Remove the limit, or raise LimitNotFound. The tasks that name it run without it."""
        check_name(name, "The limit's name")
        return Operation("remove_limit", lambda: _remove_limit(name), mode=Mode.TRANSACTION, wakes=True)

    def limit_groups(self, name: str, limit: int = 100, after: str | None = None) -> Operation[list[LimitGroup]]:
        """A page of the groups of the limit that hold claims or wait."""
        check_name(name, "The limit's name")
        check_integer(limit, "limit", 1, GROUPS_AT_ONCE)
        return Operation("limit_groups", lambda: self._limit_groups(name, limit, after), mode=Mode.SNAPSHOT)

    def put_queue(self, new: NewQueueSettings, source: SettingSource) -> Operation[QueueSettings]:
        """Store the settings of a queue. LimitNotFound for a limit that does not exist."""
        values = _setting_values((QUEUE, new.queue), new.limits, new.fair, None, _check_source(source))
        return Operation(
            "put_queue",
            lambda: self._put_setting(values),
            mode=Mode.TRANSACTION,
            wakes=True,
            decode=_read_queue,
        )

    def get_queue(self, queue: str) -> Operation[QueueSettings]:
        """The settings of the queue; the defaults if it has none."""
        check_name(queue, "The queue")
        return Operation(
            "get_queue",
            lambda: _get_setting(QUEUE, queue),
            mode=Mode.READ,
            decode=lambda row: QueueSettings(queue) if row is None else _read_queue(row),
        )

    def queue_settings(self) -> Operation[list[QueueSettings]]:
        """The settings of all queues that have any, by name."""
        return Operation(
            "queue_settings",
            lambda: _settings(QUEUE),
            mode=Mode.READ,
            decode=lambda rows: [_read_queue(row) for row in rows],
        )

    def put_type(self, new: NewTypeSettings, source: SettingSource) -> Operation[TypeSettings]:
        """Store the limits of a task type. LimitNotFound for a limit that does not exist."""
        values = _setting_values((TYPE, new.type), new.limits, None, new.group_by, _check_source(source))
        return Operation(
            "put_type",
            lambda: self._put_setting(values),
            mode=Mode.TRANSACTION,
            wakes=True,
            decode=_read_type,
        )

    def get_type_settings(self, type: str) -> Operation[TypeSettings]:
        """The limits of the type; none if it has none."""
        check_name(type, "The task type")
        return Operation(
            "get_type_settings",
            lambda: _get_setting(TYPE, type),
            mode=Mode.READ,
            decode=lambda row: TypeSettings(type) if row is None else _read_type(row),
        )

    def type_settings(self) -> Operation[list[TypeSettings]]:
        """The limits of all types that have any, by name."""
        return Operation(
            "type_settings",
            lambda: _settings(TYPE),
            mode=Mode.READ,
            decode=lambda rows: [_read_type(row) for row in rows],
        )

    def put_group(self, queue: str, group: str | None, weight: float) -> Operation[GroupInfo]:
        """Store the weight of a group in a queue. None: the tasks without a group."""
        check_name(queue, "The queue")
        if group is not None:
            check_group(group)
        params = {"queue": queue, "group": group or "", "weight": check_weight(weight)}
        return Operation("put_group", lambda: _put_group(params), mode=Mode.TRANSACTION)

    def groups(self, queue: str, limit: int = 100, after: str | None = None) -> Operation[list[GroupInfo]]:
        """A page of the groups of the queue that have a weight or tasks in a backlog."""
        check_name(queue, "The queue")
        check_integer(limit, "limit", 1, GROUPS_AT_ONCE)
        return Operation("groups", lambda: _groups(queue, limit, after), mode=Mode.READ)

    def _declare(self, limits: list[dict[str, Any]], settings: list[dict[str, Any]]) -> Statements[StoredDeclarations]:
        """A program that declares what the store has already takes no lock: many programs start, and limited claims
        wait for the lock. Task types come before queues: a task that is enqueued meanwhile has its group then."""
        known = {
            (kind, name): (declared, removed) for kind, name, declared, removed in (yield Statement("declarations"))
        }
        refused: list[RefusedDeclaration] = []
        for values in limits:
            if not _is_declared(known, LIMIT, values):
                yield from _or_refuse(self._put_limit(values), LIMIT, values["name"], refused)
        for values in settings:
            if not _is_declared(known, values["scope"], values):
                yield from _or_refuse(self._put_setting(values), values["scope"], values["name"], refused)
        removed = [each["name"] for each in limits if _is_removed(known, each)]
        return StoredDeclarations(refused, removed, (yield from _is_unsettled()))

    def _put_limit(self, values: dict[str, Any]) -> Statements[Limit]:
        yield from lock_flow()
        name, declared = values["name"], values["declared"]
        if declared is not None and (yield from _was_removed(name, declared)):
            raise LimitNotFound(name)
        known = yield from _find_limit(name)
        if declared is not None and known is not None and _is_overridden(known, declared):
            yield Statement("note_limit_declared", {"name": name, "declared": declared})
            return (yield from self._get_limit(name))
        yield from _check_scope(values)
        if (yield Statement("put_limit", values)):
            yield from _change_rules()
            yield Statement("reopen_counters", {"name": name})
        return (yield from self._get_limit(name))

    def _change_limit(self, change: LimitChange) -> Statements[Limit]:
        """Safe: the present values are read under the lock, so of two changes at the same moment neither is lost."""
        yield from lock_flow()
        known = yield from _find_limit(change.name)
        new = change.applied_to(None if known is None else known.values)
        return (yield from self._put_limit(_limit_values(new, "command")))

    def _get_limit(self, name: str) -> Statements[Limit]:
        yield from _get_limit(name)
        [limit] = yield from self._with_use((yield Statement("get_limit", {"name": name})))
        return limit

    def _list_limits(self) -> Statements[list[Limit]]:
        rows = yield Statement("list_limits")
        return (yield from self._with_use(rows)) if rows else []

    def _with_use(self, rows: list[Row]) -> Statements[list[Limit]]:
        """The limits, with the live claims and the waiting tasks of each."""
        rules = yield from self._rules.checked()
        waiting, ended = Counter[str](), Counter[str]()
        for queue, type_name, limits, count in (yield Statement("waiting_tasks")):
            names = rules.names(BacklogKey(queue, type_name, "", limits))
            waiting.update(dict.fromkeys(names, int(count)))
        for counters, count in (yield Statement("returning_permits")):
            for counter in decode(counters):
                ended[limit_of(counter)] += count
        since: dict[str, int] = dict((yield Statement("exhausted_limits")))
        return [_read_limit(row, waiting[row[0]], ended[row[0]], since.get(row[0])) for row in rows]

    def _limit_groups(self, name: str, limit: int, after: str | None) -> Statements[list[LimitGroup]]:
        found = yield from _get_limit(name)
        queues, types = (yield from self._rules.checked()).carriers(name)
        given = {"name": name, "queues": queues, "types": types, "per_group": found.per is not None, "after": after}
        return [
            LimitGroup(limit=name, group=group or None, used=int(used), waiting=int(waiting), free_at=moment(opens_at))
            for group, used, waiting, opens_at in (yield Statement("limit_groups", given, words=limited(limit)))
        ]

    def _put_setting(self, values: dict[str, Any]) -> Statements[Row]:
        yield from lock_flow()
        scope, name, declared = values["scope"], values["name"], values["declared"]
        for limit in decode(values["limits"] or "[]"):
            yield from _check_exists(limit, in_code=declared is not None)
        known = yield from _get_setting(scope, name)
        if declared is not None and known is not None and _is_setting_overridden(known, declared):
            yield Statement("note_setting_declared", values)
        elif (yield Statement("put_flow_setting", values)):
            yield from _change_rules()
            yield Statement("count_change")
            yield from self._adapt_backlogs(scope, name)
        row = yield from _get_setting(scope, name)
        assert row is not None
        return row

    def _adapt_backlogs(self, scope: str, name: str) -> Statements[None]:
        """Give the backlogs of this queue or type their present limits. Those that waited for a counter are open: the
        next claim finds out which counter they wait for now."""
        rules = yield from self._rules.read()
        items = []
        for backlog, queue, type_name, group, limits in (
            yield Statement("backlogs_of", {"scope": scope, "name": name})
        ):
            key = BacklogKey(queue, type_name, group, limits)
            names, counters = encode(rules.names(key), "limits"), encode(rules.counters(key), "counters")
            items.append({"name": backlog, "limit_names": names, "counters": counters, "fair": rules.is_fair(queue)})
        if items:
            yield Statement("adapt_backlogs", rows=items)

    # Tasks that wait when a setting changes

    def settle(self, after: int = 0, limit: int = SETTLED_AT_ONCE, change: int = 0) -> Operation[Settled]:
        """Give tasks that were enqueued before a change of a setting their present limits: the next `limit` tasks of
        the store after this id."""
        check_integer(after, "after", 0, 2**63 - 1)
        check_integer(limit, "limit", 1, SETTLED_AT_ONCE)
        check_integer(change, "change", 0, 2**63 - 1)
        return Operation("settle", lambda: self._settle(after, limit, change), mode=Mode.TRANSACTION, wakes=True)

    def _settle(self, after: int, limit: int, change: int) -> Statements[Settled]:
        """The tasks of a transaction that was open when the settings changed cannot be seen before its commit. So this
        waits for such transactions before the first tasks; if one of them stays open, no task is settled, and the
        caller begins again, or goes on without waiting. Then the change is not noted as done."""
        if after == 0 and change == 0:
            change = yield from _count_changes()
            if not (yield from self._dialect.await_writers()):
                return Settled(0, 0)
        elif after == 0:
            change = 0
        settled = yield from self._settle_some(after, limit)
        if settled.after is None and change:
            yield Statement("note_settled", {"changes": change})
        return msgspec.structs.replace(settled, change=change)

    def _settle_some(self, after: int, limit: int) -> Statements[Settled]:
        """Safe: the tasks are locked, and their limits computed from rules that were read afterwards. A task whose
        limits change again meanwhile is settled by that change, which walks through the store as well."""
        [(last, count)] = yield Statement("settle_span", {"after": after}, words=limited(limit))
        if last is None:
            return Settled(0, None)
        rows = yield Statement("unsettled_tasks", {"after": after, "until": last})
        rules = yield from self._rules.checked()
        items = []
        for task_id, queue, type_name, params, limits, group in rows:
            row = NewRow(type_name, queue, 0, params, 1, 0, 0, limits=limits, group_key=group)
            placed = rules.place_waiting(row)
            if placed.backlog is not None:
                items.append({"id": task_id, "backlog": placed.backlog, "group_key": placed.group_key})
        settled = (yield Statement("settle_tasks", rows=items)) if items else []
        return Settled(len(settled), last if count == limit else None)


def return_permits_of_deleted(permits: Iterable[str | None]) -> Statements[None]:
    """Subtract deleted tasks from the counters that still counted them, last in the transaction that deletes them."""
    counts = Counter(name for text in permits if text is not None for name in decode(text))
    if counts:
        yield from lock_flow()
        yield Statement(
            "return_permits", rows=[{"name": name, "count": count} for name, count in sorted(counts.items())]
        )
        yield Statement("wake_counters", {"names": sorted(counts)})


def _is_declared(known: Known, kind: DeclaredKind, values: dict[str, Any]) -> bool:
    """True if the store has this declaration, whether it is in force or not. Settings without any value are stored only
    to take back an earlier declaration."""
    declared, _ = known.get((kind, values["name"]), (None, False))
    if declared is None:
        return kind != LIMIT and decode(values["declared"]) == NOTHING_DECLARED
    return bool(decode(declared) == decode(values["declared"]))


def _is_removed(known: Known, values: dict[str, Any]) -> bool:
    _, removed = known.get((LIMIT, values["name"]), (None, False))
    return bool(removed) and _is_declared(known, LIMIT, values)


def _or_refuse(
    put: Statements[Any], kind: DeclaredKind, name: str, refused: list[RefusedDeclaration]
) -> Statements[None]:
    """Store a declaration. A declaration that is refused keeps none of the others from being stored: the refusal comes
    before the first write."""
    try:
        yield from put
    except (InvalidValue, LimitNotFound) as error:
        refused.append(RefusedDeclaration(kind, name, error))


def _is_unsettled() -> Statements[bool]:
    rows = yield Statement("changes")
    return bool(rows) and rows[0][0] > rows[0][1]


def _count_changes() -> Statements[int]:
    rows = yield Statement("changes")
    return int(rows[0][0]) if rows else 0


def _change_rules() -> Statements[None]:
    """Every process reads the rules again. The version is a random number: if this transaction is rolled back, no later
    version equals the one that enqueues in this transaction have used."""
    yield Statement("set_flow_version", {"version": secrets.randbelow(2**62) + 1})


def _check_scope(values: dict[str, Any]) -> Statements[None]:
    """A limit in use cannot change between one for all and one for each group: its claims are counted elsewhere."""
    rows = yield Statement("scope_in_use", {"name": values["name"]})
    if rows and rows[0][0] != values["per"]:
        raise InvalidValue(
            f"The limit {values['name']!r} is in use, so `per` cannot change.",
            hint="Create a limit with another name, and remove this one.",
        )


def lock_flow() -> Statements[int]:
    """Wait until no other transaction claims tasks with limits or changes limits, until this transaction ends. Returns
    the version of the limits."""
    while True:
        rows = yield Statement("lock_flow")
        if rows:
            return int(rows[0][0])
        yield Statement("begin_flow")


# Limits


def _is_overridden(known: Limit | QueueSettings | TypeSettings, declared: str) -> bool:
    """True if the stored value was set by hand, and the declaration in code has not changed since then. A value that
    was set by hand before the code declared it counts as well."""
    return known.source == "command" and known.declared in (None, decode(declared))


def _get_limit(name: str) -> Statements[Limit]:
    limit = yield from _find_limit(name)
    if limit is None:
        raise LimitNotFound(name)
    return limit


def _find_limit(name: str) -> Statements[Limit | None]:
    """The limit, without its use."""
    rows = yield Statement("get_limit", {"name": name})
    return _read_limit(rows[0]) if rows else None


def _was_removed(name: str, declared: str) -> Statements[bool]:
    """True if the limit was removed by hand since this declaration."""
    rows = yield Statement("removed_limit", {"name": name})
    return bool(rows) and rows[0][0] is not None and decode(rows[0][0]) == decode(declared)


def _check_exists(name: str, *, in_code: bool) -> Statements[None]:
    """Refuse a setting that names an unknown limit. Code may name a limit that it declares and that was removed by
    hand: the tasks run without it until it is set again."""
    if (yield Statement("get_limit", {"name": name})):
        return
    removed = yield Statement("removed_limit", {"name": name})
    if not (in_code and removed and removed[0][0] is not None):
        raise LimitNotFound(name)


def _remove_limit(name: str) -> Statements[None]:
    yield from lock_flow()
    if not (yield Statement("remove_limit", {"name": name})):
        raise LimitNotFound(name)
    yield from _change_rules()
    yield Statement("reopen_counters", {"name": name})


def _limit_values(new: NewLimit, source: str) -> dict[str, Any]:
    rate = new.starts
    declared = {"max": new.max, "rate": new.rate, "burst": new.burst, "per": new.per}
    return {
        "name": new.name,
        "max": new.max,
        "starts": None if rate is None else rate.requests,
        "period": None if rate is None else round(rate.period * 1e6),
        "burst": new.burst,
        "per": new.per,
        "source": source,
        "declared": encode(declared, "declared") if source == "code" else None,
    }


def _read_limit(row: Row, waiting: int = 0, ended: int = 0, exhausted_since: int | None = None) -> Limit:
    name, maximum, starts, period, burst, per, source, created_at, updated_at, declared, used = row
    return Limit(
        name=name,
        max=maximum,
        rate=None if starts is None else str(RateLimit(starts, period / 1e6)),
        burst=burst,
        per=per,
        source=source,
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
        used=int(used) - ended,
        waiting=waiting,
        exhausted_since=moment(exhausted_since) if waiting else None,
        declared=None if declared is None else decode(declared),
    )


# Settings of queues and types


def _is_setting_overridden(row: Row, declared: str) -> bool:
    return _is_overridden(_read_queue(row), declared)


def _get_setting(scope: str, name: str) -> Statements[Row | None]:
    rows = yield Statement("get_flow_setting", {"scope": scope, "name": name})
    return (yield from _with_removed(rows))[0] if rows else None


def _settings(scope: str) -> Statements[list[Row]]:
    return (yield from _with_removed((yield Statement("flow_settings", {"scope": scope}))))


def _with_removed(rows: list[Row]) -> Statements[list[Row]]:
    """The rows, each with those of its limits that were removed."""
    if not rows:
        return []
    removed = {row[0] for row in (yield Statement("removed_limits"))}
    return [(*row, [name for name in decode(row[1]) if name in removed]) for row in rows]


def _setting_values(
    about: tuple[DeclaredKind, str], limits: Any, fair: bool | None, group_by: str | None, source: str
) -> dict[str, Any]:
    scope, name = about
    names = None if limits is None else list(dict.fromkeys(limits))
    values = {"scope": scope, "name": name, "fair": fair, "group_by": group_by, "source": source}
    if source == "code":  # a declaration is complete: what it leaves out has its default
        declared = {"limits": names or [], "fair": bool(fair), "group_by": group_by or None}
        text = encode(declared["limits"], "limits")
        return {
            **values, "limits": text, "fair": bool(fair), "group_by": group_by or "",
            "declared": encode(declared, "declared"),
        }  # fmt: skip
    return {**values, "limits": None if names is None else encode(names, "limits"), "declared": None}


def _read_queue(row: Row) -> QueueSettings:
    name, limits, fair, _, source, _, updated_at, declared, removed = row
    return QueueSettings(
        queue=name,
        fair=bool(fair),
        limits=decode(limits),
        source=source,
        updated_at=from_micros(updated_at),
        declared=None if declared is None else decode(declared),
        removed_limits=removed,
    )


def _read_type(row: Row) -> TypeSettings:
    name, limits, _, group_by, source, _, updated_at, declared, removed = row
    return TypeSettings(
        type=name,
        limits=decode(limits),
        group_by=group_by,
        source=source,
        updated_at=from_micros(updated_at),
        declared=None if declared is None else decode(declared),
        removed_limits=removed,
    )


# Groups


def _put_group(params: dict[str, Any]) -> Statements[GroupInfo]:
    queue, group = params["queue"], params["group"]
    known = yield from _groups(queue, 1, only=group)  # before the lock, which claims wait for
    yield from lock_flow()
    [(weight,)] = yield Statement("put_group", params)
    return GroupInfo(queue, group or None, weight, known[0].waiting if known else 0)


def _groups(queue: str, limit: int, after: str | None = None, only: str | None = None) -> Statements[list[GroupInfo]]:
    rows = yield Statement("list_groups", {"queue": queue, "after": after, "only": only}, words=limited(limit))
    return [GroupInfo(queue, group or None, weight, int(waiting)) for group, weight, waiting in rows]


def _check_source(source: str) -> str:
    if source not in ("code", "command"):
        raise InvalidValue(f"A limit or setting comes from 'code' or 'command', not from {source!r}.")
    return source
