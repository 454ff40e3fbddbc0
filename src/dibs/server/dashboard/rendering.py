"""Render templates to HTML. All values are escaped: data of a task is never markup."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dibs.encoded import describe_text
from dibs.server.dashboard.assets import asset
from dibs.version import __version__

DASH = "\N{EN DASH}"
FIRST_TEMPLATES = ("base.html", "macros.html", "signin.html", "overview.html")
HTML = (b"content-type", b"text/html; charset=utf-8")


def render(template: str, **context: Any) -> bytes:
    """Render a template."""
    text = _pages().get_template(template).render(context)
    return text.encode("utf-8", errors="replace")  # a lone surrogate in the text of a task must not fail the page


def prepare() -> None:
    """Compile all templates at the start, so that the first requests do not wait for it."""
    asset("dibs.css")
    for name in (*FIRST_TEMPLATES, *_pages().list_templates()):
        _pages().get_template(name)


@cache
def _pages() -> Environment:
    pages = Environment(
        loader=PackageLoader("dibs.server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # an upgrade of the files must not change a running server
    )
    pages.globals |= {"asset": asset, "version": __version__, "now": lambda: datetime.now(UTC)}
    pages.filters |= {"moment": moment, "number": number, "seconds": seconds, "shorten": shorten, "visible": visible}
    pages.filters["described"] = describe_text
    return pages


def moment(at: datetime | None) -> str:
    """Return a relative time, which a script keeps up to date, with the exact time in its title."""
    if at is None:
        return Markup('<span class="soft">{}</span>').format(DASH)
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
    """Format a duration: 3 ms, 1.2 s, 4 min 10 s, 3 h 5 min, 2 d 4 h. `rough`: only one unit."""
    if value is None:
        return DASH
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
    """Format a number with thousands separators: 1,234,567."""
    return DASH if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def shorten(text: str, length: int = 120) -> str:
    """Shorten a long text."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def visible(text: str) -> str:
    """Replace control characters by visible symbols: a browser would hide them or change the direction of the text."""
    if text.isprintable():  # the fast path for nearly all texts
        return text
    return "".join(_shown(sign) for sign in text)


def _shown(sign: str) -> str:
    code = ord(sign)
    if code < 32 and sign not in "\n\t":
        return chr(0x2400 + code)
    if unicodedata.category(sign) in _INVISIBLE and sign not in "\n\t":
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return sign


_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of invisible characters, direction marks and lone surrogates."""
