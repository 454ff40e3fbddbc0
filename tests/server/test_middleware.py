"""Middleware and connections seen from outside: host names, malformed requests, limits and timeouts."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from dibs.server import protocol
from tests.helpers.databases import run_sql
from tests.helpers.servers import Heard, Raw
from tests.helpers.waiting import until

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])

Connect = Callable[..., Raw]
NEW = {"task_type": "resize", "params": {}}


@pytest.fixture
def connect(serve: Callable[..., Any]) -> Iterator[Connect]:
    """Opens connections to a server, which is started with the options of the first call."""
    with contextlib.ExitStack() as closing:
        places: list[tuple[str, int]] = []

        def open_one(**settings: Any) -> Raw:
            if not places:
                parts = urlsplit(serve(**settings).url)
                places.append((str(parts.hostname), int(parts.port or 0)))
            return closing.enter_context(Raw(*places[0]))

        yield open_one


def asked(connection: Raw, *lines: str, body: bytes = b"") -> Heard:
    """The answer to a request of exactly these lines."""
    connection.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    return connection.hear()


# Host and Origin


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8787", "127.0.0.1", "127.0.0.1:1", "[::1]:8787"])
def test_a_server_on_loopback_accepts_the_host_names_of_loopback(connect: Connect, host: str) -> None:
    assert asked(connect(), "GET /api/stats HTTP/1.1", f"Host: {host}").status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "localhost:80@evil.example", "evil.example:8787", "127.0.0.2", ""],
)
def test_an_unknown_host_name_is_refused(connect: Connect, host: str) -> None:
    heard = asked(connect(), "GET /api/stats HTTP/1.1", f"Host: {host}")
    assert (heard.status, heard.json["code"]) == (421, "unknown_host")


def test_a_request_without_host_is_refused_also_in_http_1_0(connect: Connect) -> None:
    assert asked(connect(), "GET /api/stats HTTP/1.1").status == 421
    assert asked(connect(), "GET /api/stats HTTP/1.0").status == 421


def test_two_host_headers_are_refused_even_if_they_agree(connect: Connect) -> None:
    connection = connect()
    heard = asked(connection, "GET /api/stats HTTP/1.1", "Host: localhost", "Host: localhost")
    assert (heard.status, heard.json["code"]) == (400, "bad_request")
    assert connection.hung_up()


def test_the_host_of_an_absolute_target_counts_and_the_header_does_not(connect: Connect) -> None:
    evil = asked(connect(), "GET http://evil.example/api/stats HTTP/1.1", "Host: localhost")
    assert (evil.status, evil.json["code"]) == (421, "unknown_host")
    assert asked(connect(), "GET http://localhost:8787/api/stats HTTP/1.1", "Host: evil.example").status == 200


def test_an_allowed_host_name_is_accepted(connect: Connect) -> None:
    options = {"allowed_hosts": ("dibs.example.com",)}
    assert asked(connect(**options), "GET /api/stats HTTP/1.1", "Host: Dibs.Example.com:443").status == 200
    assert asked(connect(), "GET /api/stats HTTP/1.1", "Host: localhost").status == 200
    assert asked(connect(), "GET /api/stats HTTP/1.1", "Host: example.com").status == 421


def test_a_wildcard_allows_every_host_name(connect: Connect) -> None:
    assert asked(connect(allowed_hosts=("*",)), "GET /api/stats HTTP/1.1", "Host: anything.at.all").status == 200


def test_a_server_on_all_addresses_accepts_each_address_and_no_name(connect: Connect) -> None:
    options = {"host": "0.0.0.0", "keys": True}
    assert asked(connect(**options), "GET /api/stats HTTP/1.1", "Host: 10.1.2.3:8787").status == 401
    assert asked(connect(), "GET /api/stats HTTP/1.1", "Host: evil.example").status == 421


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_probes_accept_any_host_name(connect: Connect, path: str) -> None:
    assert asked(connect(), f"GET {path} HTTP/1.1", "Host: 10.1.2.3:8787").status == 200
    assert asked(connect(), f"GET {path} HTTP/1.0").status == 200


@pytest.mark.parametrize(
    "header",
    [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://localhost:3000",
        "Origin: http://[",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH"])
def test_a_write_from_another_origin_is_refused(connect: Connect, method: str, header: str) -> None:
    heard = asked(connect(), f"{method} /api/tasks HTTP/1.1", "Host: localhost:8787", header, "Content-Length: 0")
    assert (heard.status, heard.json["code"]) == (403, "wrong_origin")


def test_a_write_from_the_same_origin_is_accepted_also_behind_a_tls_proxy(connect: Connect) -> None:
    options = {"allowed_hosts": ("dibs.example.com",)}
    own = connect(**options).ask("POST", "/api/tasks", NEW, Origin="http://localhost", Sec_Fetch_Site="same-origin")
    assert own.status == 201
    lines = ("Host: dibs.example.com", "Origin: https://dibs.example.com", "Content-Length: 0")
    assert asked(connect(), "POST /api/tasks/7/cancel HTTP/1.1", *lines).json["code"] == "task_not_found"


def test_no_response_allows_another_origin_to_read_it(connect: Connect) -> None:
    heard = connect().ask("GET", "/api/stats", Origin="http://evil.example")
    assert [name for name in heard.headers if name.startswith("access-control")] == []
    preflight = connect().ask(
        "OPTIONS", "/api/tasks", Origin="http://evil.example", Access_Control_Request_Method="POST"
    )
    assert preflight.status == 405
    assert [name for name in preflight.headers if name.startswith("access-control")] == []


# Headers of every answer


def test_responses_forbid_caching_and_content_sniffing(connect: Connect) -> None:
    for path in ("/api/stats", "/nowhere", "/api/openapi.json", "/health"):
        headers = connect().ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
    assert connect().ask("GET", "/api/stats").headers["cache-control"] == "no-store"


def test_pages_may_load_nothing_from_other_sites_and_may_not_be_framed(connect: Connect) -> None:
    heard = connect().ask("GET", "/api/docs")
    assert heard.headers["content-type"].startswith("text/html")
    assert heard.headers["content-security-policy"].startswith("default-src 'self'")
    assert heard.headers["x-frame-options"] == "DENY"
    assert heard.headers["referrer-policy"] == "same-origin"
    assert "content-security-policy" not in connect().ask("GET", "/api/stats").headers


# What is no request


SMUGGLED = [
    ("Content-Length: 2", "Content-Length: 3"),
    ("Content-Length: 2", "Content-Length: 2"),
    ("Content-Length: 2", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: 2"),
    ("Transfer-Encoding: xchunked",),
    ("Transfer-Encoding: chunked, identity",),
    ("Content-Length: +2",),
    ("Content-Length: 2, 2",),
    ("Content-Length : 2",),
    ("X-Folded: a\r\n b",),
    ("X-Bare: a\nX-Next: b",),
]


@pytest.mark.parametrize("headers", SMUGGLED, ids=" + ".join)
def test_a_body_with_an_ambiguous_length_is_refused_and_nothing_after_it_is_read(
    connect: Connect, headers: tuple[str, ...]
) -> None:
    connection = connect()
    start = "\r\n".join(["POST /api/tasks HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers])
    connection.send(start.encode() + b"\r\n\r\n{}GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    heard = connection.hear()
    assert (heard.status, heard.json["code"]) == (400, "bad_request")
    assert heard.headers["connection"] == "close"
    assert connection.hung_up()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a greeting of TLS\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /he\x00alth HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: loc\x00alhost\r\n\r\n",
    ],
)
def test_a_malformed_http_request_is_answered_in_json_and_the_connection_is_closed(
    connect: Connect, sent: bytes
) -> None:
    connection = connect()
    connection.send(sent)
    heard = connection.hear()
    assert (heard.status, heard.json["code"]) == (400, "bad_request")
    assert connection.hung_up()
    assert connect().ask("GET", "/health").status == 200


def test_the_error_about_a_malformed_request_is_not_sent_as_the_response_to_the_request_before(
    connect: Connect,
) -> None:
    connection = connect()
    connection.request("POST", "/api/tasks/claim", {"worker_id": "w", "wait_seconds": 30})
    connection.send(b"nonsense\r\n\r\n")
    assert connection.hung_up()


def test_a_disconnect_during_a_wait_is_noticed_also_with_pipelined_requests(
    connect: Connect, access: Callable[[], list[str]]
) -> None:
    connection = connect(access_log=True)
    connection.request("POST", "/api/tasks/claim", {"worker_id": "gone", "wait_seconds": 60})
    connection.request("GET", "/health")
    connection.socket.close()
    until(lambda: any("/api/tasks/claim" in line for line in access()))  # long before 60 s are over


def test_a_disconnect_after_a_pipelined_request_during_a_wait_is_noticed(serve: Callable[..., Any]) -> None:
    served = serve()
    room, place = served.service.long_polls, urlsplit(served.url)
    with Raw(str(place.hostname), int(place.port or 0)) as connection:
        connection.request("POST", "/api/tasks/claim", {"worker_id": "gone", "wait_seconds": 60})
        until(lambda: room.waiting == 1)
        connection.request("GET", "/health")
        assert served.client().get("/health").status_code == 200  # the server has read the one before
    until(lambda: room.waiting == 0)  # long before 60 s are over


def test_headers_beyond_the_limit_are_refused(connect: Connect) -> None:
    connection = connect()
    connection.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
    with contextlib.suppress(ConnectionError):
        for number in range(3000):
            connection.send(f"X-{number}: {'x' * 1000}\r\n".encode())
    heard = connection.hear()
    assert (heard.status, heard.json["code"]) == (431, "headers_too_large")
    assert connect().ask("GET", "/health").status == 200


def test_a_path_beyond_the_limit_is_refused(connect: Connect) -> None:
    connection = connect()
    with contextlib.suppress(ConnectionError):
        connection.send(b"GET /" + b"x" * 2_000_000)
    assert connection.hear().status == 431


@pytest.mark.parametrize("protocol_", ["h2c", "websocket"])
def test_an_upgrade_request_gets_a_normal_response_and_the_connection_is_closed(
    connect: Connect, protocol_: str
) -> None:
    connection = connect()
    heard = connection.ask("GET", "/health", Connection="Upgrade", Upgrade=protocol_, Sec_WebSocket_Version="13")
    assert (heard.status, heard.headers["connection"]) == (200, "close")
    assert connection.hung_up()


# Bodies


def test_a_body_on_a_get_is_not_read_as_the_next_request(connect: Connect) -> None:
    connection = connect()
    body = b"GET /evil HTTP/1.1\r\n\r\n"
    assert (
        asked(connection, "GET /health HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", body=body).status
        == 200
    )
    assert connection.ask("GET", "/api/stats").status == 200


def test_pipelined_requests_are_answered_in_order(connect: Connect) -> None:
    connection = connect()
    for number in range(20):
        connection.request("POST", "/api/tasks", {"task_type": f"type-{number}"})
    answers = [connection.hear() for _ in range(20)]
    assert [each.json["task"]["task_type"] for each in answers] == [f"type-{number}" for number in range(20)]


def test_too_many_pipelined_requests_are_refused(connect: Connect) -> None:
    connection = connect()
    connection.request("POST", "/api/tasks/claim", {"worker_id": "w", "wait_seconds": 60})
    with contextlib.suppress(ConnectionError):
        connection.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
    assert connection.hung_up()


def test_a_chunked_body_beyond_the_limit_is_refused_while_it_streams_and_the_rest_is_not_read(connect: Connect) -> None:
    connection = connect()
    start = (
        "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    )
    connection.send(start.encode() + b"\r\n\r\n")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with contextlib.suppress(ConnectionError):
        for _ in range(17):  # one more than a MiB, and no end
            connection.send(chunk)
    heard = connection.hear()
    assert (heard.status, heard.json["code"]) == (413, "too_large")
    assert heard.headers["connection"] == "close"
    assert connection.hung_up()


def test_a_client_that_never_stops_sending_still_gets_the_refusal(connect: Connect) -> None:
    connection = connect()
    connection.send(b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
    connection.send(b"Content-Length: 50000000\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            connection.send(b" " * 50_000)
    assert connection.hear().status == 413


def test_a_request_with_expect_100_continue_is_answered_before_its_body_is_sent(connect: Connect) -> None:
    lines = ["POST /api/tasks HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Expect: 100-continue"]
    assert asked(connect(), *lines, "Content-Length: 2000000").status == 413
    connection = connect()
    assert asked(connection, *lines, "Content-Length: 22").status == 100
    connection.send(b'{"task_type":"resize"}')
    assert connection.hear().status == 201


# Time and room


def test_a_request_with_an_incomplete_body_times_out(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_TIMEOUT", 0.2)
    connection = connect()
    connection.send(b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
    connection.send(b"Content-Length: 22\r\n\r\n{")
    heard = connection.hear()
    assert (heard.status, heard.json["code"], heard.headers["connection"]) == (408, "too_slow", "close")
    assert connection.hung_up()


def test_a_request_with_incomplete_headers_times_out(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_TIMEOUT", 0.2)
    connection = connect()
    assert connection.ask("GET", "/health").status == 200  # also on a connection that has been good before
    connection.send(b"GET /health HTTP/1.1\r\nHo")
    assert connection.hear().status == 408
    assert connection.hung_up()


def test_an_idle_connection_is_closed(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_TIMEOUT", 0.2)
    assert connect().hung_up()


def test_the_request_timeout_does_not_limit_the_time_of_the_response(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "REQUEST_TIMEOUT", 0.2)
    connection = connect()
    wish = {"worker_id": "w", "wait_seconds": 0.6}
    assert connection.ask("POST", "/api/tasks/claim", wish).json["message"] == "No pending tasks available"
    assert connection.ask("GET", "/health").status == 200


def test_the_rest_of_a_refused_body_is_read_for_a_bounded_time(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "REQUEST_TIMEOUT", 0.3)
    connection = connect()
    connection.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    assert connection.hear().status == 404
    assert connection.hung_up()  # and no second answer


def test_connections_are_limited_and_a_closed_connection_makes_room(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 2)
    first, second = connect(), connect()
    assert [each.ask("GET", "/health").status for each in (first, second)] == [200, 200]
    refused = connect().hear()
    assert (refused.status, refused.json["code"]) == (503, "too_many_connections")
    assert int(refused.headers["retry-after"]) >= 1
    first.socket.close()

    def is_let_in() -> bool:
        with contextlib.suppress(EOFError, ConnectionError):
            return connect().ask("GET", "/health").status == 200
        return False

    assert until(is_let_in)
    assert second.ask("GET", "/health").status == 200


# Proxies and the access log


@pytest.fixture
def access(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines of the access log so far."""
    caplog.set_level(logging.INFO, "dibs.access")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "dibs.access"]


def test_each_request_is_one_log_line_with_its_key_and_without_its_query(
    serve: Callable[..., Any], access: Callable[[], list[str]]
) -> None:
    served = serve(keys=True, access_log=True)
    key = served.key("read")
    client = served.client_with(**{"X-API-Key": key.key})
    assert client.get("/api/tasks?limit=7").status_code == 200
    assert served.client().get("/nowhere").status_code == 404
    first, second = until(lambda: access() if len(access()) == 2 else [])
    assert re.fullmatch(rf"127\.0\.0\.1 GET /api/tasks 200 \d+\.\d ms key {key.about.id}", first)
    assert re.fullmatch(r"127\.0\.0\.1 GET /nowhere 404 \d+\.\d ms", second)
    assert key.key.rpartition("_")[2] not in "".join(access())


@pytest.mark.parametrize("bytes_", ["\x1b[31m", "\xe2\x80\xa8", "\x85", "\x7f", "\x00", "a\rb"], ids=ascii)
def test_control_characters_in_a_path_are_refused(connect: Connect, bytes_: str) -> None:
    assert asked(connect(), f"GET /api/tasks/{bytes_} HTTP/1.1", "Host: localhost").status == 400


def test_a_request_cannot_forge_a_log_entry(connect: Connect, access: Callable[[], list[str]]) -> None:
    options = {"access_log": True, "keys": True, "trusted_proxies": ("127.0.0.1",)}
    lines = ["Host: localhost", "X-API-Key: dibs_a\xe2\x80\xa8b_c", "X-Forwarded-For: \x9b31m", "User-Agent: \x9b31m"]
    assert asked(connect(**options), "GET /api/tasks HTTP/1.1", *lines).status == 401
    assert connect().ask("GET", "/%0aforged%1b[31m").status == 404
    first, second = until(lambda: access() if len(access()) == 2 else [])
    assert re.fullmatch(r"127\.0\.0\.1 GET /api/tasks 401 \d+\.\d ms", first)
    assert re.fullmatch(r"127\.0\.0\.1 GET /%0aforged%1b\[31m 404 \d+\.\d ms", second)


def test_a_key_in_a_path_by_mistake_is_not_written_to_the_log(
    serve: Callable[..., Any], access: Callable[[], list[str]]
) -> None:
    served = serve(keys=True, access_log=True)
    key = served.key("admin")
    served.client_with(**{"X-API-Key": key.key}).delete(f"/api/keys/{key.key}")
    [line] = until(access)
    assert f"/api/keys/dibs_{key.about.id}_*** " in line
    assert key.key.rpartition("_")[2] not in line


def test_the_error_of_a_failing_store_is_logged_once(
    serve: Callable[..., Any], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = serve().client()
    run_sql(url, "ALTER TABLE dibs_tasks RENAME TO dibs_away")
    answers = [client.post("/api/tasks", json={"task_type": "t"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [503] * 3
    told = [record.getMessage() for record in caplog.records if record.name == "dibs.server"]
    assert told == [f"the store fails ({answers[0].json()['code']}): {answers[0].json()['error']}"]


def test_the_access_log_can_be_disabled(connect: Connect, access: Callable[[], list[str]]) -> None:
    assert connect(access_log=False).ask("GET", "/health").status == 200
    assert access() == []


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        ((), "203.0.113.7", "127.0.0.1"),
        (("10.0.0.1",), "203.0.113.7", "127.0.0.1"),
        (("127.0.0.1",), "203.0.113.7", "203.0.113.7"),
        (("127.0.0.0/8",), "6.6.6.6, 203.0.113.7", "203.0.113.7"),
        (("127.0.0.1", "10.0.0.0/8"), "6.6.6.6, 203.0.113.7, 10.1.1.1", "203.0.113.7"),
        (("127.0.0.1",), "2001:DB8::7", "2001:db8::7"),
        (("127.0.0.1",), "6.6.6.6, nonsense", "127.0.0.1"),
        (("127.0.0.1",), "", "127.0.0.1"),
        (("127.0.0.1",), "10.0.0.9\x9b31m", "127.0.0.1"),
    ],
)
def test_the_forwarded_address_is_accepted_from_a_trusted_proxy_only(
    connect: Connect, access: Callable[[], list[str]], proxies: tuple[str, ...], forwarded: str, address: str
) -> None:
    connection = connect(access_log=True, trusted_proxies=proxies)
    heard = asked(connection, "GET /health HTTP/1.1", "Host: localhost", f"X-Forwarded-For: {forwarded}")
    assert heard.status == 200
    assert until(access)[0].split()[0] == address


def test_failed_keys_through_a_trusted_proxy_are_counted_per_client_address(connect: Connect) -> None:
    options = {"keys": True, "trusted_proxies": ("127.0.0.1",)}
    guess = {"X_Forwarded_For": "203.0.113.7", "X_API_Key": "dibs_abcdefghijkl_" + "x" * 43}
    connection = connect(**options)
    statuses = [connection.ask("GET", "/api/stats", **guess).status for _ in range(110)]
    assert (statuses[0], statuses[-1]) == (401, 429)
    assert connection.ask("GET", "/api/stats", X_Forwarded_For="203.0.113.8").status == 401


def test_without_a_trusted_proxy_a_client_cannot_change_its_address(connect: Connect) -> None:
    connection = connect(keys=True)
    guess = "dibs_abcdefghijkl_" + "x" * 43
    statuses = [
        connection.ask("GET", "/api/stats", X_Forwarded_For=f"203.0.113.{n}", X_API_Key=guess).status
        for n in range(110)
    ]
    assert statuses[-1] == 429


def test_a_reset_connection_does_no_harm(connect: Connect) -> None:
    connection = connect()
    connection.request("POST", "/api/tasks/claim", {"worker_id": "w", "wait_seconds": 60})
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.socket.close()
    assert connect().ask("GET", "/health").status == 200
