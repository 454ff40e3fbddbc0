"""Server-sent events: every event, in order and without a gap, also across a lost connection."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

import dibs
from dibs.server import events
from dibs.server.config import ServerConfig
from dibs.server.run import serving
from dibs.store.open import open_store
from tests.helpers.plain_http import NO_TLS
from tests.helpers.sse import Heard, Stream, listening
from tests.helpers.waiting import until
from tests.server.conftest import Served

ON_POSTGRES = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


def look_several_times(server: Served) -> None:
    """Wait until the reader of the feed has read the history three times from now on."""
    store, looks = server.service.store, itertools.count()
    read, enough = store.history.events_page, threading.Event()

    def counted(*args: Any) -> Any:
        if next(looks) == 3:  # the first one may have begun before
            enough.set()
        return read(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.history, "events_page", counted)
        assert enough.wait(20)


def names(events: list[Heard]) -> list[str]:
    return [event.event for event in events]


def test_events_are_sent_in_order(http: httpx.Client, app: dibs.Dibs) -> None:
    with listening(http) as stream:
        task = app.enqueue("resize", queue="images")
        claim = app.claim("worker-1")
        assert claim is not None
        app.complete(claim)
        heard = stream.take(3)
    assert names(heard) == ["task.enqueued", "task.claimed", "task.completed"]
    assert [event.id for event in heard] == [entry.id for entry in app.history(task.id)]
    assert heard[1].data["worker_id"] == "worker-1"
    assert heard[1].data["queue"] == "images"
    assert heard[1].data["task_type"] == "resize"
    assert heard[1].id == heard[1].data["id"]


def test_the_event_stream_has_the_right_headers(http: httpx.Client) -> None:
    with listening(http) as stream:
        assert stream.retry == ["retry: 2000", "id: 0"]
        assert stream.response.headers["content-type"] == "text/event-stream"
        assert stream.response.headers["x-accel-buffering"] == "no"
        assert stream.response.headers["cache-control"] == "no-store"


def test_a_new_stream_begins_with_the_next_event(http: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue("before")
    with listening(http) as stream:
        app.enqueue("after")
        assert next(stream).data["task_type"] == "after"


def test_event_types_filter_the_live_stream(http: httpx.Client, app: dibs.Dibs) -> None:
    with listening(http, kinds="completed,cancelled") as stream:
        app.cancel(app.enqueue("resize").id)
        app.enqueue("resize")
        app.complete(app.claim("worker-1"))  # type: ignore[arg-type]
        assert names(stream.take(2)) == ["task.cancelled", "task.completed"]


def test_a_client_that_reconnects_gets_every_event_once(http: httpx.Client, app: dibs.Dibs) -> None:
    with listening(http) as stream:
        app.enqueue("resize")
        last = next(stream).id
    missed = [app.enqueue("resize").id for _ in range(5)]
    with listening(http, after=last) as stream:
        more = [app.enqueue("resize").id for _ in range(5)]
        assert [event.data["task_id"] for event in stream.take(10)] == [*missed, *more]


def test_catching_up_page_by_page_joins_the_live_stream_without_a_gap(
    http: httpx.Client, app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PAGE", 7)
    wanted = [app.enqueue("resize").id for _ in range(40)]
    writing = threading.Thread(target=lambda: wanted.extend(app.enqueue("resize").id for _ in range(60)))
    with listening(http, after=0) as stream:
        writing.start()
        heard = [event.data["task_id"] for event in stream.take(100)]
        writing.join()
    assert heard == wanted


def test_event_types_filter_past_events_as_well(http: httpx.Client, app: dibs.Dibs) -> None:
    app.cancel(app.enqueue("resize").id)
    with listening(http, after=0, kinds="cancelled") as stream:
        assert next(stream).event == "task.cancelled"


def test_a_stream_after_a_future_id_begins_after_that_id(http: httpx.Client, app: dibs.Dibs) -> None:
    [first] = app.history(app.enqueue("resize").id)
    with listening(http, after=first.id + 1) as stream:
        app.enqueue("resize")
        third = app.enqueue("resize")
        assert next(stream).data["task_id"] == third.id


def test_all_streams_get_the_same_events(server: Served, app: dibs.Dibs) -> None:
    with listening(server.client()) as one, listening(server.client()) as other:
        app.enqueue("resize")
        assert next(one) == next(other)


def test_the_history_follower_runs_only_while_a_stream_is_open(
    feeds: list[events.EventFeed], http: httpx.Client, app: dibs.Dibs
) -> None:
    with listening(http) as stream:
        app.enqueue("resize")
        next(stream)
        assert feeds[0]._reader is not None
    until(lambda: feeds[0]._reader is None)
    with listening(http) as stream:
        task = app.enqueue("resize")
        assert next(stream).data["task_id"] == task.id


def test_a_malformed_last_event_id_is_refused(http: httpx.Client) -> None:
    for last in ("", "x", "-1", "1.5", "9223372036854775808", "٣"):
        answer = http.get("/api/events", headers=[(b"Last-Event-ID", last.encode())])
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_unknown_event_types_are_refused(http: httpx.Client) -> None:
    for types in ("", "task.completed", "completed,", "exploded", "completed%0A", "completed failed"):
        answer = http.get(f"/api/events?kinds={types}")
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_the_event_stream_needs_the_read_scope(keyed: Served) -> None:
    assert keyed.client("work").get("/api/events").status_code == 403
    assert keyed.client().get("/api/events").status_code == 401


def test_a_limited_key_gets_only_events_of_its_queues(keyed: Served, app: dibs.Dibs) -> None:
    client = keyed.client("read", queues=["mine"])
    app.enqueue("resize", queue="theirs")
    before = app.enqueue("resize", queue="mine")
    with listening(client, after=0) as stream:
        app.enqueue("resize", queue="theirs")
        after = app.enqueue("resize", queue="mine")
        assert [event.data["task_id"] for event in stream.take(2)] == [before.id, after.id]


def test_a_stream_ends_when_its_key_is_revoked(keyed: Served, app: dibs.Dibs) -> None:
    key = keyed.key("read")
    with listening(keyed.client_with(**{"X-API-Key": key.key})) as stream:
        app.revoke_key(key.about.id)
        assert list(stream) == []


def test_a_stream_ends_when_its_key_expires(keyed: Served) -> None:
    key = keyed.key("read", expires_in=1.0)
    with listening(keyed.client_with(**{"X-API-Key": key.key})) as stream:
        assert list(stream) == []


def test_streams_end_when_the_server_stops(url: str, app: dibs.Dibs) -> None:
    config = ServerConfig(port=0, keys=False, access_log=False, upkeep=False)
    with httpx.Client(verify=NO_TLS, timeout=20) as client:
        with serving(open_store(url), config) as address:  # type: ignore[arg-type]
            request = client.build_request("GET", f"{address}/api/events")
            stream = Stream(client.send(request, stream=True))
            app.enqueue("resize")
            next(stream)
            stopping_at = time.monotonic()
        assert time.monotonic() - stopping_at < 9
        assert list(stream) == []


def test_a_slow_client_is_disconnected_and_can_resume(
    feeds: list[events.EventFeed], serve: Callable[..., Served], app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    monkeypatch.setattr(events, "MAX_BACKLOG", 200)
    monkeypatch.setattr(events, "PAGE", 100)
    address = urlsplit(server.url)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((address.hostname, address.port))
        slow.sendall(f"GET /api/events HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        assert b"200 OK" in slow.recv(4096)  # and then reads no more
        follower = next(iter(feeds[0]._subscribers))
        some = [dibs.NewTask("resize", queue="q" * 255) for _ in range(1000)]  # the system itself keeps some megabytes
        tasks = [task for _ in range(30) for task in app.enqueue_many(some)]
        until(lambda: follower.ended, timeout=20)
        assert len(follower._waiting) == 0
    with listening(server.client(), after=0) as stream:
        assert next(stream).data["task_id"] == tasks[0].id


def test_a_client_that_keeps_up_gets_thousands_of_events(http: httpx.Client, app: dibs.Dibs) -> None:
    some = [dibs.NewTask("resize") for _ in range(1000)]
    with listening(http) as stream:
        tasks = [task.id for _ in range(5) for task in app.enqueue_many(some)]
        assert [event.data["task_id"] for event in stream.take(5000)] == tasks


def test_an_idle_stream_sends_its_position(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from dibs.server import event_stream
    from dibs.server.api import history

    monkeypatch.setattr(event_stream, "KEEP_ALIVE", 0.1)
    monkeypatch.setattr(history, "CHECK_INTERVAL", 0.1)
    with listening(http) as stream:
        assert stream._block() == ["id: 0"]


@ON_POSTGRES
def test_an_event_that_is_committed_late_is_not_lost(
    server: Served, http: httpx.Client, app: dibs.Dibs, url: str
) -> None:
    with psycopg.connect(url) as late, listening(http) as stream:
        first = app.on(late).enqueue("late")
        second = app.enqueue("early")
        third = app.enqueue("early")
        look_several_times(server)
        late.commit()
        heard = stream.take(3)
    assert [event.data["task_id"] for event in heard] == [first.id, second.id, third.id]
    assert [event.id for event in heard] == sorted(event.id for event in heard)


@ON_POSTGRES
def test_an_event_that_is_committed_after_a_stream_opened_is_sent(http: httpx.Client, app: dibs.Dibs, url: str) -> None:
    with psycopg.connect(url) as late:
        first = app.on(late).enqueue("late")
        app.enqueue("before")
        with listening(http) as stream:
            late.commit()
            after = app.enqueue("after")
            assert [event.data["task_id"] for event in stream.take(2)] == [first.id, after.id]


@ON_POSTGRES
def test_a_client_that_reconnects_gets_an_event_that_was_committed_late(
    server: Served, http: httpx.Client, app: dibs.Dibs, url: str
) -> None:
    start = app.history(app.enqueue("resize").id)[0].id
    with psycopg.connect(url) as late:
        first = app.on(late).enqueue("late")
        second = app.enqueue("early")
        with listening(http, after=start) as stream:
            look_several_times(server)
            late.commit()
            assert [event.data["task_id"] for event in stream.take(2)] == [first.id, second.id]


@ON_POSTGRES
def test_a_gap_of_a_transaction_that_was_rolled_back_does_not_delay_the_stream(
    http: httpx.Client, app: dibs.Dibs, url: str
) -> None:
    with psycopg.connect(url) as late, psycopg.connect(url) as other, listening(http) as stream:
        other.execute("SELECT pg_current_xact_id()")  # a transaction that does not write to the history
        app.on(late).enqueue("never")
        task = app.enqueue("early")
        late.rollback()
        assert next(stream).data["task_id"] == task.id
        again = app.enqueue("early")
        assert next(stream).data["task_id"] == again.id


def test_a_stream_after_pruned_events_is_refused_with_what_is_missing(http: httpx.Client, app: dibs.Dibs) -> None:
    app.set_retention("history", 0)
    first = app.history(app.enqueue("old").id)[0].id
    app.enqueue("old")
    until(lambda: app.upkeep().history_pruned or not app.history_after(0))
    for headers, query in (({"Last-Event-ID": str(first)}, {}), ({}, {"after": first})):
        answer = http.get("/api/events", headers=headers, params=query)
        assert (answer.status_code, answer.json()["code"]) == (410, "events_pruned")
        assert (answer.json()["after"], answer.json()["pruned_to"]) == (first, first + 1)


def test_a_stream_is_filtered_by_queue_type_and_task(http: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue("resize", queue="theirs")
    one = app.enqueue("resize", queue="mine")
    other = app.enqueue("report", queue="mine")
    for query, expected in (
        ({"queue": "mine"}, [one.id, other.id]),
        ({"task_type": "report"}, [other.id]),
        ({"task_id": str(one.id)}, [one.id]),
    ):
        with listening(http, after=0, **query) as stream:
            assert [event.data["task_id"] for event in stream.take(len(expected))] == expected


@pytest.fixture
def feeds(monkeypatch: pytest.MonkeyPatch) -> list[events.EventFeed]:
    """The feeds of the servers that are started after this."""
    made: list[events.EventFeed] = []
    begin = events.EventFeed.__init__

    def remember(self: events.EventFeed, store: Any) -> None:
        begin(self, store)
        made.append(self)

    monkeypatch.setattr(events.EventFeed, "__init__", remember)
    return made
