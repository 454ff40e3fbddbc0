"""Limits in the dashboard: their use and backlog for readers, actions for admins."""

from __future__ import annotations

import pytest

import dibs
from tests.helpers.browsing import text_of
from tests.server.dashboard.conftest import Site


def fill(app: dibs.Dibs) -> None:
    """A limit that is reached, carried by a queue, and a limit per group, carried by a type."""
    app.set_limit("mail-api", max=2, rate="100/minute", burst=10)
    app.set_limit("tenant", max=1, per="group")
    app.set_queue("mail", fair=True, limits=["mail-api"])
    app.set_type("charge", limits=["tenant"], group_by="tenant")
    app.enqueue_many([dibs.NewTask("send", queue="mail", group="acme") for _ in range(5)])
    app.enqueue_many([dibs.NewTask("charge", {"tenant": name}) for name in ("acme", "acme", "zeta")])
    app.claim_many("worker-1", 10)


def test_limits_are_shown_with_their_use_and_backlog(site: Site, app: dibs.Dibs) -> None:
    fill(app)
    page = site.visitor("read").get("/limits")
    text = text_of(page)
    assert "mail-api 2 of 2 used 2 2 100/minute burst 10 3 queue mail hand" in text
    assert "tenant for each group 2 1 none 1 type charge hand" in text
    assert 'title="The limit is reached, and tasks wait for it"' in page.text
    assert "queue mail mail-api take turns hand" in text
    assert "type charge tenant by tenant hand" in text
    assert "Set a limit" not in text
    assert "Remove" not in text
    menu = page.text[page.text.index('<nav aria-label="Main"') : page.text.index("</nav>")]
    assert '<a href="/limits" data-key="l" aria-current="page">Limits</a>' in menu
    assert menu.count("aria-current") == 1


def test_the_numbers_lead_to_the_tasks_that_use_a_limit_up_or_wait_for_it(site: Site, app: dibs.Dibs) -> None:
    fill(app)
    visitor = site.visitor("read")
    assert 'href="/tasks?with_limit=mail-api&amp;state=claimed"' in visitor.get("/limits").text
    assert visitor.get("/tasks?with_limit=mail-api&state=claimed").text.count("<tr data-row") == 2
    assert visitor.get("/tasks?with_limit=mail-api&state=pending").text.count("<tr data-row") == 3
    assert visitor.get("/tasks?group=zeta").text.count("<tr data-row") == 1


def test_a_store_without_limits_says_so(site: Site, app: dibs.Dibs) -> None:
    assert "There are no limits." in text_of(site.visitor("read").get("/limits"))


def test_the_groups_of_a_limit_and_of_a_queue_are_shown(site: Site, app: dibs.Dibs) -> None:
    fill(app)
    app.set_group("mail", "acme", weight=3)
    visitor = site.visitor("read")
    of_limit = text_of(visitor.get("/limits?show=tenant"))
    assert "acme 1 1 1 -" in of_limit
    assert "zeta 1 1 0 -" in of_limit
    assert "acme 3 3" in text_of(visitor.get("/limits?queue=mail"))
    assert visitor.get("/limits?show=unknown").status_code == 404


def test_the_value_set_by_hand_is_shown_beside_the_declared_value(site: Site, app: dibs.Dibs) -> None:
    from dibs.model.limit import NewLimit

    app._store.run(app._store.limits.put_limit(NewLimit(name="stripe", max=5), "code"))
    app.set_limit("stripe", max=2)
    text = text_of(site.visitor("read").get("/limits?show=stripe"))
    assert "hand instead of the code" in text
    assert "The code of a program declares:" in text


def test_an_admin_sets_changes_and_removes_a_limit(site: Site, app: dibs.Dibs) -> None:
    visitor = site.visitor("admin")
    answer = visitor.post("/limits", name="stripe", max="5", rate="100/minute", burst="10", per="group")
    done = "Limit stripe: at most 5 at once, 100/minute with bursts of 10 for each group. The next claims obey it."
    assert done in text_of(answer)
    limit = app.get_limit("stripe")
    assert (limit.max, limit.rate, limit.burst, limit.per) == (5, "100/minute", 10, "group")
    shown = visitor.get("/limits?show=stripe").text
    assert 'name="max" value="5"' in shown
    assert 'name="rate" value="100/minute"' in shown
    assert 'data-confirm="Remove limit stripe? Its tasks run without it."' in shown
    visitor.post("/limits", name="stripe", max="2")
    limit = app.get_limit("stripe")
    assert (limit.max, limit.rate, limit.burst, limit.per) == (2, "100/minute", 10, "group")
    assert 'name="shown" value="stripe"' in shown
    visitor.post("/limits", name="stripe", shown="stripe", max="2", rate="", burst="", per="")
    limit = app.get_limit("stripe")
    assert (limit.max, limit.rate, limit.burst, limit.per) == (2, None, 1, None)
    visitor.post("/limits/remove", name="stripe")
    assert app.limits() == []


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"name": "stripe"}, "limits nothing"),
        ({"name": "stripe", "max": "many"}, "must be a whole number"),
        ({"name": "stripe", "max": "0"}, "max must be between 1 and"),
        ({"name": "stripe", "rate": "often"}, "not a valid rate limit"),
        ({"name": " ", "max": "1"}, "name"),
        ({"name": "stripe", "max": "1", "per": "tenant"}, "per must be"),
    ],
)
def test_an_invalid_form_is_shown_again_with_the_problem(
    site: Site, app: dibs.Dibs, form: dict[str, str], problem: str
) -> None:
    answer = site.visitor("admin").post("/limits", **form)
    assert answer.status_code == 400
    assert problem in text_of(answer)
    assert app.limits() == []


def test_only_an_admin_of_all_queues_changes_limits(site: Site, app: dibs.Dibs) -> None:
    app.set_limit("stripe", max=5)
    for visitor in (site.visitor("read", "enqueue", "work"), site.visitor("admin", queues=["mail"])):
        assert visitor.post("/limits", name="stripe", max="1").status_code == 403
        assert visitor.post("/limits/remove", name="stripe").status_code == 403
    assert app.get_limit("stripe").max == 5


def test_a_key_limited_to_queues_sees_only_what_its_queues_and_types_carry(site: Site, app: dibs.Dibs) -> None:
    fill(app)
    app.set_limit("secret", max=5)
    app.set_queue("theirs", limits=["secret"])
    visitor = site.visitor("admin", queues=["mail"])
    page = visitor.get("/limits?show=mail-api")
    assert "mail-api" in page.text
    assert "acme" not in page.text
    assert "secret" not in page.text
    assert "theirs" not in page.text
    assert visitor.get("/limits?show=secret").status_code == 404
    assert visitor.get("/limits?queue=theirs").status_code == 403
    assert "acme" in visitor.get("/limits?queue=mail").text


def test_a_task_is_shown_with_its_group_and_limits(site: Site, app: dibs.Dibs) -> None:
    app.set_limit("stripe", max=5)
    task = app.enqueue_many([dibs.NewTask("charge", limits=["stripe"], group="acme")])[0]
    page = site.visitor("read").get(f"/tasks/{task.id}")
    assert "Group acme Limits stripe" in text_of(page)
    assert 'href="/limits?show=stripe#limit"' in page.text


def test_a_task_is_shown_with_the_limits_of_its_type_and_its_queue(site: Site, app: dibs.Dibs) -> None:
    for name in ("own", "of-type", "of-queue"):
        app.set_limit(name, max=5)
    app.set_type("charge", limits=["of-type"])
    app.set_queue("shop", limits=["of-queue", "own"])
    task = app.enqueue("charge", queue="shop", limits=["own"])
    page = site.visitor("read").get(f"/tasks/{task.id}")
    assert "Limits own of-type of its type of-queue of its queue" in text_of(page)


def test_a_limit_that_was_removed_is_marked_where_it_is_carried(site: Site, app: dibs.Dibs) -> None:
    fill(app)
    app.remove_limit("tenant")
    page = site.visitor("read").get("/limits")
    assert "type charge tenant removed by tenant hand" in text_of(page)
    assert "show=tenant" not in page.text


def test_names_are_shown_as_text(site: Site, app: dibs.Dibs) -> None:
    name = "<script>alert('x')</script>"
    app.set_limit(name, max=1)
    app.set_queue(name, limits=[name], fair=True)
    page = site.visitor("admin").get("/limits")
    assert "<script>alert" not in page.text
    assert page.status_code == 200
