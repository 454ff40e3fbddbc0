"""API keys and rate limits: which requests are accepted, how often, and how soon a revoked key is refused."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import dibs
from dibs.model.key import digest_of, join, mint
from dibs.server import rate_limits
from tests.helpers.clients import Clock
from tests.helpers.tables import read
from tests.helpers.waiting import until
from tests.server.conftest import Served


def test_a_request_without_a_key_is_refused_with_a_hint(keyed: Served) -> None:
    answer = keyed.client().get("/api/tasks")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "ApiKey, Bearer"
    assert answer.json()["code"] == "unauthorized"
    assert "dibs keys create" in answer.json()["hint"]


@pytest.mark.parametrize("key", ["", "x", "dibs__", "dibs_abc_def", "dibs_" + "a" * 12 + "_" + "b" * 43, "\xff" * 20])
def test_a_malformed_key_in_a_header_is_refused(keyed: Served, key: str) -> None:
    answer = httpx.get(f"{keyed.url}/api/tasks", headers=[(b"x-api-key", key.encode("latin-1"))])
    assert answer.status_code == 401


def test_a_wrong_secret_with_a_right_id_is_refused(keyed: Served) -> None:
    good = keyed.key("read")
    assert keyed.client_with(**{"X-API-Key": good.key}).get("/api/tasks").status_code == 200
    wrong = join(good.about.id, mint()[1])
    assert keyed.client_with(**{"X-API-Key": wrong}).get("/api/tasks").status_code == 401
    assert keyed.client_with(**{"X-API-Key": good.key}).get("/api/tasks").status_code == 200


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
def test_a_key_can_be_sent_as_a_bearer_token(keyed: Served, app: dibs.Dibs, kind: str) -> None:
    key = keyed.key("enqueue", queues=["mine"])
    client = keyed.client_with(Authorization=f"{kind} {key.key}")
    answer = client.post("/api/tasks", json={"task_type": "a", "queue": "mine"})
    assert answer.status_code == 201
    assert app.history(answer.json()["task"]["id"])[0].by == key.about.id
    assert client.post("/api/tasks", json={"task_type": "a", "queue": "theirs"}).json()["code"] == "queue_not_allowed"
    assert client.get("/api/tasks").json()["code"] == "forbidden"


def test_a_bearer_token_is_checked_like_any_key(keyed: Served, app: dibs.Dibs) -> None:
    good, gone = keyed.key("read"), keyed.key("read")
    app.revoke_key(gone.about.id)
    wrong, unknown = join(good.about.id, mint()[1]), join(*mint()[:2])
    refused = [f"Bearer {wrong}", f"Bearer {unknown}", f"Bearer {gone.key}", f"Bearer {good.key} x", "Bearer"]
    for words in (*refused, good.key, f"Basic {good.key}", f"Bearer{good.key}", f"xBearer {good.key}"):
        answer = keyed.client_with(Authorization=words).get("/api/tasks")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), words
    assert keyed.client_with(Authorization=f"Bearer {good.key}").get("/api/tasks").status_code == 200


def test_a_bearer_token_that_was_revoked_during_a_wait_gets_no_task(keyed: Served, app: dibs.Dibs) -> None:
    key = keyed.key("work")
    client = keyed.client_with(Authorization=f"Bearer {key.key}")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/api/tasks/claim", json={"worker_id": "w", "wait_seconds": 20})
        until(lambda: keyed.service.long_polls.waiting == 1)
        app.revoke_key(key.about.id)
        until(lambda: client.get("/api/tasks/next-due").status_code == 401, timeout=3)
        app.enqueue("resize")
        assert waiting.result().status_code == 401


def test_a_proxys_own_authorization_does_not_hide_the_key(keyed: Served) -> None:
    key, other = keyed.key("read").key, join(*mint()[:2])
    for words in ("Basic dXNlcjpwYXNz", f"Bearer {other}", "Bearer of-another-house"):
        client = keyed.client_with(**{"X-API-Key": key, "Authorization": words})
        assert client.get("/api/tasks").status_code == 200
    mixed = keyed.client_with(**{"X-API-Key": other, "Authorization": f"Bearer {key}"})
    assert mixed.get("/api/tasks").status_code == 401, "the key in X-API-Key is the one that counts"


def test_the_history_names_the_key(keyed: Served, app: dibs.Dibs) -> None:
    key = keyed.key("enqueue")
    task_id = (
        keyed.client_with(**{"X-API-Key": key.key}).post("/api/tasks", json={"task_type": "a"}).json()["task"]["id"]
    )
    signed = keyed.client_with(**{"X-API-Key": key.key, "X-Dibs-Signature": "importer"})
    signed.post(f"/api/tasks/{task_id}/cancel")
    assert [entry.by for entry in app.history(task_id)] == [key.about.id, f"{key.about.id}/importer"]


def test_requests_of_several_keys_at_once_are_each_signed_by_their_own(keyed: Served, app: dibs.Dibs) -> None:
    keys = [keyed.key("enqueue") for _ in range(8)]
    clients = [keyed.client_with(**{"X-API-Key": key.key}) for key in keys]
    line = threading.Barrier(8)

    def send(number: int) -> list[int]:
        line.wait()
        return [clients[number].post("/api/tasks", json={"task_type": "a"}).json()["task"]["id"] for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(send, range(8)))
    for key, ids in zip(keys, sent, strict=True):
        assert {app.history(task_id)[0].by for task_id in ids} == {key.about.id}


def test_a_revoked_key_is_refused_at_once_by_the_server_that_revoked_it(keyed: Served) -> None:
    admin, key = keyed.client("admin"), keyed.key("read")
    client = keyed.client_with(**{"X-API-Key": key.key})
    assert client.get("/api/tasks").status_code == 200
    assert admin.delete(f"/api/keys/{key.about.id}").status_code == 200
    assert client.get("/api/tasks").status_code == 401


def test_a_key_that_was_revoked_by_another_process_is_refused_within_a_second(keyed: Served, app: dibs.Dibs) -> None:
    key = keyed.key("read")
    client = keyed.client_with(**{"X-API-Key": key.key})
    assert client.get("/api/tasks").status_code == 200
    app.revoke_key(key.about.id)
    until(lambda: client.get("/api/tasks").status_code == 401, timeout=2)


def test_a_key_that_was_revoked_during_a_wait_gets_no_task(keyed: Served, app: dibs.Dibs) -> None:
    key = keyed.key("work")
    client = keyed.client_with(**{"X-API-Key": key.key})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/api/tasks/claim", json={"worker_id": "w", "wait_seconds": 20})
        until(lambda: keyed.service.long_polls.waiting == 1)
        app.revoke_key(key.about.id)
        until(lambda: client.get("/api/tasks/next-due").status_code == 401, timeout=3)
        task = app.enqueue("resize")
        assert waiting.result().status_code == 401
    after = app.get(task.id)
    assert after is not None
    assert (after.state, after.attempts) == ("pending", 0)


def test_a_key_expires_by_the_clock_of_the_database(serve: Callable[..., Served], clock: Clock, url: str) -> None:
    server = serve(keys=True, clock=clock)
    with dibs.Dibs(url, clock=clock) as app:
        key = app.create_key("short", ["read"], rate_limit="none", expires_in=60)
    client = server.client_with(**{"X-API-Key": key.key})
    assert client.get("/api/tasks").status_code == 200
    clock.advance(61)
    until(lambda: client.get("/api/tasks").status_code == 401, timeout=3)


def test_the_last_use_of_a_key_is_stored(keyed: Served, app: dibs.Dibs) -> None:
    key = keyed.key("read")
    keyed.client_with(**{"X-API-Key": key.key}).get("/api/tasks")
    assert key.about.last_used_at is None
    until(lambda: [each.last_used_at for each in dibs.Dibs.keys(app) if each.id == key.about.id] != [None], timeout=15)


def test_a_secret_is_nowhere_in_the_database(keyed: Served, url: str) -> None:
    key = keyed.key("read")
    keyed.client_with(**{"X-API-Key": key.key}).get("/api/tasks")
    stored = str(read(url)["dibs_keys"])
    assert key.about.id in stored
    assert key.key.rsplit("_", 1)[1] not in stored
    assert digest_of(key.key.rsplit("_", 1)[1]) in stored


# Limits


def test_a_rate_limit_is_exact_and_returns_retry_after(keyed: Served) -> None:
    client = keyed.client("read", rate_limit="25/hour")
    answers = [client.get("/api/tasks") for _ in range(40)]
    assert [answer.status_code for answer in answers] == [200] * 25 + [429] * 15
    last = answers[-1]
    assert 3500 < int(last.headers["retry-after"]) <= 3600
    assert last.json()["code"] == "rate_limited"


def test_the_standard_rate_limit_is_a_hundred_a_minute(keyed: Served, app: dibs.Dibs) -> None:
    key = app.create_key("standard", ["read"])
    client = keyed.client_with(**{"X-API-Key": key.key})
    assert Counter(client.get("/api/tasks").status_code for _ in range(120)) == {200: 100, 429: 20}


def test_an_idle_worker_does_not_spend_its_rate_limit_on_wake_ups(keyed: Served) -> None:
    key = keyed.key("enqueue", "work", "read", rate_limit="60/hour")
    with dibs.Dibs(keyed.url, api_key=key.key) as far:
        handler = far.task(name="work")(lambda: None)
        handler.enqueue()
        assert far.worker(burst=True).run() == 0
    assert keyed.client_with(**{"X-API-Key": key.key}).get("/api/tasks").status_code == 200


@pytest.mark.parametrize("limit", ["100/hour", "1000/hour"])
def test_a_rate_limit_holds_across_equally_loaded_servers_within_one_percent(
    serve: Callable[..., Served], app: dibs.Dibs, limit: str
) -> None:
    servers = [serve(keys=True), serve(keys=True)]
    key = app.create_key("shared", ["read"], rate_limit=limit).key
    most = int(limit.partition("/")[0])

    def ask(number: int) -> int:
        client = servers[number % 2].client_with(**{"X-API-Key": key})
        return sum(client.get("/api/tasks?limit=1").status_code == 200 for _ in range(most // 3))

    with ThreadPoolExecutor(6) as pool:
        granted = sum(pool.map(ask, range(6)))
    assert most * 0.99 <= granted <= most


def test_a_new_window_begins_after_the_old_one_has_ended(serve: Callable[..., Served], app: dibs.Dibs) -> None:
    client = serve(keys=True).client("read", rate_limit="3/second")
    assert [client.get("/api/tasks").status_code for _ in range(4)] == [200, 200, 200, 429]
    until(lambda: client.get("/api/tasks").status_code == 200, timeout=3)


def test_requests_with_a_revoked_key_do_not_count_as_guesses(keyed: Served, app: dibs.Dibs) -> None:
    key = keyed.key("read")
    app.revoke_key(key.about.id)
    late = keyed.client_with(**{"X-API-Key": key.key})
    statuses = {
        late.get("/api/tasks").status_code for _ in range(rate_limits.MAX_FAILURES // rate_limits.GUESS_COST + 5)
    }
    assert statuses == {401}
    assert keyed.client("read").get("/api/tasks").status_code == 200, "a new key from the same address is heard"


def test_an_address_that_guesses_keys_is_blocked_and_valid_keys_from_it_are_not(keyed: Served) -> None:
    good = keyed.client("read")
    assert good.get("/api/tasks").status_code == 200
    guessing = keyed.client_with(**{"X-API-Key": join(*mint()[:2])})
    most = rate_limits.MAX_FAILURES // rate_limits.GUESS_COST
    statuses = [guessing.get("/api/tasks").status_code for _ in range(most + 5)]
    assert statuses == [401] * most + [429] * 5
    assert good.get("/api/tasks").status_code == 200
    assert keyed.client().get("/api/tasks").status_code == 429


def test_requests_without_a_key_are_blocked_later_than_guesses() -> None:
    strangers = rate_limits.FailedAuthLimits()
    for _ in range(rate_limits.MAX_FAILURES - 1):
        strangers.failed("192.0.2.1", guessed=False)
    assert not strangers.blocked("192.0.2.1")
    strangers.failed("192.0.2.1", guessed=False)
    assert strangers.blocked("192.0.2.1")


def test_ipv6_addresses_of_one_subnet_count_as_one() -> None:
    strangers = rate_limits.FailedAuthLimits()
    for number in range(rate_limits.MAX_FAILURES):
        strangers.failed(f"2001:db8::{number:x}", guessed=False)
    assert strangers.blocked("2001:db8::ffff")
    assert not strangers.blocked("2001:db8:0:1::1")
    assert not strangers.blocked("192.0.2.1")
