"""API keys in the dashboard: for admins of the whole store only, created and shown once, revoked for good."""

from __future__ import annotations

import re

import pytest

import dibs
from tests.helpers.browsing import text_of
from tests.server.dashboard.conftest import Site

KEY = re.compile(r"dibs_[a-z2-7]{12}_[A-Za-z0-9]{43}")


def named(app: dibs.Dibs) -> dict[str, dibs.ApiKey]:
    found = app.keys()
    return {each.name: each for each in found}


def test_keys_are_listed_with_their_scopes_and_without_their_text(site: Site, app: dibs.Dibs) -> None:
    made = app.create_key("fleet", ["work"], queues=["scrape", "media"], rate_limit="600/minute", expires_in=86400 * 30)
    gone = app.create_key("old", ["read"])
    app.revoke_key(gone.about.id)
    page = site.visitor("admin").get("/keys")
    text = text_of(page)
    assert f"active fleet {made.about.id} work scrape media 600/minute" in text
    assert f"revoked old {gone.about.id} read all 100/minute" in text
    assert re.search(r"in (29|30) d", text)
    assert KEY.search(page.text) is None


def test_a_new_key_is_shown_once_on_a_page_that_is_not_cached(site: Site, app: dibs.Dibs) -> None:
    visitor = site.visitor("admin")
    page = visitor.post(
        "/keys", name="for mails", enqueue="on", read="on", queues="mail, media", rate_limit="10/second", days="7"
    )
    found = KEY.search(page.text)
    assert found is not None
    assert page.headers["cache-control"] == "no-store"
    assert KEY.search(visitor.get("/keys").text) is None
    about = named(app)["for mails"]
    assert (set(about.scopes), about.queues, str(about.rate_limit)) == (
        {"enqueue", "read"},
        ("mail", "media"),
        "10/second",
    )
    assert about.expires_at is not None
    assert (about.expires_at - about.created_at).total_seconds() == 7 * 86400
    fresh = site.visitor()
    assert fresh.sign_in(found[0]).url.path == "/"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "x"}, "A key needs at least one scope."),
        ({"read": "on"}, "The key's name"),
        ({"name": "x", "read": "on", "rate_limit": "often"}, "'often' is not a valid rate limit."),
        ({"name": "x" * 300, "read": "on"}, "The key's name"),
    ],
)
def test_the_form_refuses_an_invalid_key(site: Site, app: dibs.Dibs, fields: dict[str, str], problem: str) -> None:
    before = len(app.keys())
    page = site.visitor("admin").post("/keys", **fields)
    assert page.status_code == 400
    assert problem in text_of(page)
    assert len(app.keys()) == before + 1  # the visitor's own
    assert f'value="{fields.get("name", "")}"' in page.text


def test_a_revoked_key_is_refused(site: Site, app: dibs.Dibs) -> None:
    made = app.create_key("fleet", ["read"])
    holder = site.visitor()
    holder.sign_in(made.key)
    assert holder.get("/workflows").url.path == "/workflows"
    page = site.visitor("admin").post(f"/keys/{made.about.id}/revoke")
    assert f"Key {made.about.id} for fleet is revoked." in text_of(page)
    assert holder.get("/workflows").url.path == "/signin"


def test_revoking_the_key_of_the_session_ends_the_session(site: Site, app: dibs.Dibs) -> None:
    made = app.create_key("mine", ["admin"], rate_limit="none")
    visitor = site.visitor()
    visitor.sign_in(made.key)
    assert "and you are signed out: this session uses it." in visitor.get("/keys").text
    assert visitor.post(f"/keys/{made.about.id}/revoke").url.path == "/signin"


def test_a_key_that_does_not_exist_cannot_be_revoked(site: Site) -> None:
    page = site.visitor("admin").post("/keys/abcdefghijkl/revoke")
    assert page.status_code == 404
    assert "There is no key" in text_of(page)


@pytest.mark.parametrize("scopes", [("read",), ("read", "enqueue", "work")])
def test_a_key_without_the_admin_scope_neither_sees_nor_creates_nor_revokes_keys(
    site: Site, app: dibs.Dibs, scopes: tuple[str, ...]
) -> None:
    made = app.create_key("fleet", ["read"])
    visitor = site.visitor(*scopes)
    assert 'href="/keys"' not in visitor.get("/workflows").text
    assert visitor.get("/keys").status_code == 403
    assert visitor.post("/keys", name="more", admin="on").status_code == 403
    assert visitor.post(f"/keys/{made.about.id}/revoke").status_code == 403
    assert "more" not in named(app)


def test_a_limited_admin_key_neither_sees_nor_creates_keys(site: Site, app: dibs.Dibs) -> None:
    visitor = site.visitor("admin", queues=["ours"])
    assert visitor.get("/keys").status_code == 403
    assert visitor.post("/keys", name="more", admin="on").status_code == 403
    assert "more" not in named(app)


def test_hostile_names_are_shown_as_text(site: Site, app: dibs.Dibs) -> None:
    app.create_key('"><script>alert(1)</script>', ["read"], queues=["<img src=x>"])
    page = site.visitor("admin").get("/keys")
    assert "<script>alert" not in page.text
    assert "<img src=x>" not in page.text
