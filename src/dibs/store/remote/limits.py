"""Limits and fair share over HTTP."""

from __future__ import annotations

from dibs.json_values import check_name
from dibs.model.checks import check_integer
from dibs.model.declaration import Declarations, StoredDeclarations
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
from dibs.store.operation import Operation
from dibs.store.remote.decode import decoder, reader
from dibs.store.remote.request import HttpCall, api_path, encode, get, post, read_operation, write_operation
from dibs.wire import limits as wire
from dibs.wire.fields import Done, RequestBody

_read_limit = reader(wire.OneLimit)
_read_limits = reader(wire.Limits)
_read_changed_limit = reader(wire.ChangedLimit)
_read_declared = reader(wire.StoredDeclarations)
_read_limit_groups = reader(wire.LimitGroups)
_read_done = reader(Done)
_read_queue = reader(wire.OneQueueSettings)
_read_type = reader(wire.OneTypeSettings)
_read_queues = decoder(wire.AllSettings, lambda answer: answer.to_model()[0])
_read_types = decoder(wire.AllSettings, lambda answer: answer.to_model()[1])
_read_settled = reader(wire.Settled)
_read_groups = reader(wire.Groups)
_read_group = reader(wire.ChangedGroup)


class RemoteLimits:
    """Limits, settings of queues and types, weights of groups. See LimitOperations."""

    knows_rates = False

    def put_limit(self, new: NewLimit, source: SettingSource) -> Operation[Limit]:
        """Store the limit, or change the limit of the same name."""
        call = _write("PUT", _limit_path(new.name), wire.NewLimitBody.from_model(new, source))
        return write_operation("put_limit", call, _read_changed_limit, wakes=True)

    def change_limit(self, change: LimitChange) -> Operation[Limit]:
        """Change values of the limit; a value that is left out stays."""
        call = _write("PATCH", _limit_path(change.name), wire.LimitChangeBody.from_model(change))
        return write_operation("change_limit", call, _read_changed_limit, wakes=True)

    def declare(self, declarations: Declarations) -> Operation[StoredDeclarations]:
        """Store what a program declares."""
        call = post("/api/declarations", wire.DeclarationsBody.from_model(declarations))
        return write_operation("declare", call, _read_declared, wakes=True)

    def get_limit(self, name: str) -> Operation[Limit]:
        """The limit with its use, or LimitNotFound."""
        return read_operation("get_limit", get(_limit_path(name)), _read_limit)

    def list_limits(self) -> Operation[list[Limit]]:
        """All limits with their use, by name."""
        return read_operation("list_limits", get("/api/limits"), _read_limits)

    def remove_limit(self, name: str) -> Operation[None]:
        """Remove the limit. Must not be repeated: a second request finds no such limit."""
        call = HttpCall("DELETE", _limit_path(name), safe=False)
        return write_operation("remove_limit", call, _read_done, wakes=True)

    def limit_groups(self, name: str, limit: int = 100, after: str | None = None) -> Operation[list[LimitGroup]]:
        """A page of the groups of the limit."""
        call = get(f"{_limit_path(name)}/groups", _page(limit, after))
        return read_operation("limit_groups", call, _read_limit_groups)

    def put_queue(self, new: NewQueueSettings, source: SettingSource) -> Operation[QueueSettings]:
        """Store the settings of a queue."""
        call = _write("PATCH", _queue_path(new.queue, "settings"), wire.QueueSettingsBody.from_model(new, source))
        return write_operation("put_queue", call, _read_queue, wakes=True)

    def get_queue(self, queue: str) -> Operation[QueueSettings]:
        """The settings of the queue."""
        return read_operation("get_queue", get(_queue_path(queue, "settings")), _read_queue)

    def queue_settings(self) -> Operation[list[QueueSettings]]:
        """The settings of all queues that have any."""
        return read_operation("queue_settings", get("/api/settings"), _read_queues)

    def put_type(self, new: NewTypeSettings, source: SettingSource) -> Operation[TypeSettings]:
        """Store the limits of a task type."""
        call = _write("PATCH", _type_path(new.type), wire.TypeSettingsBody.from_model(new, source))
        return write_operation("put_type", call, _read_type, wakes=True)

    def get_type_settings(self, type: str) -> Operation[TypeSettings]:
        """The limits of the type."""
        return read_operation("get_type_settings", get(_type_path(type)), _read_type)

    def type_settings(self) -> Operation[list[TypeSettings]]:
        """The limits of all types that have any."""
        return read_operation("type_settings", get("/api/settings"), _read_types)

    def settle(self, after: int = 0, limit: int = SETTLED_AT_ONCE, change: int = 0) -> Operation[Settled]:
        """Bring tasks that were enqueued before a change of settings in line with them: one batch."""
        body = wire.SettleBody(
            after=check_integer(after, "after", 0, 2**63 - 1),
            limit=check_integer(limit, "limit", 1, SETTLED_AT_ONCE),
            change=check_integer(change, "change", 0, 2**63 - 1),
        )
        return write_operation("settle", post("/api/upkeep/settle", body), _read_settled, wakes=True)

    def put_group(self, queue: str, group: str | None, weight: float) -> Operation[GroupInfo]:
        """Store the weight of a group in a queue."""
        name = [] if group is None else [check_group(group)]
        call = _write("PUT", _queue_path(queue, "groups", *name), wire.WeightBody(weight=check_weight(weight)))
        return write_operation("put_group", call, _read_group)

    def groups(self, queue: str, limit: int = 100, after: str | None = None) -> Operation[list[GroupInfo]]:
        """A page of the groups of the queue."""
        return read_operation("groups", get(_queue_path(queue, "groups"), _page(limit, after)), _read_groups)


def _write(method: str, path: str, body: RequestBody) -> HttpCall:
    """A request whose repetition changes nothing."""
    return HttpCall(method, path, encode(body))


def _page(limit: int, after: str | None) -> wire.GroupsQuery:
    return wire.GroupsQuery(limit=check_integer(limit, "limit", 1, GROUPS_AT_ONCE), cursor=after)


def _limit_path(name: str) -> str:
    return api_path("limits", check_name(name, "The limit's name"))


def _queue_path(queue: str, *parts: str) -> str:
    return api_path("queues", check_name(queue, "The queue"), *parts)


def _type_path(type: str) -> str:
    return api_path("task-types", check_name(type, "The task type"), "settings")
