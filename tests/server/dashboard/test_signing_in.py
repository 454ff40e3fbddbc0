"""Signing in: which keys are accepted, for how long, and what the cookie reveals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dibs
from dibs.errors import InvalidValue
from dibs.server.config import ServerConfig
from tests.helpers.asgi_site import browser, csrf, links
from tests.helpers.browsing import Visitor, text_of
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.server.conftest import Served
from tests.server.dashboard.conftest import Site

PLACES = ("/", "/tasks", "/queues", "/workers", "/workflows", "/schedules", "/dead", "/keys")


def test_a_visitor_without_a_session_is_sent_to_sign_in_and_then_to_the_requested_page(site: Site) -> None:
    stranger = site.visitor()
    for place in PLACES:
        assert stranger.get(place).url.path == "/signin"
    door = stranger.get("/tasks?state=failed")
    assert door.url.params["next"] == "/tasks?state=failed"
    inside = stranger.post("/signin", key=site.served.key("read").key, next="/tasks?state=failed")
    assert (inside.status_code, inside.url.raw_path) == (200, b"/tasks?state=failed")


def test_the_sign_in_page_redirects_to_no_other_site(site: Site) -> None:
    key = site.served.key("read").key
    for elsewhere in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:1",
        "/signin",
        "/\r\nx: y",
    ):
        visitor = site.visitor()
        answer = visitor.http.post(
            "/signin", data={"csrf": visitor.csrf(), "key": key, "next": elsewhere}, follow_redirects=False
        )
        assert answer.headers["location"] == "/"


def test_a_wrong_key_is_reported_without_further_details(site: Site) -> None:
    real = site.served.key("read").key
    for wrong in (
        "no-key-at-all",
        real[:-1] + ("a" if real[-1] != "a" else "b"),
        "dibs_aaaaaaaaaaaa_" + "b" * 43,
        "<b>key</b>",
    ):
        answer = site.visitor().sign_in(wrong)
        assert answer.status_code == 401
        assert "This is not a valid API key." in text_of(answer)
        assert wrong not in answer.text


def test_a_key_without_the_read_scope_cannot_sign_in(site: Site) -> None:
    visitor = site.visitor()
    answer = visitor.sign_in(site.served.key("enqueue", "work").key)
    assert answer.status_code == 403
    assert "this key has enqueue, work" in text_of(answer)
    assert visitor.get("/").url.path == "/signin"


def test_guessing_keys_on_the_sign_in_page_is_rate_limited(site: Site) -> None:
    visitor = site.visitor()
    token = visitor.csrf()
    guesses = (f"dibs_aaaaaaaaaaaa_{number:043d}" for number in range(101))
    *answers, last = [visitor.post("/signin", csrf=token, key=guess).status_code for guess in guesses]
    assert (set(answers), last) == ({401}, 429)


def test_signing_out_invalidates_copies_of_the_cookie(site: Site) -> None:
    visitor = site.visitor("read")
    copy = dict(visitor.http.cookies)
    assert visitor.post("/signout").url.path == "/signin"
    thief = site.visitor()
    thief.http.cookies.update(copy)
    assert thief.get("/").url.path == "/signin"


def test_a_revoked_key_ends_its_sessions(site: Site, app: dibs.Dibs) -> None:
    minted = site.served.key("read")
    visitor = site.visitor()
    visitor.sign_in(minted.key)
    assert visitor.get("/").url.path == "/"
    app.revoke_key(minted.about.id)
    site.served.service.key_cache.invalidate()
    assert visitor.get("/").url.path == "/signin"


def test_a_session_expires(serve: Callable[..., Served], clock: Clock) -> None:
    served = serve(clock=clock, keys=True)
    visitor = Visitor(served.url)
    visitor.sign_in(served.key("read").key)
    assert visitor.get("/").url.path == "/"
    clock.advance(12 * 3600 + 1)
    assert visitor.get("/").url.path == "/signin"
    visitor.close()


def test_the_database_stores_only_the_digest_of_the_cookie(site: Site, url: str) -> None:
    visitor = site.visitor("read")
    [(name, token)] = [(name, value) for name, value in visitor.http.cookies.items() if "session" in name]
    assert name.endswith(f"_{visitor.http.base_url.port}")  # two servers on one machine have two cookies
    stored = str(run_sql(url, "SELECT * FROM dibs_sessions"))
    assert token not in stored
    assert len(token) >= 43


def test_the_cookie_is_not_available_to_scripts_and_other_sites(site: Site) -> None:
    visitor = site.visitor()
    data = {"csrf": visitor.csrf(), "key": site.served.key("read").key}
    answer = visitor.http.post("/signin", data=data, follow_redirects=False)
    cookie = answer.headers["set-cookie"]
    assert "; HttpOnly" in cookie
    assert "; SameSite=Lax" in cookie
    assert "; Path=/" in cookie
    assert "Secure" not in cookie  # over plain HTTP a browser would not send it back


def test_the_cookie_set_over_https_through_a_trusted_proxy_is_sent_over_https_only(
    serve: Callable[..., Served],
) -> None:
    for trusted, told in ((("127.0.0.1",), True), ((), False)):
        served = serve(keys=True, trusted_proxies=trusted)
        visitor = Visitor(served.url)
        data = {"csrf": visitor.csrf(), "key": served.key("read").key}
        headers = {"x-forwarded-proto": "https", "x-forwarded-for": "192.0.2.7"}
        answer = visitor.http.post("/signin", data=data, headers=headers, follow_redirects=False)
        assert ("; Secure" in answer.headers["set-cookie"]) is told
        visitor.close()


def test_malformed_cookies_of_other_programs_on_the_same_host_do_not_hide_the_session_cookie(site: Site) -> None:
    visitor = site.visitor("read")
    [(name, token)] = [(name, value) for name, value in visitor.http.cookies.items() if "session" in name]
    for foreign in ('prefs={"a":1}', "a[b]=1", "a@b=1", 'foo="x', "foo=a b c", "=x", "x", ";;", "path=/", "secure=1"):
        stranger = Visitor(site.served.url)
        answer = stranger.get("/", headers={"cookie": f"{foreign}; {name}={token}"})
        assert answer.url.path == "/", foreign
        stranger.close()


def test_signing_in_always_sets_a_new_cookie(site: Site) -> None:
    visitor = site.visitor()
    visitor.get("/signin")
    planted = dict(visitor.http.cookies)
    visitor.sign_in(site.served.key("read").key)
    assert dict(visitor.http.cookies) != planted
    victim = site.visitor()
    victim.http.cookies.update(planted)
    assert victim.get("/").url.path == "/signin"


def test_a_server_without_keys_needs_no_sign_in(serve: Callable[..., Served]) -> None:
    visitor = Visitor(serve(keys=False).url)
    assert visitor.get("/").url.path == "/"
    assert visitor.get("/signin").url.path == "/"
    visitor.close()


@pytest.mark.parametrize("passed_on", ["", "/queue"], ids=["removed by the proxy", "passed on"])
def test_a_server_behind_a_proxy_with_a_prefix_stays_under_the_prefix(
    serve: Callable[..., Served], passed_on: str
) -> None:
    served = serve(keys=True, prefix="/queue")
    with browser(served.url, "" if passed_on else "/queue") as http:
        answer = http.get("/queue/tasks")
        assert answer.headers["location"] == "/queue/signin?next=%2Ftasks"
        form = http.get("/queue/signin?next=%2Ftasks")
        assert all(link.startswith("/queue/") for link in links(form))
        fields = {"csrf": csrf(form), "next": "/tasks", "key": served.key("read").key}
        answer = http.post("/queue/signin", data=fields)
        assert answer.headers["location"] == "/queue/tasks"
        assert "; Path=/queue;" in answer.headers["set-cookie"]
        assert http.get("/queue/tasks").status_code == 200


def test_a_prefix_is_checked() -> None:
    for wrong in ("queue", "/queue/", "//queue", "/a b", '/"'):
        with pytest.raises(InvalidValue, match="not a valid prefix"):
            ServerConfig(prefix=wrong)
