"""A server with its dashboard before a new database of each engine, and visitors who signed in.

`site.visitor("read", queues=["a"])` has a new key of these scopes, `site.visitor()` stands at the door.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.browsing import Visitor
from tests.server.conftest import Served


class Site:
    """A running server and its visitors."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._visitors: list[Visitor] = []

    def visitor(self, *scopes: str, **options: Any) -> Visitor:
        """A visitor signed in with a new key; options as for create_key."""
        visitor = Visitor(self.served.url)
        self._visitors.append(visitor)
        if scopes:
            answer = visitor.sign_in(self.served.key(*scopes, **options).key)
            assert answer.url.path != "/signin", answer.text
        return visitor

    def close(self) -> None:
        """Close all visitors."""
        for visitor in self._visitors:
            visitor.close()


@pytest.fixture
def site(keyed: Served) -> Iterator[Site]:
    """A server that asks for keys."""
    site = Site(keyed)
    yield site
    site.close()
