"""A visitor of the dashboard without a browser: signs in by the form, follows redirects, fills in forms."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.helpers.plain_http import NO_TLS

_CSRF = re.compile(r'<meta name="csrf" content="([0-9a-f]{64})">')


class Under(httpx.HTTPTransport):
    """To an application that lives under a path of its own, as if it were at the root."""

    def __init__(self, path: str) -> None:
        super().__init__(verify=NO_TLS)
        self._path = path.encode()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the path under the other one."""
        request.url = request.url.copy_with(raw_path=self._path + request.url.raw_path)
        answer = super().handle_request(request)
        request.url = request.url.copy_with(raw_path=request.url.raw_path.removeprefix(self._path))
        return answer


class Visitor:
    """One browser, with its own cookies."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.http = httpx.Client(
            base_url=f"{place.scheme}://{place.netloc}",
            transport=Under(place.path),
            follow_redirects=True,
            timeout=20,
            headers={"accept": "text/html"},
        )

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Open a page."""
        return self.http.get(path, **options)

    def post(self, path: str, csrf: str | None = None, **fields: Any) -> httpx.Response:
        """Send a form, with the token of this visitor unless another is given."""
        return self.http.post(path, data={"csrf": self.csrf() if csrf is None else csrf, **fields})

    def post_json(self, path: str, **fields: Any) -> httpx.Response:
        """Send a form as a script of the page does."""
        headers = {"accept": "application/json", "x-csrf-token": self.csrf()}
        return self.http.post(path, data=fields, headers=headers)

    def csrf(self) -> str:
        """The token in the pages of this visitor."""
        found = _CSRF.search(self.get("/signin").text)
        assert found is not None
        return found[1]

    def sign_in(self, key: str) -> httpx.Response:
        """Through the door."""
        return self.post("/signin", key=key)

    def close(self) -> None:
        """Close the browser."""
        self.http.close()


def text_of(page: httpx.Response) -> str:
    """The visible text of the page."""
    body = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", page.text)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))
