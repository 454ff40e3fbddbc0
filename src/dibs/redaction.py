"""Redaction: what is shown, logged or stored of a URL or a text that may hold a password, an API key or a session."""

from __future__ import annotations

import re

MASK = "***"

_USERINFO = re.compile(r"(?<=://)([^\s:/?#@\"'<>]*):[^\s/?#\"'<>]*@")
_KEY = re.compile(r"(dibs_[a-z2-7]{12}_)[A-Za-z0-9]+")
_SESSION = re.compile(r"(dibs_session=)[A-Za-z0-9_-]+")
_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:pass|pwd|secret|key|token)[^=&]*=)[^&]*")
_ASSIGNED = re.compile(
    r"""(?ix) (?<![a-z]) ((?: (?:pg|ssl)?password | passwd | pwd | api[_-]?key | secret | access_token) \s*=\s*)
    (?: '[^']*' | "[^"]*" | [^\s&;,'"<>)\]}]+ )"""
)


def redact(text: str) -> str:
    """The text without the secrets that can be recognised in it: passwords in URLs, `password=…`, API keys, sessions.

    It takes time in proportion to the text, whatever the text holds.
    """
    if "=" in text:
        text = _ASSIGNED.sub(rf"\1{MASK}", text)
    return redact_encoded(text)


def redact_encoded(text: str) -> str:
    """`redact` for a line of JSON, which stays JSON: nothing beyond a quotation mark is touched."""
    if "://" in text:
        text = _USERINFO.sub(rf"\1:{MASK}@", text)
    if "dibs_" in text:
        text = _SESSION.sub(rf"\1{MASK}", _KEY.sub(rf"\1{MASK}", text))
    return text


def redact_url(url: str) -> str:
    """The URL with its password masked, in the user's part and in parameters such as `?password=`.

    A wrong URL shows no part of its password either. So everything up to the last @ counts as the user's part: a
    password with an unescaped /, ? or # would end it early.
    """
    scheme, found, rest = url.partition("://")
    user, at, place = rest.rpartition("@") if found else url.rpartition("@")
    if not found:
        return redact(f"{MASK}@{place}" if at else url)
    if ":" in user:
        user = f"{user.partition(':')[0]}:{MASK}"
    elif not at and (host := _host_of_bad_port(place)) is not None:
        place = f"{host}:{MASK}"
    return redact(_PARAMETER.sub(rf"\1{MASK}", f"{scheme}://{user}{at}{place}"))


def _host_of_bad_port(place: str) -> str | None:
    """What stands before something that cannot be a port: `me:password`, with the host forgotten."""
    hosts = re.sub(r"\[[^\]]*\]", "", re.split("[/?#]", place, maxsplit=1)[0])
    for each in hosts.split(","):
        host, _, port = each.partition(":")
        if port and not port.isdecimal():
            return host
    return None
