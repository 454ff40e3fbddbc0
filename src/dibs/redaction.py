"""Redaction of passwords, API keys and sessions in URLs and texts that are shown, logged or stored."""

from __future__ import annotations

import re

MASK = "***"

_URL_PASSWORD = re.compile(r"(?<=://)([^\s:/?#@\"'<>]*):[^\s/?#\"'<>]*@")
_KEY = re.compile(r"(dibs_[a-z2-7]{12}_)[A-Za-z0-9]+")
_SESSION = re.compile(r"(dibs_session=)[A-Za-z0-9_-]+")
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:pass|pwd|secret|key|token)[^=&]*=)[^&]*")
_ASSIGNED_SECRET = re.compile(
    r"""(?ix) (?<![a-z]) ((?: (?:pg|ssl)?password | passwd | pwd | api[_-]?key | secret | access_token) \s*=\s*)
    (?: '[^']*' | "[^"]*" | [^\s&;,'"<>)\]}]+ )"""
)


def redact(text: str) -> str:
    """Mask the secrets in the text: passwords in URLs, `password=…`, API keys, sessions.

    The time is linear in the length of the text, whatever the text contains.
    """
    if "=" in text:
        text = _ASSIGNED_SECRET.sub(rf"\1{MASK}", text)
    return redact_json(text)


def redact_json(text: str) -> str:
    """`redact` for a line of JSON: the result is still JSON, because no match extends beyond a quotation mark."""
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\1:{MASK}@", text)
    if "dibs_" in text:
        text = _SESSION.sub(rf"\1{MASK}", _KEY.sub(rf"\1{MASK}", text))
    return text


def redact_url(url: str) -> str:
    """Mask the password in a URL: in the user part and in parameters such as `?password=`.

    An invalid URL must not show a part of its password. So everything up to the last @ is the user part: a password
    with an unescaped /, ? or # would end it early.
    """
    scheme, found, rest = url.partition("://")
    user, at, place = rest.rpartition("@") if found else url.rpartition("@")
    if not found:
        return redact(f"{MASK}@{place}" if at else url)
    if ":" in user:
        user = f"{user.partition(':')[0]}:{MASK}"
    elif not at and (host := _host_of_bad_port(place)) is not None:
        place = f"{host}:{MASK}"
    return redact(_SECRET_PARAMETER.sub(rf"\1{MASK}", f"{scheme}://{user}{at}{place}"))


def _host_of_bad_port(place: str) -> str | None:
    """The text before an invalid port, such as `me` in `me:password`, where the host is missing; None if ports are
    valid."""
    hosts = re.sub(r"\[[^\]]*\]", "", re.split("[/?#]", place, maxsplit=1)[0])
    for each in hosts.split(","):
        host, _, port = each.partition(":")
        if port and not port.isdecimal():
            return host
    return None
