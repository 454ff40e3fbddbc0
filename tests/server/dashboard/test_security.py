"""The dashboard refuses cross-site requests, third-party scripts and forms without their token."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from dibs.errors import StoreUnavailable
from dibs.server.dashboard.page import Page
from dibs.server.dashboard.routes import PAGES
from tests.helpers.browsing import Visitor, text_of
from tests.server.conftest import Served
from tests.server.dashboard.conftest import Site

FORMS = [each.path for each in PAGES if isinstance(each, Page) and each.method == "POST"]
LOOKS = [each.path for each in PAGES if isinstance(each, Page) and each.method == "GET"]


def filled(path: str) -> str:
    """A path whose object may not exist: a request without permission is refused before the object is read."""
    return path.replace("{id:int}", "1").replace("{name:name}", "one")


@pytest.mark.parametrize("path", FORMS)
def test_a_form_without_its_token_is_refused_before_anything_is_done(site: Site, path: str) -> None:
    visitor = site.visitor("admin")
    others = site.visitor("admin").csrf()
    for token in ("", "0" * 64, others):
        answer = visitor.post(filled(path), csrf=token)
        assert answer.status_code == 403
        assert "The form has expired, or comes from another site." in text_of(answer)


@pytest.mark.parametrize("path", FORMS)
def test_a_form_sent_from_another_site_is_refused(site: Site, path: str) -> None:
    visitor = site.visitor("admin")
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        answer = visitor.http.post(filled(path), data={"csrf": visitor.csrf()}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "wrong_origin")


@pytest.mark.parametrize("path", [each for each in FORMS if each not in ("/signin", "/signout")])
def test_every_button_needs_a_session(site: Site, path: str) -> None:
    answer = site.visitor().post(filled(path))
    assert answer.url.path == "/signin"


@pytest.mark.parametrize("path", [each for each in FORMS if each not in ("/signin", "/signout")])
def test_a_key_with_only_the_read_scope_is_refused_by_every_button(site: Site, path: str) -> None:
    answer = site.visitor("read").post(filled(path))
    assert answer.status_code == 403
    assert "This needs a key with the scope" in text_of(answer)


@pytest.mark.parametrize("path", LOOKS)
def test_every_page_forbids_third_party_scripts_frames_and_caches(site: Site, path: str) -> None:
    if path == "/live":
        pytest.skip("a stream, no page")
    answer = site.visitor("admin").get(filled(path))
    if not answer.headers["content-type"].startswith("text/html"):
        return
    assert answer.headers["content-security-policy"] == "default-src 'self'"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in answer.text
    assert " style=" not in answer.text
    assert " onclick=" not in answer.text


def test_a_foreign_host_name_is_refused(site: Site) -> None:
    visitor = site.visitor("read")
    answer = visitor.get("/", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (421, "unknown_host")


def test_without_keys_a_form_needs_its_token_as_well(serve: Callable[..., Served]) -> None:
    visitor = Visitor(serve(keys=False).url)
    assert visitor.post("/signout", csrf="0" * 64).status_code == 403
    visitor.close()


def test_an_unknown_path_gives_a_page_to_a_browser_and_json_to_a_program(site: Site) -> None:
    answer = site.visitor("read").get("/nowhere")
    assert answer.status_code == 404
    assert "This page does not exist." in text_of(answer)
    answer = site.visitor("read").get("/nowhere", headers={"accept": "*/*"})
    assert answer.json()["code"] == "not_found"


def test_an_unavailable_store_is_reported_on_a_page(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = site.visitor("read")

    def fail(digest: str) -> NoReturn:
        raise StoreUnavailable("No connection.", hint="Wait.")

    monkeypatch.setattr(site.served.service.store.keys, "get_session", fail)
    answer = visitor.get("/tasks")
    assert answer.status_code == 503
    assert "The request failed No connection. Wait." in text_of(answer)


def test_an_invalid_address_is_reported_on_a_page(site: Site) -> None:
    visitor = site.visitor("read")
    for path in ("/workers?what=1", "/tasks?state=%00&state=x", "/tasks/99999999999999999999", "/signin?next=a&next=b"):
        answer = visitor.get(path)
        assert answer.status_code in {400, 404}
        assert "The request failed" in text_of(answer)


def test_static_files_are_cached_under_a_url_that_changes_with_their_content(site: Site) -> None:
    visitor = site.visitor()
    page = visitor.get("/signin").text
    style = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
    answer = visitor.get(style)
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    old = visitor.get("/static/0000000000000000/dibs.css")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    assert visitor.get("/static/0/..%2fpages.py").status_code == 404
