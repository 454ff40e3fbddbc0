"""Format text for a terminal: control characters in user data are escaped, times and JSON are readable."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dibs.encoded import is_encoded, readable
from dibs.redaction import MASK, redact_url

# C0 and C1 controls, line separators, and characters that change the direction of writing.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))

_STEPS = ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (float("inf"), 86400, "d"))


def line(text: object) -> str:
    """Return the text on one line, with control characters escaped."""
    return _UNSAFE.sub(_escape, str(text))


def lines(text: str) -> str:
    """Return the text with its line breaks, and other control characters escaped."""
    return _UNSAFE_IN_LINES.sub(_escape, text.replace("\r\n", "\n")).expandtabs(4)


def compact(value: Any) -> str:
    """Return a JSON value on one line; an encoded one in words."""
    return line(_as_text(value, None))


def pretty(value: Any) -> str:
    """Return a JSON value on several lines; an encoded one in words."""
    return lines(_as_text(value, 2))


def _as_text(value: Any, indent: int | None) -> str:
    shown = readable(value)
    return shown if is_encoded(value) else json.dumps(shown, ensure_ascii=False, indent=indent)


def json_line(encoded: str) -> str:
    """Escape the control characters that JSON permits: the text stays on one line and is safe on a terminal."""
    if encoded.isascii() and "\x7f" not in encoded:
        return encoded
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", encoded)


def shorten(text: str, width: int) -> str:
    """Shorten the text to `width` characters, with an ellipsis."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def tags(names: Sequence[str]) -> str:
    """Return the tags of a task as one cell of a list, shortened; `dibs tasks show` prints them all."""
    return shorten(",".join(names), 40)


def exact(at: datetime | None) -> str:
    """Format a time in UTC, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else "-"


def relative(at: datetime | None, now: datetime | None = None) -> str:
    """Format a time relative to now: `5 s ago`, `in 2 h`."""
    if at is None:
        return "-"
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if -1 < seconds < 1:
        return "now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"


def duration(seconds: float) -> str:
    """Format a duration in its largest unit, rounded down."""
    unit, name = next((unit, name) for limit, unit, name in _STEPS if seconds < limit)
    return f"{int(seconds // unit)} {name}"


def count(number: int, what: str) -> str:
    """Format a number with its noun: `1 task`, `2 tasks`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def public_url(url: str) -> str:
    """Return the URL without its password and its options, which may contain a password."""
    return line(redact_url(url).replace(f":{MASK}@", "@").partition("?")[0])
