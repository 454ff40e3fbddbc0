"""Checks of values from callers: integers, seconds, times, worker ids, trace parents. All raise InvalidValue."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from dibs.errors import InvalidValue
from dibs.json_values import check_name, format_number

MAX_SECONDS = 100 * 365 * 24 * 3600


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


TRACEPARENT = "^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"
"""The W3C Trace Context header: version, trace id, span id, flags."""


_traceparent = re.compile(TRACEPARENT)


MAX_TAGS = 20
MAX_TAG = 64
_ONE_TAG = r'[^\x00-\x20\x7f-\x9f",\\]([^\x00-\x1f\x7f-\x9f",\\]{0,62}[^\x00-\x20\x7f-\x9f",\\])?'
"""A line of up to MAX_TAG characters without spaces at its ends. A comma separates tags in URLs and in the search box;
quotes and backslashes are escaped in JSON, and a filter compares a tag with the stored JSON."""

TAG = f"^{_ONE_TAG}$"
TAGS_IN_QUERY = f"^{_ONE_TAG}(,{_ONE_TAG}){{0,{MAX_TAGS - 1}}}$"


_tag = re.compile(TAG)


_request_id = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_integer(value: Any, what: str, least: int, most: int) -> int:
    """Check for an int (not a bool) within bounds, and return it."""
    if type(value) is not int:
        raise InvalidValue(f"{what} must be an integer, not {value!r}.")
    if not least <= value <= most:
        raise InvalidValue(f"{what} must be between {least:,} and {most:,}, not {format_number(value, ',')}.")
    return value


def check_seconds(value: Any, what: str, *, least: float = 0) -> int:
    """Check for a number of seconds within bounds, and return it in microseconds."""
    if type(value) is not int and type(value) is not float:
        raise InvalidValue(f"{what} must be a number of seconds, not {value!r}.")
    if not least <= value <= MAX_SECONDS:  # False for NaN as well
        raise InvalidValue(f"{what} must be between {least} and {MAX_SECONDS:,} seconds, not {format_number(value)}.")
    return round(value * 1_000_000)


def deadline_after(timeout: Any) -> float | None:
    """The time, by `time.monotonic`, at which a wait of `timeout` seconds ends; None for a wait without an end.

    A timeout may be negative (what is left of the time of a program) or infinite."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or math.isnan(timeout):
        raise InvalidValue(f"timeout must be a number of seconds, or None, not {timeout!r}.")
    return time.monotonic() + timeout


_DURATION = re.compile(r"([0-9]{1,12})(s|m|h|d|w)")


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def read_duration(text: str) -> float:
    """Convert a text such as 90d to seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        hint = "Write a number and its unit: 45s, 30m, 12h, 90d, 4w."
        raise InvalidValue(f"{text!r} is not a valid duration.", hint=hint)
    return int(found[1]) * _SECONDS[found[2]]


def read_seconds(text: str) -> float:
    """Convert a number of seconds, or a duration such as 30s, to seconds."""
    try:
        return float(text)
    except ValueError:
        return read_duration(text)


def check_request_id(request: Any) -> None:
    """Check the id of a request, by which a repetition is recognised."""
    if type(request) is not str or not _request_id.fullmatch(request):
        raise InvalidValue(
            f"The request id {str(request)[:80]!r} is not allowed.",
            hint="Use 1 to 64 letters, digits, dashes and underscores.",
        )


def check_trace(value: Any) -> str:
    """Check for a W3C traceparent, and return it."""
    if not is_trace(value):
        raise InvalidValue(f"{str(value)[:80]!r} is not a valid traceparent.", hint="Use 00-<trace>-<span>-<flags>.")
    return str(value)


def is_trace(value: Any) -> bool:
    """True for a W3C traceparent."""
    return type(value) is str and _traceparent.fullmatch(value) is not None


def check_tags(tags: Any) -> None:
    """Check for a list of up to MAX_TAGS tags."""
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise InvalidValue(f"tags must be a list of strings, not {tags!r}.")
    if len(tags) > MAX_TAGS:
        raise InvalidValue(f"tags has {len(tags)} entries; the limit is {MAX_TAGS}.")
    for tag in tags:
        if type(tag) is str and not 1 <= len(tag) <= MAX_TAG:
            shown = repr(tag if len(tag) <= MAX_TAG else f"{tag[:MAX_TAG]}…")
            raise InvalidValue(f"A tag must have 1 to {MAX_TAG} characters; {shown} has {len(tag):,}.")
        check_name(tag, "A tag")
        if not _tag.fullmatch(tag):
            hint = "Write a tag without commas, quotes and backslashes, and without spaces at its ends."
            raise InvalidValue(f"The tag {tag!r} is not allowed.", hint=hint)


def to_micros(moment: datetime) -> int:
    """Convert a time to microseconds since 1970, exactly (timestamp() would round)."""
    return (moment - EPOCH) // timedelta(microseconds=1)


@lru_cache(4096)  # the tasks of a batch share most of their times
def from_micros(micros: int) -> datetime:
    """Convert microseconds since 1970 to a time in UTC."""
    return EPOCH + timedelta(0, 0, micros)


def check_moment(value: Any, what: str) -> datetime:
    """Check for an aware datetime between the years 1 and 9999 in UTC, and return it."""
    if not isinstance(value, datetime):
        raise InvalidValue(f"{what} must be a datetime, not {value!r}.")
    if value.utcoffset() is None:
        raise InvalidValue(f"{what} has no time zone.", hint="Use datetime.now(UTC) or another aware datetime.")
    if not FIRST <= value <= LAST:  # in UTC, a datetime of another time zone can be out of range
        raise InvalidValue(f"{what} is outside the years 1 to 9999 in UTC.")
    return value


_WORKER_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")


def check_worker_id(worker_id: Any) -> str:
    """Check a worker's id, which must be valid in URLs, file names and log entries, and return it."""
    if type(worker_id) is not str or not _WORKER_ID.fullmatch(worker_id):
        raise InvalidValue(
            f"The worker id {worker_id!r} is not allowed.", hint="Use 1 to 255 letters, digits, dashes and underscores."
        )
    return worker_id


def check_names(names: Any, what: str, each: str) -> None:
    """Check for a list of names that is not empty, or None."""
    if names is None:
        return
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidValue(f"{what} must be a list of names, not {names!r}.")
    if not names:
        raise InvalidValue(f"{what} is an empty list, which matches nothing.", hint="Leave it out to match everything.")
    for name in names:
        check_name(name, each)
