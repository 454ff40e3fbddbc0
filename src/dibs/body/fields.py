"""The fields of the API's bodies, with the bounds that its description shows and its decoder enforces."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from dibs.codec import MAX_NAME
from dibs.model.checks import MAX_SECONDS, TRACEPARENT
from dibs.model.claim import MAX_BATCH
from dibs.model.retry import YEAR, Backoff
from dibs.model.schedule import MAX_SCHEDULE_NAME
from dibs.model.task import MAX_MAX_ATTEMPTS, MAX_PRIORITY

MAX_WAIT = 60
MOMENT = r"^(?!000[01]|9999)\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:[0-5]\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"
"""RFC 3339 but for leap seconds and the years at the rim, where a time zone could lead out of what a calendar holds."""

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_NAME,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]+$",
        description="One line of 1 to 255 characters.",
    ),
]
WorkerId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern="^[A-Za-z0-9_-]+$",
        description="The worker's own name for itself.",
        examples=["worker-youtube-01"],
    ),
]
RequestId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        pattern="^[A-Za-z0-9_-]+$",
        description="A fresh name for this claim. If its answer is lost, the same claim with the same name answers "
        "with what the first one got, instead of claiming more.",
    ),
]
ProcessorId = Annotated[
    Name,
    Meta(
        description="The processor's name. Unique for each process: a process that asks under the name of another "
        "extends the claim of that one.",
        examples=["billing-7c1f"],
    ),
]
TaskTypeName = Annotated[Name, Meta(description="What to run.", examples=["youtube_video_scrape"])]
Key = Annotated[Name, Meta(description="Makes it safe to send this again.")]
Traceparent = Annotated[
    str,
    Meta(
        pattern=TRACEPARENT,
        description="The span of whoever wants this done, as in the W3C header of that name; every attempt is part of "
        "its trace. Left out: that of the header, if the request has one.",
        examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
    ),
]
Names = Annotated[list[Name], Meta(min_length=1)]
Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Higher first.")]
MaxAttempts = Annotated[int, Meta(ge=1, le=MAX_MAX_ATTEMPTS, description="Attempts before it is a dead letter.")]
AttemptsRemaining = Annotated[int, Meta(ge=0, le=MAX_MAX_ATTEMPTS, description="At least so many attempts left.")]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Lease = Annotated[float, Meta(ge=0.001, le=MAX_SECONDS, description="Seconds until the claim ends unless renewed.")]
Timeout = Annotated[float, Meta(ge=0.001, le=MAX_SECONDS, description="Seconds that one attempt may take.")]
Wait = Annotated[float, Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for a task, if there is none.")]
Count = Annotated[int, Meta(ge=1, le=MAX_BATCH)]
Moment = Annotated[
    datetime,
    Meta(
        tz=True,
        description="A time that knows its time zone.",
        examples=["2025-11-12T10:30:00Z"],
        extra_json_schema={"pattern": MOMENT},
    ),
]
TaskId = Annotated[int, Meta(ge=0, le=2**63 - 1, description="The task.")]
Token = Annotated[int, Meta(ge=0, le=2**63 - 1, description="The claim's token; a stale one is refused with 409.")]
Percent = Annotated[int, Meta(ge=0, le=100, description="How far it is, in percent.")]
EntryId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
BatchLimit = Annotated[int, Meta(ge=1, le=MAX_BATCH, description="At most so many in this call.")]
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
        pattern=r"^[^\x00-\x1f\x7f-\x9f]+$",
        description=f"One line of 1 to {MAX_SCHEDULE_NAME} characters.",
        examples=["nightly-report"],
    ),
]
Limit = Annotated[
    str,
    Meta(
        pattern="^(none|([1-9][0-9]{0,8}|1000000000)/(second|minute|hour|day))$",
        description='Requests in a second, minute, hour or day; or "none".',
        examples=["600/minute"],
    ),
]
Params = Annotated[dict[str, Any], Meta(description="Any JSON object.", examples=[{"video_id": "abc123"}])]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's body: a field that is not known is refused, never ignored.

    `rules`: what holds between its fields, as JSON Schema, for the description; the code that refuses stands elsewhere.
    """

    rules: ClassVar[tuple[dict[str, Any], ...]] = ()


def not_both(*names: str) -> dict[str, Any]:
    """The rule that of these fields not all may be given; null is as good as nothing."""
    return {"not": {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}}


def at_least_one(*names: str) -> dict[str, Any]:
    """The rule that one of these fields must be given; null is as good as nothing."""
    return {"anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


class Empty(Body, frozen=True):
    """Nothing needs to be said."""


class BackoffBody(Body, frozen=True):
    """How long a failed task rests: base, doubled with every attempt, up to the cap (seconds)."""

    base_seconds: Annotated[
        float, Meta(ge=0, le=YEAR, description="After the first failure, unless the cap is shorter.")
    ] = 1.0
    cap_seconds: Annotated[float, Meta(ge=0, le=YEAR, description="Never longer than this.")] = 300.0

    def backoff(self) -> Backoff:
        """The same in the store's words."""
        return Backoff(min(self.base_seconds, self.cap_seconds), self.cap_seconds)
