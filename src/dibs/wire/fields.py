"""The types of fields of the HTTP API with their bounds, the format of times, and the base class of request bodies."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec import Meta

from dibs.json_values import MAX_NAME, encode
from dibs.model.checks import MAX_SECONDS, MAX_TAG, MAX_TAGS, TAG, TAGS_IN_QUERY, TRACEPARENT
from dibs.model.claim import MAX_BATCH
from dibs.model.schedule import MAX_SCHEDULE_NAME
from dibs.model.task import MAX_MAX_ATTEMPTS, MAX_PRIORITY

MAX_WAIT = 60
"""Seconds for which a client may let the server wait for a task or a change."""

MOMENT = r"^(?!000[01]|9999)\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:[0-5]\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"
"""RFC 3339 without leap seconds, and without the first and last years, where a time zone could exceed the range of
datetime."""

ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]+$"
ID = "^[A-Za-z0-9_-]+$"
ONE_LINE_OR_EMPTY = r"^[^\x00-\x1f\x7f-\x9f]*$"
RATE = "^([1-9][0-9]{0,8}|1000000000)/(second|minute|hour|day)$"
RATE_LIMIT = "^(none|([1-9][0-9]{0,8}|1000000000)/(second|minute|hour|day))$"
NO_NUL = r"^[^\x00]+$"
PATTERNS = {
    ONE_LINE: "one line without control characters",
    ID: "letters, digits, dashes and underscores",
    TRACEPARENT: "a W3C traceparent: 00-<trace>-<span>-<flags>",
    TAG: "a tag: one line without commas, quotes and backslashes, and without spaces at its ends",
    TAGS_IN_QUERY: f"1 to {MAX_TAGS} tags of 1 to {MAX_TAG} characters, separated by commas",
    MOMENT: "a time with its time zone, such as 2025-11-12T10:30:00Z",
    ONE_LINE_OR_EMPTY: "one line without control characters, or an empty text",
    RATE: "a rate: a number a second, minute, hour or day, such as 100/minute",
    RATE_LIMIT: "a rate limit: a number of requests a second, minute, hour or day, such as 600/minute; or none",
    NO_NUL: "a text without null characters",
}
"""The regular expressions of fields, in words for error messages."""

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_NAME,
        pattern=ONE_LINE,
        description="One line of 1 to 255 characters.",
    ),
]
WorkerId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern=ID,
        description="The name that the worker has chosen.",
        examples=["worker-youtube-01"],
    ),
]
RequestId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        pattern=ID,
        description="A new id for this claim. If the answer is lost, a repetition with the same id returns the tasks "
        "of the first claim instead of claiming more.",
    ),
]
EnqueueId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        pattern=ID,
        description="A new id for this enqueue of a task with a key. If the answer is lost, a repetition with the same "
        "id returns the task of the first request, also if its key has ended since.",
    ),
]
ProcessorId = Annotated[
    Name,
    Meta(
        description="The name of the processor, unique for each process: a claim under the name of another process "
        "extends the claim of that process.",
        examples=["billing-7c1f"],
    ),
]
TaskTypeName = Annotated[
    Name, Meta(description="The name by which the handler is found.", examples=["youtube_video_scrape"])
]
IdempotencyKey = Annotated[Name, Meta(description="Makes it safe to repeat the request.")]
KeyScopeOption = Annotated[
    Literal["always", "until_finished", "until_started"],
    Meta(
        description="How long the task has its key: until it is pruned, until it is finished, or until a worker claims "
        "it for the first time.",
    ),
]
KeyFor = Annotated[
    float,
    Meta(
        ge=0.001,
        le=MAX_SECONDS,
        description="Seconds for which the task has its key, even if it is pruned before; instead of key_scope.",
    ),
]
MaxDelay = Annotated[
    float,
    Meta(
        ge=0,
        le=MAX_SECONDS,
        description="Seconds after the first enqueue at which the task is due at the latest, however often it is "
        "replaced.",
    ),
]
OnConflictOption = Annotated[
    Literal["return", "keep", "raise", "replace"],
    Meta(
        description="If a task has the key: return that task if type and params are equal and refuse otherwise; keep "
        "that task whatever its params; refuse; or replace params, priority, due time, expiry, tags, group and limits "
        "of a task that has not started.",
    ),
]
Traceparent = Annotated[
    str,
    Meta(
        pattern=TRACEPARENT,
        description="The span of the enqueue, in the format of the W3C header of that name; every attempt is part of "
        "its trace. By default the header of the request, if there is one.",
        examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
    ),
]
Tag = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_TAG,
        pattern=TAG,
        description="One line without commas, quotes and backslashes, and without spaces at its ends.",
        examples=["customer-42"],
    ),
]
Tags = Annotated[list[Tag], Meta(max_length=MAX_TAGS)]
Names = Annotated[list[Name], Meta(min_length=1)]
Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Higher first.")]
MaxAttempts = Annotated[
    int,
    Meta(ge=1, le=MAX_MAX_ATTEMPTS, description="The number of attempts, after which the task is in the dead letter."),
]
AttemptsRemaining = Annotated[
    int, Meta(ge=0, le=MAX_MAX_ATTEMPTS, description="Only tasks with at least this number of attempts left.")
]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Lease = Annotated[float, Meta(ge=0.001, le=MAX_SECONDS, description="Seconds until the claim ends unless renewed.")]
Timeout = Annotated[float, Meta(ge=0.001, le=MAX_SECONDS, description="Seconds that one attempt may take.")]
ExpiresIn = Annotated[
    float,
    Meta(
        ge=0.001,
        le=MAX_SECONDS,
        description="Seconds from the enqueue (of a step: from the end of its parents) after which the task is "
        "cancelled if it was not started.",
    ),
]
Wait = Annotated[float, Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for a task, if there is none.")]
Count = Annotated[int, Meta(ge=1, le=MAX_BATCH)]
Moment = Annotated[
    datetime,
    Meta(
        tz=True,
        description="A time with its time zone.",
        examples=["2025-11-12T10:30:00Z"],
        extra_json_schema={"pattern": MOMENT},
    ),
]
TaskId = Annotated[int, Meta(ge=0, le=2**63 - 1, description="The task.")]
Token = Annotated[
    int, Meta(ge=0, le=2**63 - 1, description="The token of the claim; a stale token is refused with 409.")
]
Percent = Annotated[int, Meta(ge=0, le=100, description="The progress in percent.")]
EntryId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
BatchLimit = Annotated[int, Meta(ge=1, le=MAX_BATCH, description="The size of the batch.")]
Keep = Annotated[
    float,
    Meta(
        ge=0, le=MAX_SECONDS, description="Seconds that the records are kept; 0: until the next upkeep; null: for ever."
    ),
]
ScheduleName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_SCHEDULE_NAME,
        pattern=ONE_LINE,
        description=f"One line of 1 to {MAX_SCHEDULE_NAME} characters.",
        examples=["nightly-report"],
    ),
]
KeyRateLimit = Annotated[
    str,
    Meta(
        pattern=RATE_LIMIT,
        description='Requests in a second, minute, hour or day; or "none".',
        examples=["600/minute"],
    ),
]
Params = Annotated[dict[str, Any], Meta(description="Any JSON object.", examples=[{"video_id": "abc123"}])]


def readable(error: Exception) -> str:
    """The text of a validation error, with words instead of the regular expression of a field."""
    text = str(error)
    for pattern, words in PATTERNS.items():
        text = text.replace(f"`str` matching regex {pattern!r}", words)
    return text


Timestamp = Annotated[
    str,
    Meta(
        description="A time in UTC, always with microseconds, so that texts sort like times.",
        extra_json_schema={"format": "date-time", "examples": ["2025-11-12T10:30:00.123456Z"]},
    ),
]
JsonObject = dict[str, Any]

FREE_FIELDS = frozenset({"params", "result", "defaults", "schema", "metadata", "value"})
"""Fields whose content belongs to the client: `whole_numbers` does not change it."""


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request. An unknown field is an error.

    `rules`: conditions between fields, as JSON Schemas for the OpenAPI document. They only describe: the conversion to
    the model checks the conditions.
    """

    rules: ClassVar[tuple[dict[str, Any], ...]] = ()


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters in the URL of a request. An unknown parameter is an error."""


def not_both(*names: str) -> dict[str, Any]:
    """The rule that a request may not have all of these fields; null counts as missing."""
    return {"not": {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}}


def only_with(name: str, *names: str, **defaults: str) -> dict[str, Any]:
    """The rule that a request may have any of these fields only together with the field `name`; null counts as missing.
    `defaults`: further fields, each with the value that counts as missing."""
    given = {other: {"not": {"type": "null"}} for other in names}
    given |= {other: {"not": {"const": default}} for other, default in defaults.items()}
    return {
        "anyOf": [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}},
            {"not": {"anyOf": [{"required": [other], "properties": {other: rule}} for other, rule in given.items()]}},
        ]
    }


def only_if(names: list[str], *, default: bool = False, **values: str) -> dict[str, Any]:
    """The rule that a request may have any of these fields only if other fields have these `values`; null counts as
    missing. `default`: the other fields may be missing too."""
    others: dict[str, Any] = {"properties": {other: {"const": value} for other, value in values.items()}}
    if not default:
        others["required"] = list(values)
    given = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]
    return {"anyOf": [others, {"not": {"anyOf": given}}]}


def at_least_one(*names: str) -> dict[str, Any]:
    """The rule that a request must have at least one of these fields; null counts as missing."""
    return {"anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


class Empty(RequestBody, frozen=True):
    """A request body without fields."""


class Done(msgspec.Struct, frozen=True):
    """The request succeeded; there is no other result."""

    success: bool

    @classmethod
    def from_model(cls) -> Self:
        """The answer to a change that has no result."""
        return cls(success=True)

    def to_model(self) -> None:
        """None: the answer has no value."""


class Counted(msgspec.Struct, frozen=True):
    """The request succeeded; the number of changed rows."""

    success: bool
    count: int

    @classmethod
    def from_model(cls, count: int) -> Self:
        """The number as an answer."""
        return cls(success=True, count=count)

    def to_model(self) -> int:
        """The number."""
        return self.count


@lru_cache(4096)  # the tasks of a batch share most of their times
def to_text(at: datetime) -> str:
    """A time in UTC with all its microseconds, so that texts sort like times."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


to_datetime = datetime.fromisoformat
"""Parse a time that `to_text` wrote."""


def to_text_or_none(at: datetime | None) -> str | None:
    """`to_text` for a time that may be missing."""
    return None if at is None else to_text(at)


def to_datetime_or_none(text: str | None) -> datetime | None:
    """`to_datetime` for a time that may be missing."""
    return None if text is None else to_datetime(text)


def utc(at: datetime) -> datetime:
    """The same moment in UTC, for a request: its times are sent in UTC."""
    return at.astimezone(UTC)


def utc_or_none(at: datetime | None) -> datetime | None:
    """`utc` for a time that may be missing."""
    return None if at is None else at.astimezone(UTC)


def checked_json(value: Any, what: str) -> Any:
    """A value of the client as encoded JSON. InvalidValue if dibs cannot store it."""
    return msgspec.Raw(encode(value, what))


def whole_numbers(value: Any) -> Any:
    """The value with integers for floats without a fraction, because some programs write 2 as 2.0. The fields that
    belong to the client stay as they are."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is dict:
        return {name: item if name in FREE_FIELDS else whole_numbers(item) for name, item in value.items()}
    return [whole_numbers(item) for item in value] if type(value) is list else value
