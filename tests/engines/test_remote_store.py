"""The remote store on a bad connection: which requests are repeated, which are not, and that the key stays secret.

The promises of a store are tested in tests/contract, over HTTP as on every engine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.model.claim import ClaimRequest
from dibs.redaction import redact
from dibs.server.config import ServerConfig
from dibs.store.remote import conversation
from dibs.store.remote.request import FILL, get, split
from dibs.store.remote.store import RemoteStore
from tests.helpers import forking
from tests.helpers.clients import run
from tests.helpers.proxy import Proxy
from tests.helpers.retention import keep
from tests.helpers.scripted import Scripted, says
from tests.helpers.tasks import events
from tests.helpers.waiting import let_pass, until

NOWHERE = "http://127.0.0.1:9"
KEYED = ServerConfig(port=0, access_log=False, upkeep=False)
KEY = "dibs_abcdefghijkl_" + "S3cret" * 7 + "x"


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The URL of the database behind the server."""
    return f"sqlite:///{tmp_path}/dibs.db"


@pytest.fixture
def direct(database: str) -> Iterator[dibs.Dibs]:
    """A client of the database itself."""
    with dibs.Dibs(database) as app:
        yield app


@pytest.fixture
def server(server_host: Any, database: str) -> Iterator[str]:
    """The URL of a server."""
    with server_host.serving(database) as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    """A line to the server that can be bad."""
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def app(proxy: Proxy, open_app: Callable[..., Any]) -> Any:
    """A client of the server, sync and async, over that line."""
    return open_app(proxy.url)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon."""
    monkeypatch.setattr(conversation, "PATIENCE", 0.3)


# An answer is lost: what may be repeated is repeated, and has one effect


def test_an_enqueue_with_a_key_is_repeated_and_stores_one_task(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    proxy.lose_answers()
    task = app.enqueue("resize", {"image": 7}, key="image-7")
    assert proxy.lost == 1
    assert [each.id for each in direct.list_tasks()] == [task.id]
    assert events(direct, task.id) == ["enqueued"]


def test_a_replacement_is_repeated_and_counts_once(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    unique = {"key": "page-7", "key_scope": "until_started", "on_conflict": "replace"}
    first = direct.enqueue("index", {"n": 1}, **unique)
    proxy.lose_answers(2)
    task = app.enqueue("index", {"n": 2}, **unique)
    assert proxy.lost == 2
    assert (task.id, task.replaced, task.params) == (first.id, True, {"n": 2})
    assert events(direct, task.id) == ["enqueued", "replaced"]


def test_an_enqueue_that_refuses_a_used_key_is_repeated_and_does_not_refuse_its_own_task(
    app: Any, proxy: Proxy, direct: dibs.Dibs
) -> None:
    proxy.lose_answers()
    task = app.enqueue("index", key="page-7", on_conflict="raise")
    assert proxy.lost == 1
    assert [each.id for each in direct.list_tasks()] == [task.id]


def test_a_batch_with_keys_is_repeated_and_stores_each_task_once(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    proxy.lose_answers(3)
    tasks = app.enqueue_many([dibs.NewTask("resize", {"image": n}, key=f"image-{n}") for n in range(50)])
    assert proxy.lost == 3
    assert sorted(task.id for task in direct.list_tasks()) == [task.id for task in tasks]


def test_a_claim_is_repeated_and_takes_what_it_took(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    direct.enqueue_many([dibs.NewTask("resize") for _ in range(10)])
    proxy.lose_answers(2)
    claims = app.claim_many("worker-1", 4)
    assert proxy.lost == 2
    assert len(claims) == 4
    assert Counter(task.state.value for task in direct.list_tasks()) == {"claimed": 4, "pending": 6}
    assert {claim.token for claim in claims} == {1}


def test_an_outcome_is_repeated_and_written_once(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    direct.enqueue("resize")
    claim = app.claim("worker-1")
    proxy.lose_answers()
    finished = app.complete(claim, {"width": 800})
    assert finished.repeated
    assert direct.get(claim.task_id).result == {"width": 800}  # type: ignore[union-attr]
    assert events(direct, claim.task_id) == ["enqueued", "claimed", "completed"]


def test_an_exchange_is_repeated_and_has_one_effect(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    direct.enqueue_many([dibs.NewTask("resize") for _ in range(3)])
    first = app.claim("worker-1")
    proxy.lose_answers()
    store = (app.app if hasattr(app, "app") else app)._store
    [finished], [second] = run(
        app, store.queue.exchange([(first, dibs.Completed(1))], ClaimRequest(worker_id="worker-1"))
    )
    assert proxy.lost == 1
    assert (finished.state, finished.repeated) == ("completed", True)
    assert second.task_id != first.task_id
    assert Counter(task.state.value for task in direct.list_tasks()) == {"completed": 1, "claimed": 1, "pending": 1}


SAFE: dict[str, Callable[[Any, dibs.Claim], Any]] = {
    "get": lambda app, claim: app.get(claim.task_id),
    "list": lambda app, claim: app.list_tasks(),
    "stats": lambda app, claim: app.stats(),
    "renew": lambda app, claim: app.renew(claim),
    "progress": lambda app, claim: app.progress(claim, 50),
    "release": lambda app, claim: app.release(claim),
    "fail": lambda app, claim: app.fail(claim, "no", permanent=True),
    "cancel": lambda app, claim: app.cancel(claim.task_id),
    "pause": lambda app, claim: app.pause("default"),
    "heartbeat": lambda app, claim: app.heartbeat("worker-1"),
    "schedule": lambda app, claim: app.set_schedule("nightly", "0 3 * * *", "clean"),
    "type": lambda app, claim: app.register_type("resize", {"type": "object"}),
}


@pytest.mark.parametrize("verb", SAFE)
def test_a_request_that_is_safe_to_repeat_is_repeated_silently(
    app: Any, proxy: Proxy, direct: dibs.Dibs, verb: str
) -> None:
    direct.enqueue("resize")
    claim = app.claim("worker-1")
    proxy.lose_answers()
    SAFE[verb](app, claim)
    assert proxy.lost == 1


# An answer is lost: what may not be repeated is unknown


def test_an_enqueue_without_a_key_is_not_repeated_and_its_outcome_is_unknown(
    app: Any, proxy: Proxy, direct: dibs.Dibs
) -> None:
    proxy.lose_answers()
    with pytest.raises(dibs.OutcomeUnknown, match="same key or token"):
        app.enqueue("resize")
    assert len(direct.list_tasks()) == 1


def test_a_batch_in_which_one_task_has_no_key_is_not_repeated(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    proxy.lose_answers()
    with pytest.raises(dibs.OutcomeUnknown):
        app.enqueue_many([dibs.NewTask("resize", key="one"), dibs.NewTask("resize")])
    assert len(direct.list_tasks()) == 2


UNSAFE: dict[str, Callable[[Any, int], Any]] = {
    "retry": lambda app, task_id: app.retry(task_id),
    "redrive": lambda app, task_id: app.redrive(),
    "run_schedule": lambda app, task_id: app.run_schedule("nightly"),
    "create_key": lambda app, task_id: app.create_key("one", ["read"]),
}


@pytest.mark.parametrize("verb", UNSAFE)
def test_a_request_that_is_not_safe_to_repeat_is_sent_once_and_its_outcome_is_unknown(
    app: Any, proxy: Proxy, direct: dibs.Dibs, verb: str
) -> None:
    task = direct.enqueue("resize")
    direct.set_schedule("nightly", "0 3 * * *", "clean")
    direct.fail(direct.claim("worker-1"), "no", permanent=True)  # type: ignore[arg-type]
    proxy.lose_answers()
    with pytest.raises(dibs.OutcomeUnknown):
        UNSAFE[verb](app, task.id)
    done = {
        "retry": lambda: events(direct, task.id).count("retried"),
        "redrive": lambda: events(direct, task.id).count("retried"),
        "run_schedule": lambda: len(direct.list_tasks(type="clean")),
        "create_key": lambda: len(direct.keys()),
    }
    assert done[verb]() == 1


# The server cannot be reached


def test_a_request_that_was_never_sent_is_always_repeated(proxy: Proxy, app: Any, direct: dibs.Dibs) -> None:
    proxy.refuse()
    with ThreadPoolExecutor(1) as pool:
        enqueued = pool.submit(app.enqueue, "resize")
        with pytest.raises(TimeoutError):
            enqueued.result(timeout=0.2)
        proxy.accept()
        task = enqueued.result(timeout=30)
    assert [each.id for each in direct.list_tasks()] == [task.id]


@pytest.mark.usefixtures("impatient")
def test_a_server_that_cannot_be_reached_is_unavailable(proxy: Proxy, app: Any) -> None:
    proxy.refuse()
    began = time.monotonic()
    with pytest.raises(dibs.StoreUnavailable, match="cannot be reached"):
        app.enqueue("resize")
    assert time.monotonic() - began < 5


@pytest.mark.usefixtures("impatient")
def test_the_outcome_of_a_write_whose_responses_are_all_lost_is_unknown(
    proxy: Proxy, app: Any, direct: dibs.Dibs
) -> None:
    proxy.lose_answers(1000)
    with pytest.raises(dibs.OutcomeUnknown):
        app.enqueue("resize", key="image-7")
    assert len(direct.list_tasks()) == 1


@pytest.mark.usefixtures("impatient")
def test_a_read_whose_responses_are_all_lost_is_unavailable(proxy: Proxy, app: Any) -> None:
    proxy.lose_answers(1000)
    with pytest.raises(dibs.StoreUnavailable):
        app.get(1)


# The server answers that it is not available now


def pending(task_id: int = 1) -> dict[str, Any]:
    """A task as the server shows it."""
    at = "2025-11-12T10:30:00.123456Z"
    return {
        "id": task_id, "task_type": "resize", "status": "pending", "params": {}, "priority": 0, "attempts": 0,
        "max_attempts": 3, "worker_id": None, "claimed_at": None, "created_at": at, "queue": "default", "token": 0,
        "lease_until": None, "run_at": at, "finished_at": None, "timeout_seconds": None, "idempotency_key": None,
        "type_version": None, "dropped": 0, "cancel_requested": False, "progress": None, "progress_message": None,
        "result": None, "error": None, "workflow_id": None,
    }  # fmt: skip


def refuses(status: int, code: str, **headers: str) -> Any:
    """An answer with an error of dibs."""
    return says(status, {"success": False, "error": f"Because of {code}.", "code": code}, **headers)


ENQUEUED = says(201, {"success": True, "task": pending(), "deduplicated": False, "replaced": False})


def test_a_retry_after_of_the_server_is_respected(open_app: Callable[..., Any]) -> None:
    with Scripted(refuses(429, "rate_limited", Retry_After="1"), ENQUEUED) as server:
        began = time.monotonic()
        assert open_app(server.url).enqueue("resize").id == 1
        assert time.monotonic() - began >= 1.0
        assert len(server.asked) == 2


def test_waiting_for_a_retry_after_is_logged_once(
    open_app: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    limited = refuses(429, "rate_limited", Retry_After="0")
    with Scripted(limited, limited, ENQUEUED) as server:
        assert open_app(server.url).enqueue("resize").id == 1
    told = [record for record in caplog.records if record.name == "dibs.remote"]
    assert [record.levelname for record in told] == ["WARNING"]
    assert "rate limit" in told[0].getMessage()


def test_a_retry_after_that_is_too_long_is_an_error_at_once(open_app: Callable[..., Any]) -> None:
    with Scripted(refuses(429, "rate_limited", Retry_After="61")) as server:
        with pytest.raises(dibs.RateLimited, match="61 seconds"):
            open_app(server.url).enqueue("resize")
        assert len(server.asked) == 1


@pytest.mark.parametrize("code", ["store_busy", "store_unavailable", "stopping"])
def test_a_request_that_the_server_did_not_process_is_repeated(open_app: Callable[..., Any], code: str) -> None:
    with Scripted(refuses(503, code, Retry_After="0"), ENQUEUED) as server:
        assert open_app(server.url).enqueue("resize").id == 1


@pytest.mark.usefixtures("impatient")
def test_a_store_that_stays_busy_is_reported_as_busy(open_app: Callable[..., Any]) -> None:
    with Scripted(refuses(503, "store_busy", Retry_After="0")) as server, pytest.raises(dibs.StoreBusy):
        open_app(server.url).enqueue("resize")


@pytest.mark.parametrize("answer", [says(502, "<h1>Bad Gateway</h1>"), refuses(503, "outcome_unknown")])
def test_a_request_with_an_unknown_outcome_is_repeated_only_if_that_is_safe(
    open_app: Callable[..., Any], answer: Any
) -> None:
    with Scripted(answer, ENQUEUED) as server:
        assert open_app(server.url).enqueue("resize", key="image-7").id == 1
    with Scripted(answer, ENQUEUED) as server:
        with pytest.raises(dibs.OutcomeUnknown):
            open_app(server.url).enqueue("resize")
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer", [says(200, "<h1>Welcome</h1>"), says(200, {"hello": 1}), says(404, "nothing"), says(500, "oops")]
)
def test_a_response_that_is_not_from_dibs_is_reported_as_such(open_app: Callable[..., Any], answer: Any) -> None:
    with Scripted(answer) as server:
        app = open_app(server.url)
        for ask in (
            lambda: app.get(1),
            lambda: app.claim("worker-1"),
            lambda: app.pause("default"),
            lambda: app.heartbeat("worker-1"),
            lambda: app.remove_schedule("nightly"),
            app.migrate,
        ):
            with pytest.raises(dibs.StoreError, match="not understood"):
                ask()


def test_a_claim_and_its_repetition_have_one_request_id_and_the_next_claim_another(
    open_app: Callable[..., Any],
) -> None:
    filters = {"task_types": None, "max_attempts_remaining": None}
    empty = says(404, {"success": False, "message": "No pending tasks available", "filters": filters})
    with Scripted(refuses(503, "stopping", Retry_After="0"), empty) as server:
        app = open_app(server.url)
        assert app.claim("worker-1") is None
        assert app.claim("worker-1") is None
        first, again, second = (json.loads(body)["request_id"] for _, _, _, body in server.asked)
    assert first == again != second


# The key


def test_a_redirect_is_not_followed_and_the_key_is_not_sent(open_app: Callable[..., Any]) -> None:
    with Scripted(ENQUEUED) as other, Scripted(says(307, "", Location=f"{other.url}/api/tasks")) as server:
        with pytest.raises(dibs.StoreError, match="redirect"):
            open_app(server.url, api_key=KEY).enqueue("resize")
        assert [headers["x-api-key"] for _, _, headers, _ in server.asked] == [KEY]
        assert other.asked == []


def test_a_proxy_of_the_environment_does_not_get_the_key(
    open_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scripted(ENQUEUED) as gateway, Scripted(ENQUEUED) as server:
        monkeypatch.setenv("HTTP_PROXY", gateway.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        open_app(server.url, api_key=KEY).enqueue("resize")
        assert (len(server.asked), len(gateway.asked)) == (1, 0)


def test_the_key_comes_from_the_environment_if_it_is_not_given(
    open_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIBS_API_KEY", KEY)
    with Scripted(ENQUEUED) as server:
        open_app(server.url).enqueue("resize")
        open_app(server.url, api_key="another").enqueue("resize")
        assert [headers["x-api-key"] for _, _, headers, _ in server.asked] == [KEY, "another"]


def test_a_key_that_was_given_with_one_url_does_not_go_to_another() -> None:
    with Scripted(ENQUEUED) as server, dibs.Dibs(NOWHERE, api_key=KEY) as app:
        app.use_url(server.url)
        app.enqueue("resize")
        assert "x-api-key" not in server.asked[0][2]


@pytest.mark.usefixtures("impatient")
def test_the_key_is_shown_nowhere(
    open_app: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    seen = []
    answers = (refuses(401, "unauthorized"), says(502, "no"), says(200, "no"), refuses(500, "internal_error"))
    for answer in answers:
        with Scripted(answer) as server:
            app = open_app(server.url, api_key=KEY)
            with pytest.raises(dibs.DibsError) as raised:
                app.enqueue("resize")
            seen += [str(raised.value), repr(raised.value), repr(app), repr(app._store), repr(vars(app._store))]
    with pytest.raises(dibs.StoreUnavailable) as unreachable:
        open_app(NOWHERE, api_key=KEY).enqueue("resize")
    with pytest.raises(dibs.InvalidValue) as malformed:
        open_app(NOWHERE, api_key=f"{KEY}\n")
    seen += [str(unreachable.value), str(malformed.value), caplog.text]
    assert "S3cret" not in "".join(seen)
    assert "HTTP Request" in caplog.text  # the log was read, and has an entry


def test_an_unknown_key_is_reported_as_not_allowed(
    server_host: Any, database: str, open_app: Callable[..., Any]
) -> None:
    with server_host.serving(database, KEYED) as url:
        with pytest.raises(dibs.NotAllowed, match="DIBS_API_KEY") as raised:
            open_app(url).get(1)
        assert raised.value.code == "unauthorized"
        with pytest.raises(dibs.NotAllowed):
            open_app(url, api_key=KEY).get(1)


def test_the_error_of_a_key_without_the_scope_names_the_missing_scope(
    server_host: Any, database: str, direct: dibs.Dibs, open_app: Callable[..., Any]
) -> None:
    key = direct.create_key("reader", ["read"]).key
    with server_host.serving(database, KEYED) as url:
        with pytest.raises(dibs.NotAllowed, match="enqueue") as raised:
            open_app(url, api_key=key).enqueue("resize")
        assert raised.value.code == "forbidden"
        assert raised.value.hint


def test_the_signature_and_the_key_are_in_the_history(
    server_host: Any, database: str, direct: dibs.Dibs, open_app: Callable[..., Any]
) -> None:
    minted = direct.create_key("everything", ["admin"])
    with server_host.serving(database, KEYED) as url:
        task = open_app(url, api_key=minted.key).signed("Zoë & Söhne").enqueue("resize")
    assert [entry.by for entry in direct.history(task.id)] == [f"{minted.about.id}/Zoë & Söhne"]


# What is refused before anything is sent


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a clock": (lambda: dibs.Dibs(NOWHERE, clock=lambda: 1), "the server's database has the clock"),
    "a key for a file": (lambda: dibs.Dibs("sqlite:///x.db", api_key=KEY), "API key is for the URL of a server"),
    "a password in the URL": (lambda: dibs.Dibs("http://me:secret@host"), "carries a name or a password"),
    "no host": (lambda: dibs.Dibs("http://"), "is not the URL of a server"),
    "a query": (lambda: dibs.Dibs("https://host?x=1"), "is not the URL of a server"),
    "a port that is none": (lambda: dibs.Dibs("http://host:99999"), "is not the URL of a server"),
    "a connection": (lambda: dibs.Dibs(NOWHERE).on(object()).enqueue("resize"), "cannot join your transaction"),
    "a value": (lambda: dibs.Dibs(NOWHERE).enqueue("resize", {"x": float("nan")}), "params.x is nan"),
    "a result": (
        lambda: dibs.Dibs(NOWHERE).complete(dibs.ClaimRef(1, 1, "worker-1"), {1, 2}),
        "result is a set, which is not JSON",
    ),
    "a large result": (
        lambda: dibs.Dibs(NOWHERE).complete(dibs.ClaimRef(1, 1, "worker-1"), "x" * (2**20 - 100)),
        "takes 1,048,",
    ),
    "a large task": (lambda: dibs.Dibs(NOWHERE).enqueue("resize", {"x": "x" * (2**20 - 20)}), "not fit one request"),
    "many tasks": (
        lambda: dibs.Dibs(NOWHERE).enqueue_many([dibs.NewTask("resize")] * 1001),
        "These 1,001 tasks do not fit one request",
    ),
    "a large batch": (
        lambda: dibs.Dibs(NOWHERE).enqueue_many([dibs.NewTask("resize", {"x": "x" * 600_000})] * 2),
        "These 2 tasks do not fit one request",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_argument_is_refused_before_anything_is_sent(what: str) -> None:
    do, why = REFUSED[what]
    began = time.monotonic()
    with pytest.raises(dibs.InvalidValue) as raised:
        do()
    assert why in raised.value.message
    assert "secret" not in str(raised.value).lower()
    assert time.monotonic() - began < 10  # no request was sent: there is no server


def test_without_httpx_the_error_names_the_extra_to_install() -> None:
    program = "import sys; sys.modules['httpx'] = None; import dibs; dibs.Dibs('http://host')"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert "InvalidValue" in ended.stderr
    assert "pip install 'dibs[http]'" in ended.stderr


# Many at once


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([1], [(0, 1)]),
        ([1] * 1000, [(0, 1000)]),
        ([1] * 2500, [(0, 1000), (1000, 2000), (2000, 2500)]),
        ([FILL, FILL, 1], [(0, 1), (1, 2), (2, 3)]),
        ([FILL * 2, 1, FILL * 2], [(0, 1), (1, 2), (2, 3)]),
        ([FILL // 2, FILL // 4, FILL // 2], [(0, 2), (2, 3)]),
    ],
)
def test_many_entries_are_split_by_number_and_size(sizes: list[int], parts: list[tuple[int, int]]) -> None:
    assert split(sizes, 1000) == parts


def test_more_outcomes_than_one_request_takes_are_all_written(app: Any, direct: dibs.Dibs) -> None:
    direct.enqueue_many([dibs.NewTask("resize") for _ in range(2100)])
    claims = [claim for worker in ("a", "b", "a") for claim in app.claim_many(worker, 700)]
    answers = app.finish([(claim, dibs.Completed("x" * 1000)) for claim in claims])
    assert [answer.task_id for answer in answers] == [claim.task_id for claim in claims]
    assert direct.stats().depth == {"completed": 2100}


def test_each_outcome_of_a_batch_has_its_own_reply(app: Any, direct: dibs.Dibs) -> None:
    direct.enqueue_many([dibs.NewTask("resize") for _ in range(3)])
    good, lost, bad = app.claim_many("worker-1", 3)
    app.release(lost)
    answers = app.finish([(bad, dibs.Completed({1})), (good, dibs.Completed(1)), (lost, dibs.Completed(1))])
    assert [type(answer) for answer in answers] == [dibs.InvalidValue, dibs.Finished, dibs.ClaimLost]
    assert (answers[2].task_id, answers[2].token) == (lost.task_id, lost.token)


# Names that are hard on URLs


@pytest.mark.parametrize("name", ["a/b", ".", "..", "%2F", "ä ö?x=1#y", "a+b&c", "日本"])
def test_a_name_may_contain_the_special_characters_of_urls(app: Any, direct: dibs.Dibs, name: str) -> None:
    app.pause(name)
    assert [(queue.name, queue.paused) for queue in direct.queues()] == [(name, True)]
    app.set_schedule(name, "0 3 * * *", "clean")
    assert app.get_schedule(name).name == name
    assert app.register_type(name, {"type": "object"}) == app.get_type(name)
    app.enqueue(name, queue=name)
    assert [task.type for task in app.list_tasks(type=name, queue=name)] == [name]


# Wake-ups and waiting


def test_a_waiting_call_is_woken_by_changes_of_other_clients(
    server: str, direct: dibs.Dibs, open_app: Callable[..., Any]
) -> None:
    wakeups = open_app(server)._store.wakeups
    wakeups.wait(wakeups.generation, 60.0)  # it listens
    seen = wakeups.generation
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wakeups.wait, seen, 30.0)
        with dibs.Dibs(server) as other:
            other.enqueue("resize")
        waiting.result(timeout=30)
    assert wakeups.generation > seen


def test_a_claim_waits_at_the_server_and_gets_the_task_at_once(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    assert app.claim("worker-1") is None
    connections = proxy.connections
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.claim, "worker-1", wait=30)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        enqueued = time.monotonic()
        task = direct.enqueue("resize")
        assert waiting.result(timeout=30).task_id == task.id
        assert time.monotonic() - enqueued < 10
    assert proxy.connections == connections  # nothing but that one request


@pytest.mark.usefixtures("impatient")
def test_a_waiting_claim_survives_a_restart_of_the_server(app: Any, proxy: Proxy, direct: dibs.Dibs) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.claim, "worker-1", wait=30)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=conversation.PATIENCE * 2)
        proxy.cut()
        task = direct.enqueue("resize")
        assert waiting.result(timeout=30).task_id == task.id


def test_a_call_during_close_leaves_no_connection_open(server: str) -> None:
    app = dibs.Dibs(server)
    connections = app._store._opened()  # type: ignore[attr-defined]
    app.close()  # between the look for the connections and their use
    assert connections.send(get("/api/queues"), None) is not None
    assert connections._client is None

    async def use_late() -> int:
        await connections.send_async(get("/api/queues"), None)
        return len(connections._async_clients)

    assert asyncio.run(use_late()) == 0


def test_closing_does_not_wait_for_the_server(server: str, open_app: Callable[..., Any]) -> None:
    app = open_app(server)
    wakeups = app._store.wakeups

    def wait_until_closed() -> None:
        while not wakeups._closed:  # a watcher that starts wakes its callers once
            wakeups.wait(wakeups.generation, 30.0)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_until_closed)
        until(lambda: wakeups._waiting and wakeups._socket is not None)  # the watcher waits for an answer
        began = time.monotonic()
        app.close()
        waiting.result(timeout=30)
    assert time.monotonic() - began < 10
    assert app.get(1) is None  # and it opens again


# Processes, loops, restarts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("program", ["go_on_at_once", "parent_closes"])
def test_parent_and_child_processes_continue_with_the_same_client_after_a_fork(
    server: str, direct: dibs.Dibs, program: str
) -> None:
    subprocess.run([sys.executable, "-m", "tests.helpers.forking", program, server], check=True, timeout=100)
    types = {each: len(direct.list_tasks(type=each, limit=1000)) for each in ("child", "parent", "after")}
    if program == "go_on_at_once":
        assert types["child"] == forking.CHILDREN * forking.EACH
        assert types["parent"] == types["after"] == forking.EACH
    else:
        assert types["child"] == forking.EACH + 1


def test_one_client_serves_several_event_loops_one_after_the_other(server: str) -> None:
    app = dibs.AsyncDibs(server)

    async def enqueue() -> int:
        task = await app.enqueue("resize")
        await app.close()
        return task.id

    assert [asyncio.run(enqueue()) for _ in range(3)] == [1, 2, 3]


def test_a_worker_continues_when_its_server_is_restarted(server_host: Any, database: str, direct: dibs.Dibs) -> None:
    with server_host.serving(database) as first, Proxy(first) as proxy:
        app = dibs.Dibs(proxy.url)
        app.task(name="resize")(lambda image: image * 2)
        with app.worker(concurrency=2, poll=0.2) as worker:
            before = direct.enqueue("resize", {"image": 1})
            until(lambda: direct.get(before.id).state == "completed")  # type: ignore[union-attr]
            proxy.refuse()
            during = direct.enqueue("resize", {"image": 2})
            until(lambda: worker._access.silent_for > 0.5)  # it cannot connect
            proxy.accept()
            until(lambda: direct.get(during.id).state == "completed", timeout=30)  # type: ignore[union-attr]
        app.close()


def test_a_worker_behind_a_server_does_no_upkeep(
    server_host: Any, database: str, direct: dibs.Dibs, caplog: pytest.LogCaptureFixture
) -> None:
    key = direct.create_key("worker", ["work", "enqueue"], rate_limit="none").key  # upkeep would need admin
    direct.enqueue("resize")
    with server_host.serving(database, KEYED) as url, dibs.Dibs(url, api_key=key) as app:
        app.task(name="resize", schedule="0 3 * * *")(lambda: None)
        with app.worker():
            until(lambda: direct.stats().depth == {"completed": 1})
            until(lambda: direct.schedules() and direct.workers())
    assert [worker.state for worker in direct.workers()] == ["gone"]
    assert "the store refuses" not in caplog.text


def test_a_worker_whose_key_may_not_work_does_not_start(server_host: Any, database: str, direct: dibs.Dibs) -> None:
    key = direct.create_key("reader", ["read"]).key
    with server_host.serving(database, KEYED) as url, dibs.Dibs(url, api_key=key) as app:
        app.task(name="resize")(lambda: None)
        worker = app.worker()
        with pytest.raises(dibs.NotAllowed, match="work"):
            worker.start()


def test_a_worker_whose_key_may_not_declare_its_schedule_still_runs(
    server_host: Any, database: str, direct: dibs.Dibs, caplog: pytest.LogCaptureFixture
) -> None:
    key = direct.create_key("worker", ["work"], rate_limit="none").key
    task = direct.enqueue("resize")
    with server_host.serving(database, KEYED) as url, dibs.Dibs(url, api_key=key) as app:
        app.task(name="resize", schedule="0 3 * * *")(lambda: None)
        with app.worker():
            until(lambda: direct.get(task.id).state == "completed")  # type: ignore[union-attr]
            until(lambda: "the schedule 'resize' of the handler was refused" in caplog.text)
    assert direct.schedules() == []


def test_a_worker_whose_key_is_revoked_sends_few_requests_and_logs_it_once(
    server_host: Any, database: str, direct: dibs.Dibs, caplog: pytest.LogCaptureFixture
) -> None:
    minted = direct.create_key("worker", ["work"], rate_limit="none")
    with server_host.serving(database, KEYED) as url, dibs.Dibs(url, api_key=minted.key) as app:
        app.task(name="resize")(lambda: None)
        with app.worker(poll=0.1):
            caplog.set_level(logging.INFO)
            direct.revoke_key(minted.about.id)
            until(lambda: "the store refuses" in caplog.text)
            until(lambda: caplog.text.count("401 Unauthorized") > 3)  # what was under way before has had its answer
            caplog.clear()
            let_pass(1.0)
    asked = [record for record in caplog.records if record.name == "httpx" and "401" in record.getMessage()]
    assert len(asked) < 30
    assert "the store refuses" not in caplog.text  # once a minute
    assert minted.key not in caplog.text


# Upkeep and keys with the scope


def test_upkeep_can_be_done_over_http(app: Any, direct: dibs.Dibs) -> None:
    direct.enqueue("resize")
    direct.complete(direct.claim("worker-1"))  # type: ignore[arg-type]
    keep(app, completed=0)
    assert app.upkeep().pruned == 1
    assert app.migrate() == []
    assert {check.verdict for check in app.doctor()} <= {"ok", "warn"}


def test_keys_are_made_listed_and_revoked_over_http(app: Any, direct: dibs.Dibs) -> None:
    minted = app.create_key("ci", ["enqueue", "read"], queues=["build"], rate_limit="600/minute", expires_in=3600)
    assert minted.key.startswith(f"dibs_{minted.about.id}_")
    [listed] = app.keys()
    [stored] = direct.keys()
    assert (listed.id, listed.scopes, listed.queues, listed.rate_limit, listed.expires_at) == (
        stored.id, stored.scopes, stored.queues, stored.rate_limit, stored.expires_at,
    )  # fmt: skip
    assert app.revoke_key(listed.id).revoked_at is not None
    with pytest.raises(dibs.KeyNotFound):
        app.revoke_key("aaaaaaaaaaaa")


def test_a_remote_store_reports_itself_as_served_and_a_database_does_not(direct: dibs.Dibs) -> None:
    assert RemoteStore(NOWHERE, None).served
    assert not direct._store.served


def test_threads_share_connections_and_lose_no_request(proxy: Proxy, app: Any, direct: dibs.Dibs) -> None:
    barrier = threading.Barrier(10)

    def enqueue(number: int) -> int:
        barrier.wait(30)
        return sum(bool(app.enqueue("resize", {"n": number * 20 + n})) for n in range(20))

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(enqueue, range(10))) == 200
    assert direct.stats().depth == {"pending": 200}
    assert proxy.connections <= 20


def test_connections_of_many_threads_are_kept_for_the_next_requests(proxy: Proxy, app: Any) -> None:
    crowd = 40
    barrier = threading.Barrier(crowd)

    def look(_: int) -> None:
        barrier.wait(30)
        assert app.get(1) is None

    proxy.delay(0.3)  # so that all of them ask at once
    with ThreadPoolExecutor(crowd) as pool:
        list(pool.map(look, range(crowd)))
        connections = proxy.connections
        list(pool.map(look, range(crowd)))
    assert proxy.connections - connections < crowd / 4  # one that is closed while another thread sends on it loses both


def test_the_hint_about_a_key_is_shown_whole_on_the_command_line() -> None:
    """The command line masks what looks like a key in every text that it shows."""
    with pytest.raises(dibs.InvalidValue) as refused:
        dibs.Dibs("http://me:secret@host")
    assert redact(str(refused.value.hint)) == refused.value.hint
