"""From a template to the bytes of a page: everything that comes from a task is text, never markup."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dibs.server.dashboard.assets import asset
from dibs.version import __version__

NOTHING = "\N{EN DASH}"
FIRST = ("base.html", "parts.html", "signin.html", "overview.html")
HTML = (b"content-type", b"text/html; charset=utf-8")


def render(template: str, **context: Any) -> bytes:
    """The page."""
    text = _pages().get_template(template).render(context)
    return text.encode("utf-8", errors="replace")  # half of a surrogate pair in a task's text is no reason to fail


def prepare() -> None:
    """Make every template ready, those first that are shown first: a page would wait for it, and mostly for that."""
    asset("dibs.css")
    for name in (*FIRST, *_pages().list_templates()):
        _pages().get_template(name)


@cache
def _pages() -> Environment:
    pages = Environment(
        loader=PackageLoader("dibs.server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # a server shows the pages it was started with, whatever an upgrade does to the files
    )
    pages.globals |= {"asset": asset, "version": __version__, "now": lambda: datetime.now(UTC)}
    pages.filters |= {"moment": moment, "number": number, "seconds": seconds, "shorten": shorten, "visible": visible}
    return pages


def moment(at: datetime | None) -> str:
    """A time as people say it, kept up to date by the page; the exact one is in its title."""
    if at is None:
        return Markup('<span class="soft">{}</span>').format(NOTHING)
    exact = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}Z" title="{} UTC">{}</time>').format(
        at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f"), exact, _ago((datetime.now(UTC) - at).total_seconds())
    )


def _ago(passed: float) -> str:
    text = seconds(abs(passed), rough=True)
    if abs(passed) < 1:
        return "now"
    return f"{text} ago" if passed > 0 else f"in {text}"


def seconds(value: float | None, *, rough: bool = False) -> str:
    """A duration: 3 ms, 1.2 s, 4 min 10 s, 3 h 5 min, 2 d 4 h; rough ones have one unit."""
    if value is None:
        return NOTHING
    if value < 60:
        if rough:
            return f"{int(value)} s"
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if value >= size:
            rest = int(value % size // smaller)
            return f"{int(value // size)} {unit}" + (f" {rest} {name}" if rest and not rough else "")
    raise AssertionError(value)


def number(value: float | None) -> str:
    """1,234,567."""
    return NOTHING if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def shorten(text: str, length: int = 120) -> str:
    """The beginning of a long text."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def visible(text: str) -> str:
    """Control characters as the signs that stand for them: a browser would swallow them, or turn the line around."""
    if text.isprintable():  # as nearly all are; none of those characters is
        return text
    return "".join(_shown(sign) for sign in text)


def _shown(sign: str) -> str:
    code = ord(sign)
    if code < 32 and sign not in "\n\t":
        return chr(0x2400 + code)
    if unicodedata.category(sign) in _UNSEEN and sign not in "\n\t":
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return sign


_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Kinds of signs that nobody sees, that turn the direction of writing around, or that stand for half a sign."""
