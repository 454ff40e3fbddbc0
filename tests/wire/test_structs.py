"""The structs of the JSON API: no field of a model is left out, and the names are those of the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import msgspec
import pytest

import dibs
from dibs.model.history import StoreEvent
from dibs.model.statistics import Percentiles
from dibs.model.upkeep import Check
from dibs.wire import admin, claims, finalization, history, keys, limits, logs, retention, schedules, tasks, workflows
from dibs.wire.fields import PATTERNS, readable, to_text, to_text_or_none

NOW = datetime(2025, 11, 12, 10, 30, 0, 123456, tzinfo=UTC)

OTHER_NAMES = {
    "every": "every_seconds",
    "jitter": "jitter_seconds",
    "type": "task_type",
    "types": "task_types",
    "state": "status",
    "timeout": "timeout_seconds",
    "expires_in": "expires_in_seconds",
    "key": "idempotency_key",
    "raw_result": "result",
    "oldest_pending_age": "oldest_pending_age_seconds",
    "wait": "wait_seconds",
    "run": "run_seconds",
}
TASK = dibs.Task(
    7, "resize", "default", dibs.State.CLAIMED, {"a": 1}, 5, 0, 3, 1, NOW, NOW, claimed_at=NOW, lease_until=NOW
)
SCHEDULE = dibs.Schedule(
    "nightly",
    "@daily",
    "UTC",
    dibs.CatchUp.ONE,
    True,
    "resize",
    {},
    "default",
    0,
    3,
    None,
    dibs.Backoff(),
    "code",
    *[NOW] * 3,
)

LIMIT = dibs.Limit("stripe", 2, "100/minute", 10, "group", "command", NOW, NOW, 3, 4, NOW, {"max": 5})
KEY = dibs.ApiKey("abcdefghijkl", "ci", (dibs.Scope.READ,), ("mail",), None, NOW, digest="d" * 64)
ENTRY = dibs.HistoryEntry(1, 7, dibs.Event.ENQUEUED, None, dibs.State.PENDING, None, 0, None, NOW, {})

CASES: list[tuple[Any, Any, set[str]]] = [
    (
        tasks.Task,
        TASK,
        {"deduplicated", "replaced", "trace", "set_aside", "expires_at", "key_scope", "key_until", "group"},
    ),
    (tasks.Failure, dibs.Failure("ValueError", "no", "trace"), {"type"}),
    (history.HistoryEntry, ENTRY, set()),
    (logs.LogLine, dibs.LogLine(7, 1, 1, 1, NOW, dibs.LogLevel.INFO, "videos", "hello"), set()),
    (admin.Queue, dibs.QueueInfo("default", True, NOW, {"pending": 1}), set()),
    (admin.Worker, dibs.WorkerInfo("w", "i", dibs.WorkerState.ACTIVE, None, None, {}, NOW, NOW, None, [7]), {"state"}),
    (admin.TaskType, dibs.TaskType("resize", 1, None, {}, NOW), set()),
    (schedules.Schedule, SCHEDULE, set()),
    (limits.Limit, LIMIT, set()),
    (limits.QueueSettings, dibs.QueueSettings("mail", True, ["stripe"], "code", NOW), set()),
    (limits.TypeSettings, dibs.TypeSettings("charge", ["stripe"], "tenant"), {"type"}),
    (limits.LimitGroup, dibs.LimitGroup("stripe", "acme", 1, 2, NOW), {"limit"}),
    (limits.Group, dibs.GroupInfo("mail", "acme", 3.0, 2), set()),
    (admin.Stats, dibs.Stats({}, {}, {}, None, {}, {}, Percentiles(), Percentiles(0.1, 0.2, 0.3)), set()),
    (keys.Key, KEY, {"digest", "seconds_left"}),
    (history.TaskEvent, StoreEvent(ENTRY, "default", "resize"), {"entry"}),
    (admin.Check, Check("schema", dibs.Verdict.OK, "fine"), set()),
    (tasks.Explanation, dibs.Explanation(7, dibs.State.PENDING, [dibs.Reason("ready", "It is.")]), set()),
]


@pytest.mark.parametrize(("shaped", "thing", "kept_apart"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_wire_struct_has_every_field_of_its_model_and_is_json(shaped: Any, thing: Any, kept_apart: set[str]) -> None:
    answer = msgspec.to_builtins(shaped.from_model(thing))
    fields = {field.name for field in msgspec.structs.fields(thing)} - kept_apart
    assert {OTHER_NAMES.get(name, name) for name in fields} - set(answer) == set()
    assert json.loads(json.dumps(answer)) == answer


def test_a_claimed_task_has_the_documented_fields() -> None:
    assert list(msgspec.to_builtins(tasks.Task.from_model(TASK)).items())[:13] == [
        ("id", 7),
        ("task_type", "resize"),
        ("status", "claimed"),
        ("params", {"a": 1}),
        ("priority", 5),
        ("attempts", 0),
        ("max_attempts", 3),
        ("worker_id", None),
        ("claimed_at", "2025-11-12T10:30:00.123456Z"),
        ("created_at", "2025-11-12T10:30:00.123456Z"),
        ("queue", "default"),
        ("token", 1),
        ("lease_until", "2025-11-12T10:30:00.123456Z"),
    ]


def test_a_key_is_shown_without_its_digest() -> None:
    assert "ddd" not in msgspec.json.encode(keys.Key.from_model(KEY)).decode()


def test_an_event_is_its_entry_with_queue_and_type() -> None:
    entry = msgspec.to_builtins(history.HistoryEntry.from_model(ENTRY))
    event = history.TaskEvent.from_model(StoreEvent(ENTRY, "default", "resize"))
    assert msgspec.to_builtins(event) == {**entry, "queue": "default", "task_type": "resize"}


def test_times_are_in_utc_with_all_digits() -> None:
    assert to_text(datetime(999, 1, 1, tzinfo=UTC)) == "0999-01-01T00:00:00.000000Z"
    assert to_text(NOW.astimezone(timezone(timedelta(hours=5)))) == "2025-11-12T10:30:00.123456Z"
    assert to_text_or_none(None) is None


def test_a_page_has_a_cursor_only_if_there_is_a_next_page() -> None:
    assert tasks.Page.from_models([TASK, TASK], 2).cursor == 7
    assert tasks.Page.from_models([TASK], 2).cursor is None
    assert msgspec.to_builtins(tasks.Page.from_models([], 2)) == {"tasks": [], "next_cursor": None}


def test_an_error_message_has_words_instead_of_the_regular_expression_of_a_field() -> None:
    for pattern, words in PATTERNS.items():
        field = msgspec.defstruct("Body", [("field", Annotated[str, msgspec.Meta(pattern=pattern)])])
        with pytest.raises(msgspec.ValidationError) as error:
            msgspec.convert({"field": "\x00, "}, field)
        assert readable(error.value) == f"Expected {words} - at `$.field`"


def test_every_regular_expression_of_a_field_has_words() -> None:
    readable_itself = {"^(enqueued|"}  # a list of words
    for module in (admin, history, keys, schedules, tasks, claims, finalization, limits, retention, workflows):
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, msgspec.Struct):
                for pattern in patterns_of(msgspec.json.schema(found)):
                    assert pattern in PATTERNS or pattern.startswith(tuple(readable_itself)), (found, pattern)


def patterns_of(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        schema = list(schema.values())
    for each in schema if isinstance(schema, list) else ():
        yield from patterns_of(each)
