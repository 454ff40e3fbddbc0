"""Values as HTML for the pages of the admin. All texts of tasks are escaped, and hidden characters are made visible."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote, unquote
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from dibs.server.dashboard.texts import DASH, Excerpt, shorten, visible

Html = str
"""Text that Django does not escape again (SafeString)."""


def text(value: Any, length: int = 120) -> Html:
    """Return a text of a user, shortened; a dash for None."""
    return soft(DASH) if value is None else format_html("{}", visible(shorten(str(value), length)))


def soft(value: str) -> Html:
    """Return a text in the quiet colour of the admin."""
    return format_html('<span class="quiet">{}</span>', value)


def moment(at: datetime | None) -> Html:
    """Return a time in the current time zone of Django."""
    if at is None:
        return soft(DASH)
    local = timezone.localtime(at)
    day, hour = f"{local:%Y-%m-%d}", f"{local:%H:%M:%S}"
    return format_html(
        '<time datetime="{}" title="{}"><span>{}</span> {}</time>', at.isoformat(), local.tzname(), day, hour
    )


def badge(state: str, label: str | None = None) -> Html:
    """Return a state; its class has the colour."""
    return format_html('<span class="dibs-state dibs-{}">{}</span>', state, label or state)


def source(declared: Any) -> Html:
    """Return where a limit or schedule was set: in code, or by hand."""
    hand = "hand, instead of the code" if declared.overridden else "hand"
    return text("code" if declared.source == "code" else hand)


def pre(value: str, note: str = "") -> Html:
    """Return a text of many lines as it is; `note`: a remark under the text."""
    under = format_html('<p class="help">{}</p>', note) if note else ""
    return format_html('<pre class="dibs-text" dir="ltr">{}</pre>{}', visible(value), under)


def excerpt(value: Excerpt, more: str) -> Html:
    """Return the beginning of a text; `more`: where the rest is."""
    return pre(value.text, f"Only the first {len(value.text):,} characters are shown. {more}" if value.cut else "")


def link(address: str, label: Any) -> Html:
    """Return a link with a text of a user."""
    return format_html('<a href="{}">{}</a>', address, text(label))


def lines(parts: Iterable[Any]) -> Html:
    """Return parts of HTML, one below the other."""
    return format_html_join("", "<div>{}</div>", ((part,) for part in parts))


def listed(parts: Iterable[Any]) -> Html:
    """Return parts of HTML beside each other; a dash if there is none."""
    return format_html_join(" ", "{}", ((part,) for part in parts)) or soft(DASH)


def nonce_of(request: Any) -> Html:
    """Return the attribute that allows a style sheet or script, if the project has Django's content security policy."""
    nonce = getattr(request, "_csp_nonce", None)  # as django.middleware.csp.get_nonce, which is new in Django 6
    return "" if nonce is None else format_html(' nonce="{}"', nonce)


def list_url(site: str, model: Any, **query: Any) -> str:
    """Return the URL of the list of a kind, with filters."""
    options = model._meta
    address = reverse(f"{site}:{options.app_label}_{options.model_name}_changelist")
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{address}?{urlencode(given)}" if given else address


def object_url(site: str, model: Any, key: Any) -> str:
    """Return the URL of the page of an object. In a path, a browser would resolve a name such as `..`."""
    options = model._meta
    escaped = quote(str(key)).replace(".", "_2E")
    return reverse(f"{site}:{options.app_label}_{options.model_name}_change", args=[escaped])


def key_of(path: str) -> str:
    """Return the id or name in the path of the page of an object."""
    return str(unquote(path.replace("_2E", ".")))
