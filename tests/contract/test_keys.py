"""API keys: created and shown once, stored as a digest only, and refused for good after they expire or are revoked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import dibs
from dibs import InvalidValue, KeyNotFound, MintedKey, RateLimit, Scope
from dibs.model import key
from dibs.wire.keys import Key
from tests.helpers import tables
from tests.helpers.clients import Clock, run
from tests.helpers.tasks import moment

Look = Callable[[MintedKey], dibs.ApiKey]


@pytest.fixture
def stored(url: str, clock: Clock) -> Iterator[Look]:
    """What the database itself knows about a key."""
    with dibs.Dibs(url, clock=clock) as database:

        def look(minted: MintedKey) -> dibs.ApiKey:
            found: dibs.ApiKey | None = run(database, database._store.keys.get_key(minted.about.id))
            assert found is not None
            return found

        yield look


def test_a_key_is_stored_as_it_was_described(app: Any, clock: Clock, stored: Look) -> None:
    made = app.signed("ops").create_key(
        "ci", ["read", "enqueue", "read"], queues=["mail", "media", "mail"], rate_limit="7/second", expires_in=60
    )
    about = made.about
    assert about.name == "ci"
    assert about.scopes == (Scope.ENQUEUE, Scope.READ)
    assert about.queues == ("mail", "media")
    assert about.rate_limit == RateLimit(7, 1)
    assert (about.created_at, about.created_by) == (moment(clock), "ops")
    assert about.expires_at == moment(clock) + timedelta(seconds=60)
    assert (about.revoked_at, about.last_used_at) == (None, None)
    assert stored(made).seconds_left == 60.0
    assert Key.from_model(stored(made)) == Key.from_model(about)
    assert list(map(Key.from_model, app.keys())) == [Key.from_model(about)]


def test_a_key_by_default_has_all_queues_no_expiry_and_the_standard_rate(app: Any) -> None:
    about = app.create_key("ci", ["admin"]).about
    assert (about.queues, about.expires_at) == (None, None)
    assert about.rate_limit == RateLimit(100, 60)
    assert about.created_by is None
    assert app.create_key("ci", ["admin"], rate_limit="none").about.rate_limit is None


def test_the_text_of_a_key_authenticates_the_key(app: Any, stored: Look) -> None:
    one, other = app.create_key("one", ["read"]), app.create_key("other", ["read"])
    key_id, secret = key.split(one.key)
    assert key_id == one.about.id
    assert key.matches(secret, stored(one).digest)
    assert not key.matches(secret, stored(other).digest)


def test_the_secret_is_nowhere_in_the_database(app: Any, url: str) -> None:
    _, secret = key.split(app.create_key("ci", ["read"]).key)
    assert secret not in repr(tables.read(url))
    assert key.digest_of(secret) in repr(tables.read(url))


def test_keys_are_listed_oldest_first_also_after_expiry_and_revocation(app: Any, clock: Clock) -> None:
    made = []
    for name in ("a", "b", "c"):
        made.append(app.create_key(name, ["read"], expires_in=1).about.id)
        clock.advance(1)
    app.revoke_key(made[1])
    listed = app.keys()
    assert [each.id for each in listed] == made


@pytest.mark.parametrize("name", ["ci", "Ops' key; --", "müller ☃", "x" * 255])
def test_a_key_name_may_be_any_single_line_and_several_keys_may_have_it(app: Any, name: str) -> None:
    ids = {app.create_key(name, ["read"]).about.id for _ in range(2)}
    assert len(ids) == 2
    listed = app.keys()
    assert [each.name for each in listed] == [name, name]


# Expiry


def test_a_key_expires_by_the_clock_of_the_database(app: Any, clock: Clock, stored: Look) -> None:
    made = app.create_key("ci", ["read"], expires_in=10)
    clock.advance(9.999999)
    assert stored(made).live
    assert stored(made).seconds_left == pytest.approx(0.000001)
    clock.advance(0.000001)
    assert stored(made).expired
    clock.advance(100)
    assert stored(made).seconds_left == -100
    [listed] = app.keys()
    assert listed.expires_at == stored(made).expires_at


def test_a_key_may_expire_at_a_given_time(app: Any, clock: Clock, stored: Look) -> None:
    at = moment(clock) + timedelta(days=90, microseconds=1)
    made = app.create_key("ci", ["read"], expires_at=at)
    assert made.about.expires_at == at
    assert stored(made).seconds_left == 90 * 86400 + 0.000001


# Revoking


def test_a_revoked_key_keeps_the_time_of_the_first_revocation(app: Any, clock: Clock, stored: Look) -> None:
    made = app.create_key("ci", ["read"])
    clock.advance(5)
    revoked = app.revoke_key(made.about.id)
    assert revoked.revoked_at == moment(clock)
    assert not revoked.live
    clock.advance(5)
    assert app.revoke_key(made.about.id).revoked_at == revoked.revoked_at
    assert stored(made).revoked_at == revoked.revoked_at


def test_revoking_one_key_leaves_the_others_alone(app: Any, stored: Look) -> None:
    one, other = app.create_key("one", ["read"]), app.create_key("other", ["read"])
    app.revoke_key(one.about.id)
    assert [each.live for each in (stored(one), stored(other))] == [False, True]


@pytest.mark.parametrize("key_id", ["abcdefghijkl", "", "x", "ABCDEFGHIJKL", "\x00", None, 7, "' OR 1=1 --"])
def test_a_key_that_does_not_exist_is_not_found_and_changes_nothing(app: Any, url: str, key_id: Any) -> None:
    app.create_key("ci", ["read"])
    before = tables.read(url)
    with pytest.raises(KeyNotFound) as refused:
        app.revoke_key(key_id)
    assert refused.value.code == "key_not_found"
    assert tables.read(url) == before


@pytest.mark.database("only a server looks keys up")
@pytest.mark.parametrize("key_id", ["abcdefghijkl", "", "\x00", None, 7, "' OR 1=1 --", "x" * 100_000])
def test_reading_a_key_that_does_not_exist_finds_nothing(app: Any, key_id: Any) -> None:
    app.create_key("ci", ["read"])
    assert run(app, app._store.keys.get_key(key_id)) is None


def test_a_whole_key_given_for_its_id_is_not_repeated_in_the_error(app: Any) -> None:
    made = app.create_key("ci", ["read"])
    with pytest.raises(KeyNotFound) as refused:
        app.revoke_key(made.key)
    assert key.split(made.key)[1] not in str(refused.value)


# Use


@pytest.mark.database("only a server notes that keys are used")
def test_the_last_use_of_many_keys_is_stored_in_one_call(app: Any, clock: Clock, stored: Look) -> None:
    made = [app.create_key(f"key-{n}", ["read"]) for n in range(3)]
    clock.advance(60)
    run(app, app._store.keys.note_keys_used([made[0].about.id, made[2].about.id, "abcdefghijkl"]))
    assert [stored(each).last_used_at for each in made] == [moment(clock), None, moment(clock)]
    run(app, app._store.keys.note_keys_used([]))


def test_a_refused_description_creates_no_key(app: Any) -> None:
    for wrong in ({"scopes": []}, {"scopes": ["everything"]}, {"rate_limit": "fast"}, {"queues": []}):
        with pytest.raises(InvalidValue):
            app.create_key(**{"name": "ci", "scopes": ["read"], **wrong})
    assert app.keys() == []


def test_other_processes_are_notified_of_new_and_revoked_keys(app: Any, url: str, open_app: Callable[..., Any]) -> None:
    wakeups = open_app(url)._store.wakeups
    wakeups.wait(wakeups.generation, 0.01)  # from now on it watches
    for change in (lambda: app.create_key("ci", ["read"]), lambda: app.revoke_key(app.keys()[0].id)):
        for _ in range(100):  # what came before the watcher was ready is not heard: only a hint
            seen = wakeups.generation
            change()
            wakeups.wait(seen, 0.5)
            if wakeups.generation > seen:
                break
        else:
            pytest.fail("Nobody was woken.")
