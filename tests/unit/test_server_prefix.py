"""The prefix of a mounted server: what is removed from the path of a request."""

from __future__ import annotations

import time

import pytest

from dibs.server.prefix import add_prefix, prefix, remove_prefix


def removed(path: str, root: str) -> tuple[str, str]:
    scope = remove_prefix({"type": "http", "path": "decoded", "raw_path": path.encode(), "root_path": root})
    return scope["raw_path"].decode(), prefix(scope)


@pytest.mark.parametrize(
    ("path", "root", "rest", "link"),
    [
        ("/queue/tasks", "/queue", "/tasks", "/queue"),
        ("/queue", "/queue", "/", "/queue"),
        ("/queue/", "/queue/", "/", "/queue"),
        ("/queue/queues/a%2Fb", "/queue", "/queues/a%2Fb", "/queue"),
        ("/%71ueue/tasks", "/queue", "/tasks", "/queue"),
        ("/b%C3%BCro/tasks", "/büro", "/tasks", "/b%C3%BCro"),
        ("/shop/queue/tasks", "/shop/queue", "/tasks", "/shop/queue"),
        ("/queue/tasks", "/shop/queue", "/tasks", "/shop/queue"),
        ("/tasks", "/shop", "/tasks", "/shop"),
        ("/queues", "/queue", "/queues", "/queue"),
        ("/tasks", "", "/tasks", ""),
        ("//evil.example/queue/tasks", "//evil.example/queue", "/tasks", "/evil.example/queue"),
        ('/a"b/queue/tasks', '/a"b/queue', "/tasks", "/a%22b/queue"),
    ],
)
def test_the_rest_of_a_path_stays_encoded_and_links_have_the_whole_prefix(
    path: str, root: str, rest: str, link: str
) -> None:
    assert removed(path, root) == (rest, link)


def test_a_path_of_many_parts_is_not_compared_as_a_whole() -> None:
    began = time.process_time()
    removed("/queue" + "/" * 60_000, "/a/long/prefix/of/a/proxy/queue")
    assert time.process_time() - began < 0.5


def test_only_links_of_the_markup_get_the_prefix() -> None:
    page = b'<a href="/tasks">/tasks</a><p title="/x"> href=&#34;/y</p><a href="#main"><img src="/static/i.svg">'
    assert add_prefix(page, "/queue") == page.replace(b'"/tasks', b'"/queue/tasks').replace(b'"/st', b'"/queue/st')
    assert add_prefix(page, "") is page
