"""How tests read the pages of the admin, and submit their forms."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.test import Client

KINDS = ("task", "deadtask", "queue", "workflow", "schedule", "worker", "limit")


def address(kind: str, key: object = None) -> str:
    """The URL of a list, or of the page of an object."""
    return f"/admin/dibs/{kind}/" if key is None else f"/admin/dibs/{kind}/{key}/change/"


def read(client: Client, url: str, status: int = 200) -> str:
    """The page as text, without markup."""
    return text_of(markup(client, url, status))


def markup(client: Client, url: str, status: int = 200) -> str:
    """The page."""
    response = client.get(url)
    assert response.status_code == status, response.content.decode()[-2000:]
    return response.content.decode()


def text_of(page: str) -> str:
    """The text of a page."""
    content = page.partition('id="content-main"')[2] or page
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", content)))


def ids(page: str) -> list[int]:
    """The ids of the tasks that a list shows."""
    return [int(each) for each in re.findall(r'name="_selected_action" value="(\d+)"', page)]


def older(page: str) -> str:
    """The query string of the next page; empty on the last one."""
    found = re.search(r'href="(\?[^"]*)" class="dibs-older"', page)
    return "" if found is None else unescape(found[1])


def rows(client: Client, url: str) -> list[int]:
    """The ids of the tasks in the list."""
    return ids(markup(client, url))


def act(client: Client, url: str, action: str, *keys: object, sure: bool = True) -> list[str]:
    """Choose an action, in a list for the rows with these keys. Returns what the user is told."""
    data: dict[str, Any] = {"action": action, "_selected_action": [str(key) for key in keys]}
    response = client.post(url, {**data, **({"sure": "yes"} if sure else {})})
    assert response.status_code == 302, (response.status_code, text_of(response.content.decode()))
    shown = client.get(response["Location"]).content.decode()
    messages = re.search(r'<ul class="messagelist">(.*?)</ul>', shown, re.DOTALL)
    return [] if messages is None else [text_of(each).strip() for each in messages[1].split("</li>")[:-1]]


def csrf_of(page: str) -> str:
    """The CSRF token of Django in the forms of a page."""
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found is not None
    return found[1]
