"""The text of API keys: its format, its parser, and that nothing ever shows its secret."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from dibs import ApiKey, InvalidValue, MintedKey, RateLimit, Scope
from dibs.model.key import (
    STANDARD_LIMIT,
    UNKNOWN_KEY_DIGEST,
    NewKey,
    is_key_id,
    join,
    matches,
    mint,
    read_limit,
    split,
    write_limit,
)

NOW = datetime(2025, 11, 12, tzinfo=UTC)
SECRET = "s" * 43


def a_key(**changes: Any) -> ApiKey:
    key = ApiKey("abcdefghijkl", "ci", (Scope.READ,), None, STANDARD_LIMIT, NOW, digest="d" * 64)
    return msgspec.structs.replace(key, **changes)


# Minting


def test_a_new_key_is_parsed_into_its_parts() -> None:
    key_id, secret, digest = mint()
    assert split(join(key_id, secret)) == (key_id, secret)
    assert digest == hashlib.sha256(secret.encode()).hexdigest()
    assert is_key_id(key_id)


def test_two_new_keys_share_no_part() -> None:
    minted = [mint() for _ in range(1000)]
    for part in range(3):
        assert len({each[part] for each in minted}) == 1000


def test_a_secret_has_256_bits_and_no_character_that_would_split_it() -> None:
    secrets = [mint()[1] for _ in range(200)]
    used = set("".join(secrets))
    assert all(secret.isascii() and secret.isalnum() for secret in secrets)
    assert len(used) == 62
    assert {len(secret) for secret in secrets} == {43}
    assert len(used) ** 43 >= 2**256


# Splitting and comparing


@given(some.one_of(some.text(), some.binary(), some.integers(), some.none(), some.floats(), some.lists(some.text())))
def test_malformed_text_is_not_parsed_as_a_key(text: Any) -> None:
    assert split(text) is None


WHOLE = join("abcdefghijkl", SECRET)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dibs_",
        "dibs__",
        WHOLE[:-1],
        WHOLE + "s",
        WHOLE + "\n",
        " " + WHOLE,
        WHOLE.upper(),
        WHOLE.replace("dibs", "bids"),
        WHOLE.replace("abc", "ab1"),
        WHOLE.replace("s" * 43, "s" * 42 + "é"),
        WHOLE.replace("s" * 43, "s" * 42 + "٣"),  # a digit, but not ours
        WHOLE.replace("s" * 43, "s" * 42 + "\udcff"),
        WHOLE.replace("s" * 43, "s" * 42 + "\x00"),
        "dibs_" + "a" * 1_000_000,
    ],
)
def test_text_that_resembles_a_key_is_not_parsed_as_a_key(text: str) -> None:
    assert split(text) is None


def test_a_secret_matches_its_own_digest_and_no_other() -> None:
    _, secret, digest = mint()
    assert matches(secret, digest)
    assert not matches(secret[:-1], digest)
    assert not matches(mint()[1], digest)
    assert not matches(secret, UNKNOWN_KEY_DIGEST)
    assert not matches("\udcff", digest)


# Scopes and queues


@pytest.mark.parametrize("scope", Scope)
def test_the_scope_admin_allows_everything(scope: Scope) -> None:
    assert a_key(scopes=(Scope.ADMIN,)).allows(scope)


@pytest.mark.parametrize("scope", [Scope.ENQUEUE, Scope.WORK, Scope.ADMIN])
def test_a_key_allows_only_its_scopes(scope: Scope) -> None:
    assert a_key().allows(Scope.READ)
    assert not a_key().allows(scope)


def test_a_key_limited_to_queues_covers_no_other_queue() -> None:
    limited = a_key(queues=("mail",))
    assert limited.serves("mail")
    assert not limited.serves("mail2")
    assert a_key().serves("anything")


def test_a_key_is_live_until_it_expires_or_is_revoked() -> None:
    assert a_key().live
    assert a_key(seconds_left=0.1).live
    assert a_key(seconds_left=0.0).expired
    assert not a_key(seconds_left=-5.0).live
    assert not a_key(revoked_at=NOW).live


# Nothing is shown


def test_neither_the_key_nor_its_digest_is_shown() -> None:
    key = a_key()
    minted = MintedKey(WHOLE, key)
    for shown in (repr(key), str(key), repr(minted), str(minted), f"{[minted]}"):
        assert "sss" not in shown
        assert "ddd" not in shown


# Rate limits


@pytest.mark.parametrize("text", ["1/second", "600/minute", "100/minute", "5000/hour", "1000000/day"])
def test_a_rate_limit_is_formatted_as_it_was_parsed(text: str) -> None:
    limit = read_limit(text)
    assert limit is not None
    assert str(limit) == write_limit(limit) == text


def test_the_word_none_means_no_rate_limit() -> None:
    assert read_limit("none") is None
    assert write_limit(None) == "none"


def test_the_standard_rate_is_a_hundred_a_minute() -> None:
    assert STANDARD_LIMIT == read_limit("100/minute") == RateLimit(100, 60.0)


@pytest.mark.parametrize(
    "text",
    ["", "600", "/minute", "0/minute", "-1/minute", "1.5/minute", "600/min", "600/ minute", "٣/minute", "1/minute\n",
     "9999999999/minute", "None", None, 600, b"600/minute", "9" * 5000 + "/minute"],
)  # fmt: skip
def test_a_malformed_rate_limit_is_refused(text: Any) -> None:
    with pytest.raises(InvalidValue):
        read_limit(text)


@pytest.mark.parametrize("values", [(0, 60), (1.5, 60), (True, 60), (1, 0), (1, 61), (1, float("nan")), (1, "minute")])
def test_a_rate_limit_out_of_bounds_is_refused(values: Any) -> None:
    with pytest.raises(InvalidValue):
        RateLimit(*values)


# Descriptions of new keys


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "two\nlines"},
        {"name": "x" * 256},
        {"scopes": []},
        {"scopes": "read"},
        {"scopes": ["write"]},
        {"scopes": [None]},
        {"scopes": [["read"]]},
        {"scopes": None},
        {"queues": []},
        {"queues": "mail"},
        {"queues": [""]},
        {"rate_limit": "100/minute"},
        {"expires_in": 0},
        {"expires_in": -1},
        {"expires_in": float("nan")},
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001
        {"expires_at": "2030-01-01"},
        {"expires_at": NOW, "expires_in": 5},
    ],
    ids=str,
)
def test_an_invalid_description_of_a_key_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        NewKey(**{"name": "ci", "scopes": ["read"], **changes})


def test_a_key_may_be_described_in_full() -> None:
    new = NewKey(
        name="ci", scopes=[Scope.READ, "work"], queues=["mail"], rate_limit=None, expires_at=NOW + timedelta(days=1)
    )
    assert new.scopes == ["read", "work"]
