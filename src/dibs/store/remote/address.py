"""The address of the server, and the API key, which is sent to this server only."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import httpx

from dibs.errors import InvalidValue
from dibs.redaction import redact_url
from dibs.store.remote.request import HttpCall
from dibs.version import __version__
from dibs.wire.errors import KEY_HINT

CONNECT, ANSWER = 5.0, 30.0
"""Seconds to connect to the server, and to wait for its answer in addition to the requested wait."""

_VISIBLE = re.compile("[!-~]+")


class Address:
    """The URL of the server and the API key. No error and no repr shows the key."""

    def __init__(self, url: str, api_key: str | None) -> None:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise InvalidValue("The server's URL carries a name or a password.", hint=KEY_HINT)
        if not parts.hostname or parts.query or parts.fragment or not _has_valid_port(url):
            raise InvalidValue(
                f"{redact_url(url)!r} is not the URL of a server.", hint="Use http://host:8787 or https://host."
            )
        if api_key is not None and (type(api_key) is not str or not _VISIBLE.fullmatch(api_key)):
            raise InvalidValue("The API key is not valid.", hint="A key looks like dibs_<id>_<secret>.")
        self.host = parts.netloc
        self._secure = parts.scheme == "https"
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._key = api_key

    def __repr__(self) -> str:
        return f"Address({self._base!r})"

    def url(self, call: HttpCall) -> str:
        """The URL of the call."""
        return self._base + call.path

    def client_options(self) -> dict[str, Any]:
        """The options of the HTTP client: no redirects and no proxy, so that the key reaches this server only."""
        headers = {"Accept": "application/json", "User-Agent": f"dibs/{__version__}"}
        if self._key is not None:
            headers["X-API-Key"] = self._key
        # Without TLS there is nothing to verify, and reading the certificates takes some 20 ms.
        verify = httpx.create_ssl_context() if self._secure else False
        return {"headers": headers, "verify": verify, "trust_env": False, "follow_redirects": False}


def request_options(call: HttpCall, by: str | None) -> dict[str, Any]:
    """The options of a request: body, signature and timeout."""
    headers: dict[str, str | bytes] = {}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if by is not None and (signature := by.strip(" ")):  # HTTP strips spaces around the value of a header
        headers["X-Dibs-Signature"] = signature.encode()
    timeout = httpx.Timeout(ANSWER, connect=CONNECT, read=ANSWER + call.wait)
    return {"content": call.body, "headers": headers, "timeout": timeout}


def _has_valid_port(url: str) -> bool:
    try:
        httpx.URL(url)
        return urlsplit(url).port != 0
    except (ValueError, httpx.InvalidURL):
        return False
