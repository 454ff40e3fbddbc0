"""Retention in the dashboard: the rules and their changes for readers, a form for admins."""

from __future__ import annotations

import pytest

import dibs
from tests.helpers.browsing import text_of
from tests.server.dashboard.conftest import Site


def test_the_rules_and_their_changes_are_shown(site: Site, app: dibs.Dibs) -> None:
    app.signed("ann").set_retention("completed", None, type="invoice")
    app.signed("ben").set_retention("failed", 90, queue="mail")
    app.signed("cy").remove_retention("failed", queue="mail")
    page = site.visitor("read").get("/retention")
    text = text_of(page)
    assert "completed everything else 1d never" in text
    assert "completed type invoice forever" in text
    assert "cy failed queue mail removed" in text
    assert "Set a rule" not in text
    assert "/retention" in site.visitor("read").get("/queues").text


def test_an_admin_sets_and_removes_rules_and_is_recorded(site: Site, app: dibs.Dibs) -> None:
    visitor = site.visitor("admin")
    said = visitor.post("/retention", records="completed", scope="queue", name="mail", keep="0s")
    assert "completed of queue 'mail': deleted at the next upkeep." in text_of(said)
    rule = app.retention()[5]
    assert (rule.queue, rule.keep, rule.changed_by is None) == ("mail", 0, False)
    visitor.post("/retention", records="history", scope="store", keep="forever")
    assert app.retention()[3].keep is None
    visitor.post("/retention/remove", records="completed", scope="queue", name="mail")
    visitor.post("/retention/remove", records="history", scope="store")
    assert [rule.changed_at for rule in app.retention()] == [None] * 5


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"records": "completed", "scope": "store", "keep": "soon"}, "is not a valid duration"),
        ({"records": "completed", "scope": "queue", "keep": "1d"}, "queue of a retention rule"),
        ({"records": "completed", "scope": "store", "name": "mail", "keep": "1d"}, "has no name"),
        ({"records": "history", "scope": "queue", "name": "mail", "keep": "1d"}, "applies to the whole store"),
    ],
)
def test_an_invalid_form_is_shown_again_with_the_problem(
    site: Site, app: dibs.Dibs, form: dict[str, str], said: str
) -> None:
    answer = site.visitor("admin").post("/retention", **form)
    assert answer.status_code == 400
    assert said in text_of(answer)
    assert app.retention_changes() == []


def test_a_key_limited_to_queues_changes_only_their_rules(site: Site, app: dibs.Dibs) -> None:
    app.set_retention("completed", 5, type="secret-type")
    app.set_retention("completed", 5, queue="theirs")
    visitor = site.visitor("admin", queues=["mine"])
    text = text_of(visitor.get("/retention"))
    assert "secret-type" not in text
    assert "theirs" not in text
    visitor.post("/retention", records="completed", scope="queue", name="mine", keep="1h")
    assert [rule.keep for rule in app.retention() if rule.queue == "mine"] == [3600]
    for form in ({"scope": "queue", "name": "theirs"}, {"scope": "store"}, {"scope": "type", "name": "secret-type"}):
        assert visitor.post("/retention", records="completed", keep="0s", **form).status_code == 403
        assert visitor.post("/retention/remove", records="completed", **form).status_code == 403
