"""Text for people: what users sent is shown as text, and can neither colour, move nor forge anything."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from dibs.redaction import MASK, redact_url

# C0 and C1 controls, line separators, and what turns the direction of writing around.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))

_STEPS = ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (float("inf"), 86400, "d"))


def line(text: object) -> str:
    """The text on one line, with its control characters spelled out."""
    return _UNSAFE.sub(_spell, str(text))


def lines(text: str) -> str:
    """The text with its line breaks, and every other control character spelled out."""
    return _UNSAFE_IN_LINES.sub(_spell, text.replace("\r\n", "\n")).expandtabs(4)


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return line(json.dumps(value, ensure_ascii=False))


def pretty(value: Any) -> str:
    """A JSON value over several lines."""
    return lines(json.dumps(value, ensure_ascii=False, indent=2))


def json_line(encoded: str) -> str:
    """JSON with the control characters that it allows spelled out: one line for every reader, safe on a terminal."""
    if encoded.isascii() and "\x7f" not in encoded:
        return encoded
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded)


def shorten(text: str, width: int) -> str:
    """At most `width` characters, with a sign that something is missing."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def exact(at: datetime | None) -> str:
    """A time as a table shows it, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else "-"


def relative(at: datetime | None, now: datetime | None = None) -> str:
    """How long ago, or in how long."""
    if at is None:
        return "-"
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if -1 < seconds < 1:
        return "now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"


def duration(seconds: float) -> str:
    """A length of time in its largest unit, rounded down."""
    unit, name = next((unit, name) for limit, unit, name in _STEPS if seconds < limit)
    return f"{int(seconds // unit)} {name}"


def count(number: int, what: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _spell(found: re.Match[str]) -> str:
    code = ord(found[0])
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def public_url(url: str) -> str:
    """The URL without its password and its options, which may hold one."""
    return line(redact_url(url).replace(f":{MASK}@", "@").partition("?")[0])
