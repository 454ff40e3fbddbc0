"""Render templates to HTML. All values are escaped: data of a task is never markup."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dibs.encoded import describe_text
from dibs.server.dashboard.assets import asset
from dibs.server.dashboard.texts import DASH, seconds, shorten, visible
from dibs.version import __version__

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


def number(value: float | None) -> str:
    """Format a number with thousands separators: 1,234,567."""
    return DASH if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
