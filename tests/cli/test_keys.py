"""`dibs keys`: creates, lists and revokes keys, and shows each exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

import dibs
from dibs.model import key
from tests.cli.running import Run, run_dibs

WHOLE = "dibs_abcdefghijkl_" + "S3" * 21 + "x"
"""What looks like a key."""


def test_the_new_key_is_the_only_text_on_standard_output(run: Run, client: dibs.Dibs) -> None:
    made = run("keys", "create", "backup", "--scopes", "read")
    [line] = made.out.splitlines()
    parts = key.split(line)
    assert parts is not None
    [stored] = client.keys()
    assert stored.id == parts[0]
    assert made.code == 0
    assert made.err == f"Key {stored.id} for backup is created. Save it now: it is not shown again.\n"


def test_creating_a_key_for_a_worker_prints_a_hint_about_its_rate_limit(run: Run, client: dibs.Dibs) -> None:
    assert "--rate-limit none" in run("keys", "create", "worker", "--scopes", "work").err
    assert "--rate-limit" not in run("keys", "create", "worker", "--scopes", "work", "--rate-limit", "none").err


def test_the_options_of_keys_create_are_stored(run: Run, client: dibs.Dibs) -> None:
    options = [
        "--scopes",
        "work, enqueue",
        "--queues",
        "mail,media",
        "--rate-limit",
        "600/minute",
        "--expires-in",
        "90d",
    ]
    answer = run("keys", "create", "worker-7", *options, "--json").json
    [stored] = client.keys()
    assert (answer["success"], answer["id"], answer["name"]) == (True, stored.id, "worker-7")
    assert answer["scopes"] == ["enqueue", "work"]
    assert answer["queues"] == ["mail", "media"]
    assert answer["rate_limit"] == "600/minute"
    assert key.split(answer["key"])[0] == stored.id
    assert (stored.expires_at - stored.created_at).total_seconds() == 90 * 86400
    assert stored.rate_limit == dibs.RateLimit(600, 60)


def test_a_key_without_options_has_all_queues_the_standard_rate_and_no_expiry(run: Run) -> None:
    answer = run("keys", "create", "ci", "--scopes", "admin", "--json").json
    assert (answer["queues"], answer["rate_limit"], answer["expires_at"]) == (None, "100/minute", None)
    assert (
        run("keys", "create", "ci", "--scopes", "admin", "--rate-limit", "none", "--json").json["rate_limit"] == "none"
    )


def test_keys_are_listed_with_their_states_and_without_their_secrets(run: Run, client: dibs.Dibs) -> None:
    live = client.create_key("live", ["read", "work"], queues=["mail"])
    gone = client.create_key("gone", ["read"])
    client.revoke_key(gone.about.id)
    listed = run("keys", "list")
    _, first, second = listed.out.splitlines()
    assert first.split()[:5] == [live.about.id, "active", "live", "work,read", "mail"]
    assert second.split()[:5] == [gone.about.id, "revoked", "gone", "read", "all"]
    shapes = run("keys", "list", "--json")
    assert [each["id"] for each in shapes.json["keys"]] == [live.about.id, gone.about.id]
    for minted in (live, gone):
        _, secret = key.split(minted.key)
        for said in (listed.out, shapes.out):
            assert secret not in said
            assert key.digest_of(secret) not in said


def test_a_revoked_key_is_listed_as_revoked_and_stays_revoked(run: Run, client: dibs.Dibs) -> None:
    minted = client.create_key("ci", ["read"])
    done = run("keys", "revoke", minted.about.id)
    assert (done.code, done.out) == (0, f"Key {minted.about.id} for ci is revoked.\n")
    first = client.keys()[0].revoked_at
    assert first is not None
    again = run("keys", "revoke", minted.about.id, "--json").json
    assert again["success"] is True
    assert client.keys()[0].revoked_at == first


def test_an_unknown_key_is_refused(run: Run, client: dibs.Dibs) -> None:
    done = run("keys", "revoke", "abcdefghijkl", "--json")
    assert (done.code, done.json["code"]) == (1, "key_not_found")
    assert "abcdefghijkl" in done.json["error"]


def test_a_whole_key_given_for_its_id_is_refused_and_not_repeated(run: Run, client: dibs.Dibs) -> None:
    done = run("keys", "revoke", WHOLE)
    assert done.code == 1
    assert "S3S3" not in done.out + done.err


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--scopes", "read,write"],
        ["--scopes", ""],
        ["--scopes", "read", "--rate-limit", "600"],
        ["--scopes", "read", "--rate-limit", "0/minute"],
        ["--scopes", "read", "--rate-limit", "9/fortnight"],
        ["--scopes", "read", "--expires-in", "soon"],
        ["--scopes", "read", "--expires-in", "0d"],
        ["--scopes", "read", "--queues", "mail,"],
    ],
    ids=" ".join,
)
def test_invalid_options_of_keys_create_are_wrong_usage_and_create_no_key(
    run: Run, client: dibs.Dibs, options: list[str]
) -> None:
    done = run("keys", "create", "ci", *options)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert client.keys() == []


def test_keys_list_without_keys_prints_a_note(run: Run, client: dibs.Dibs) -> None:
    assert run("keys", "list").err == "No keys.\n"
    assert run("keys", "list", "--json").json == {"keys": []}


def test_keys_create_creates_the_database_and_keys_list_does_not(tmp_path: Path) -> None:
    assert run_dibs("keys", "list", cwd=tmp_path).code == 3
    assert list(tmp_path.iterdir()) == []
    assert run_dibs("keys", "create", "ci", "--scopes", "read", cwd=tmp_path).code == 0
    assert run_dibs("keys", "list", cwd=tmp_path).code == 0
