"""Sessions: found by their digest until they end by the clock of the database, and then deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dibs import InvalidValue
from dibs.model.key import BrowserSession
from tests.helpers.clients import Clock, run
from tests.helpers.databases import run_sql
from tests.helpers.tasks import moment

pytestmark = pytest.mark.database("only a server asks for these, and it has a database")

HOUR = 3600 * 1_000_000


def create(app: Any, digest: str, key_id: str = "k" * 12, lifetime: int = HOUR) -> None:
    run(app, app._store.keys.create_session(digest, key_id, lifetime))


def get(app: Any, digest: str) -> BrowserSession | None:
    found: BrowserSession | None = run(app, app._store.keys.get_session(digest))
    return found


def test_a_session_is_found_by_its_digest_until_its_end(app: Any, clock: Clock) -> None:
    create(app, "aaa", "key-1")
    create(app, "bbb", "key-2", 2 * HOUR)
    assert get(app, "aaa") == BrowserSession("key-1", moment(clock) + timedelta(hours=1))
    clock.advance(3599.999999)
    assert get(app, "aaa") is not None
    clock.advance(0.000001)
    assert get(app, "aaa") is None
    assert get(app, "bbb") == BrowserSession("key-2", moment(clock) + timedelta(hours=1))


def test_an_unknown_digest_is_not_a_session(app: Any) -> None:
    create(app, "aaa")
    for other in ("AAA", "aa", "", "%", "'"):
        assert get(app, other) is None


def test_an_ended_session_is_gone_and_cannot_be_ended_again(app: Any) -> None:
    create(app, "aaa")
    create(app, "bbb")
    assert [run(app, app._store.keys.end_session(digest)) for digest in ("aaa", "aaa", "zzz")] == [True, False, False]
    assert (get(app, "aaa"), get(app, "bbb") is None) == (None, False)


def test_storing_the_same_session_again_changes_nothing(app: Any, clock: Clock) -> None:
    create(app, "aaa", "key-1")
    before = get(app, "aaa")
    clock.advance(60)
    create(app, "aaa", "key-2", 5 * HOUR)
    assert get(app, "aaa") == before


def test_sessions_past_their_end_are_pruned_the_oldest_first_and_others_are_not(
    app: Any, url: str, clock: Clock
) -> None:
    for n in range(5):
        create(app, f"d{n}", lifetime=(5 - n) * HOUR)
    assert run(app, app._store.keys.prune_sessions(10)) == 0
    clock.advance(4 * 3600)
    assert run(app, app._store.keys.prune_sessions(1)) == 1
    assert run_sql(url, "SELECT digest FROM dibs_sessions ORDER BY digest") == [("d0",), ("d1",), ("d2",), ("d3",)]
    assert [run(app, app._store.keys.prune_sessions(10)) for _ in range(2)] == [3, 0]
    assert run_sql(url, "SELECT digest FROM dibs_sessions") == [("d0",)]


@pytest.mark.parametrize("lifetime", [0, -1, 1.5, None, 2**60])
def test_an_invalid_lifetime_is_refused(app: Any, lifetime: Any) -> None:
    with pytest.raises(InvalidValue):
        app._store.keys.create_session("aaa", "key-1", lifetime)
