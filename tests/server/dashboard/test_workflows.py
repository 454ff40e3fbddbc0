"""Workflows in the dashboard: the drawing, the tables, their visibility and the buttons of each key."""

from __future__ import annotations

import re
import time
from typing import Any

import httpx
import pytest

import dibs
from dibs import NewStep, NewTask, NewWorkflow
from tests.helpers.browsing import text_of
from tests.helpers.workflows import (
    DIAMOND,
    claim,
    complete,
    fail,
    finalize,
    inner,
    start,
    state,
    step,
    sub,
    task_of,
)
from tests.server.dashboard.conftest import Site

HOSTILE = "<script>alert(1)</script>\u202e"


def boxes(page: httpx.Response) -> list[str]:
    """The text of each box of the graph."""
    return re.findall(r'<a href="[^"]*" class="node [^"]*" id="box-\d+" aria-label="([^"]*)"', page.text)


def arrows(page: httpx.Response) -> int:
    return page.text.count('<path class="arrow')


def links(page: httpx.Response) -> list[str]:
    return re.findall(r'href="(/[^"]*)"', page.text)


def buttons(page: httpx.Response) -> set[str]:
    """Where its forms lead, but for the one to sign out."""
    return set(re.findall(r'<form method="post" action="([^"]*)"', page.text)) - {"/signout"}


# The list


def test_the_list_shows_every_workflow_with_its_state_and_progress(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, *DIAMOND, name="diamond")
    complete(app, flow, "fetch")
    failed = start(app, step("one"), name="broken")
    fail(app, failed, "one", "no such page")
    finalize(app, failed)
    start(app, sub("inside", step("one")), name="outer")
    page = site.visitor("read").get("/workflows")
    text = text_of(page)
    assert re.search(r"running diamond #\d+ .*1 of 4", text)
    assert re.search(r"failed broken #\d+ .*no such page.* 1 of 1", text)
    assert "outer" in text
    assert "inside" not in text
    assert "<title>1 completed</title>" in page.text


def test_the_list_is_filtered_by_state_and_name(site: Site, app: dibs.Dibs) -> None:
    start(app, step("one"), name="kept")
    gone = start(app, step("one"), name="ended")
    app.cancel_workflow(gone)
    visitor = site.visitor("read")

    def named(query: str) -> set[str]:
        return set(re.findall(r"data-open>(\w+)<", visitor.get(f"/workflows{query}").text))

    assert named("") == {"kept", "ended"}
    assert named("?state=cancelled") == {"ended"}
    assert named("?name=kept&state=") == {"kept"}
    assert named("?name=kept&state=cancelled") == set()
    assert visitor.get("/workflows?state=nonsense").status_code == 400
    assert visitor.get("/workflows?colour=red").status_code == 400


def test_the_list_of_workflows_is_paged(site: Site, app: dibs.Dibs) -> None:
    ids = [start(app, step("one"), name="often") for _ in range(60)]
    visitor = site.visitor("read")
    first = visitor.get("/workflows?name=often")
    older = re.search(r'href="(/workflows\?[^"]*cursor=\d+)" rel="next"', first.text)
    assert older is not None
    second = visitor.get(older[1].replace("&amp;", "&"))
    seen = [int(number) for page in (first, second) for number in re.findall(r'id="row-(\d+)"', page.text)]
    assert seen == ids[::-1]
    assert 'rel="next"' not in second.text


def test_a_store_without_workflows_shows_a_message(site: Site) -> None:
    assert "No workflows yet." in text_of(site.visitor("read").get("/workflows"))


# The graph


def test_a_workflow_is_drawn_with_a_box_for_each_step_and_an_edge_for_each_dependency(
    site: Site, app: dibs.Dibs
) -> None:
    flow = start(app, *DIAMOND)
    complete(app, flow, "fetch")
    claim(app, flow, "right", "worker-9")
    fail(app, flow, "left")
    page = site.visitor("read").get(f"/workflows/{flow}")
    ids = {name: task_of(app, flow, name) for name in ("fetch", "left", "right", "merge")}
    assert boxes(page) == [
        f"fetch: fetch, completed, task {ids['fetch']}",
        f"left: left, failed, task {ids['left']}",
        f"right: right, claimed on worker-9, task {ids['right']}",
        f"merge: merge, cancelled, task {ids['merge']}",
    ]
    assert arrows(page) == 4
    assert all(f"/tasks/{task_id}" in links(page) for task_id in ids.values())


def test_the_table_of_steps_has_the_same_information_as_the_drawing(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, *DIAMOND)
    complete(app, flow, "fetch", {"pages": 2})
    fail(app, flow, "left", "no such page")
    text = text_of(site.visitor("read").get(f"/workflows/{flow}"))
    assert re.search(r"completed fetch #\d+ fetch 1 of 3 [\d.]+ m?s result", text)
    assert re.search(r"failed left #\d+ left fetch 1 of 3 permanent [\d.]+ m?s .*no such page", text)
    assert re.search(r"merge #\d+ merge left , right 0 of 3", text)


def test_the_box_of_a_sub_workflow_links_to_its_page_and_back(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, step("first"), sub("pages", step("one"), step("two"), after=["first"]))
    visitor = site.visitor("read")
    below = inner(app, flow, "pages")
    assert f"/workflows/{below}" in links(visitor.get(f"/workflows/{flow}"))
    page = visitor.get(f"/workflows/{below}")
    assert len(boxes(page)) == 2
    assert f"/workflows/{flow}" in links(page)
    assert f"Part of workflow {flow} , as task" in text_of(page)


def test_the_box_of_a_sub_workflow_shows_its_progress(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, sub("pages", step("one"), step("two"), step("three")))
    below = inner(app, flow, "pages")
    complete(app, below, "one")
    text = text_of(site.visitor("read").get(f"/workflows/{flow}"))
    assert re.search(rf"workflow {below} · 1 of 3", text)  # in the box
    assert re.search(rf"pages #\d+ workflow {below} 1 of 3", text)  # in the table


def test_the_filter_by_state_offers_the_current_states(site: Site, app: dibs.Dibs) -> None:
    """The choice is a part of the page that is kept up to date: the states of an hour ago would find nothing."""
    flow = start(app, *DIAMOND)
    visitor = site.visitor("read")

    def choice() -> list[str]:
        head = re.search(
            r'<header id="steps-head" data-live>.*?</header>', visitor.get(f"/workflows/{flow}").text, re.DOTALL
        )
        assert head is not None
        return re.findall(r'<a class="(\w+)" href="[^"]*state=', head[0])

    assert choice() == ["pending", "blocked"]
    complete(app, flow, "fetch")
    fail(app, flow, "left")
    finalize(app, flow)
    assert choice() == ["completed", "cancelled", "failed"]


def test_a_finalizer_is_drawn_after_all_other_steps(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, step("left"), step("right"), finalizer=NewTask("report"))
    page = site.visitor("read").get(f"/workflows/{flow}")
    assert page.text.count('<path class="arrow last"') == 2
    assert boxes(page)[2].startswith("report: report, blocked")
    assert re.search(r"Finalizer task #\d+ report blocked", text_of(page))


def test_the_page_shows_the_holder_of_the_finalization_and_refused_claims(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, step("one"))
    complete(app, flow, "one")
    app.claim_finalization(flow, "processor-1")
    app.claim_finalization(flow, "processor-2")
    text = text_of(site.visitor("read").get(f"/workflows/{flow}"))
    assert re.search(r"Held by processor-1 until in \d+ s", text)
    assert "Token 1" in text
    assert re.search(r"processor-2 already claimed .* \( ?processor-1 ?\)", text)
    assert re.search(r"processor-1 claimed Successfully claimed for finalization 1", text)


def test_the_page_shows_the_progress_and_the_next_action(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, *DIAMOND, deadline=3600.0, key="order-7")
    complete(app, flow, "fetch")
    text = text_of(site.visitor("read").get(f"/workflows/{flow}"))
    assert "Complete 25 % (1 of 4 ended)" in text
    assert "Execution has ready steps Next recheck later" in text
    assert re.search(r"Deadline in \d+ min", text)
    assert "Key order-7" in text


def test_the_page_shows_why_the_workflow_failed(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, *DIAMOND)
    complete(app, flow, "fetch")
    fail(app, flow, "left", f"no such page {HOSTILE}")
    finalize(app, flow)
    page = site.visitor("read").get(f"/workflows/{flow}")
    assert "StepFailed" in text_of(page)
    assert HOSTILE not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in page.text


def test_hostile_names_are_shown_as_text(site: Site, app: dibs.Dibs) -> None:
    task = NewTask("<img src=x onerror=alert(1)>", {"x": "y" * 1_000_000})
    name = "</title><script>alert(1)</script>"
    flow = app.start_workflow(NewWorkflow(name=name, steps=[NewStep(name='"><svg onload=alert(1)>', task=task)])).id
    visitor = site.visitor("read")
    for path in ("/workflows", f"/workflows/{flow}"):
        page = visitor.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img" not in page.text.replace('<img src="/static', "")
        assert "<svg onload" not in page.text
        assert len(page.content) < 100_000


# Many steps


def fan_out(app: dibs.Dibs, count: int, name: str = "pages") -> int:
    middle = [NewStep(name=f"page-{n}", task=NewTask("page"), after=["fetch"]) for n in range(count - 2)]
    steps = [step("fetch"), *middle, step("merge", *(each.name for each in middle))]
    return app.start_workflow(NewWorkflow(name=name, steps=steps, on_failure="continue")).id


def test_many_equal_steps_are_one_box_with_their_counts(site: Site, app: dibs.Dibs) -> None:
    flow = fan_out(app, 300)
    complete(app, flow, "fetch")
    held = app.claim_many("worker-1", 20)
    app.finish([(each, dibs.Completed()) for each in held[:15]])
    app.finish([(held[15], dibs.Failed(dibs.Failure("Error", "broken"), permanent=True))])
    visitor = site.visitor("read")
    page = visitor.get(f"/workflows/{flow}")
    _, many, _ = boxes(page)
    assert many == "page × 298: 1 failed, 278 pending, 4 claimed, 15 completed"  # noqa: RUF001 (the sign for times)
    [box] = {link for link in links(page) if "of=" in link}
    assert box.endswith("#steps")
    members = visitor.get(box)
    assert "in page (298)" in text_of(members)
    assert len(re.findall(r'<tr data-row id="step-', members.text)) == 100
    failed = visitor.get(f"/workflows/{flow}?state=failed")
    assert re.findall(r'id="step-(\d+)"', failed.text) == [str(held[15].task.id)]


def test_many_equal_steps_can_be_unfolded_up_to_a_limit(site: Site, app: dibs.Dibs) -> None:
    flow = fan_out(app, 60)
    visitor = site.visitor("read")
    folded = visitor.get(f"/workflows/{flow}")
    assert len(boxes(folded)) == 3
    assert f"/workflows/{flow}?unfold=1" in links(folded)
    assert len(boxes(visitor.get(f"/workflows/{flow}?unfold=1"))) == 60
    assert f"/workflows/{fan_out(app, 600)}?unfold=1" not in links(visitor.get(f"/workflows/{flow + 1}"))


def test_the_table_of_steps_is_paged(site: Site, app: dibs.Dibs) -> None:
    flow = fan_out(app, 250)
    visitor = site.visitor("read")
    path, seen = f"/workflows/{flow}", list[int]()
    while path:
        page = visitor.get(path)
        seen += [int(number) for number in re.findall(r'<tr data-row id="step-(\d+)"', page.text)]
        following = re.search(r'href="(/workflows/[^"]*)#steps" rel="next"', page.text)
        path = following[1].replace("&amp;", "&") if following else ""
    assert seen == [each.task_id for each in app.steps(flow)]


def test_a_workflow_of_ten_thousand_steps_makes_a_small_page(site: Site, app: dibs.Dibs) -> None:
    flow = fan_out(app, 10_000)
    visitor = site.visitor("read")
    visitor.get(f"/workflows/{flow}")
    began = time.process_time()  # not the time in which other processes run; the server is in this one
    page = visitor.get(f"/workflows/{flow}")
    assert time.process_time() - began < 5  # some 0.15 s
    assert len(boxes(page)) == 3
    assert len(page.content) < 200_000


def test_a_large_workflow_that_grows_is_drawn_with_its_new_steps(site: Site, app: dibs.Dibs) -> None:
    flow = fan_out(app, 400)
    visitor = site.visitor("read")
    assert len(boxes(visitor.get(f"/workflows/{flow}"))) == 3
    complete(app, flow, "fetch")
    known = visitor.get(f"/workflows/{flow}")
    assert boxes(known)[1].endswith(": 398 pending")
    assert re.search(r"page-0 #\d+ page fetch 0 of 3", text_of(known))
    app.add_steps(flow, [step("more", "merge")])
    grown = visitor.get(f"/workflows/{flow}")
    assert [each.partition(":")[0] for each in boxes(grown)][2:] == ["merge", "more"]
    assert re.search(r"401 steps in 4 boxes", text_of(grown))


# Buttons, and for whom


def test_a_workflow_is_cancelled_and_retried_by_a_button(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, *DIAMOND)
    visitor = site.visitor("read", "enqueue")
    assert buttons(visitor.get(f"/workflows/{flow}")) == {f"/workflows/{flow}/cancel"}
    cancelled = visitor.post(f"/workflows/{flow}/cancel")
    assert "Cancelled." in text_of(cancelled)
    assert state(app, flow) == "cancelled"
    assert buttons(cancelled) == {f"/workflows/{flow}/retry"}
    assert "Retried: the workflow continues from where it stopped." in text_of(visitor.post(f"/workflows/{flow}/retry"))
    assert state(app, flow) == "running"


def test_an_action_that_is_no_longer_possible_is_refused_with_a_message(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, step("one"))
    complete(app, flow, "one")
    finalize(app, flow)
    visitor = site.visitor("admin")
    assert buttons(visitor.get(f"/workflows/{flow}")) == set()
    refused = visitor.post(f"/workflows/{flow}/cancel")
    assert refused.status_code == 409
    assert "cannot be cancelled: it is completed." in text_of(refused)


def test_a_key_with_only_the_read_scope_sees_no_button_and_is_refused(site: Site, app: dibs.Dibs) -> None:
    flow = start(app, *DIAMOND)
    visitor = site.visitor("read")
    assert buttons(visitor.get(f"/workflows/{flow}")) == set()
    for verb in ("cancel", "retry"):
        assert visitor.post(f"/workflows/{flow}/{verb}").status_code == 403
    assert state(app, flow) == "running"


def test_workflows_of_other_queues_do_not_exist_for_a_limited_key(site: Site, app: dibs.Dibs) -> None:
    ours = start(app, step("one", queue="ours"), name="ours")
    mixed = start(app, step("one", queue="ours"), step("two", queue="theirs"), name="mixed")
    visitor = site.visitor("read", "enqueue", queues=["ours"])
    listed = text_of(visitor.get("/workflows"))
    assert f"ours #{ours}" in listed
    assert "mixed" not in listed
    assert visitor.get(f"/workflows/{ours}").status_code == 200
    assert visitor.get(f"/workflows/{mixed}").status_code == 404
    assert visitor.post(f"/workflows/{mixed}/cancel").status_code == 404
    assert state(app, mixed) == "running"
    assert "Cancelled." in text_of(visitor.post(f"/workflows/{ours}/cancel"))


@pytest.mark.parametrize("flow", [7, 2**63, 10**18])
def test_an_unknown_workflow_is_reported_on_a_page(site: Site, flow: Any) -> None:
    page = site.visitor("read").get(f"/workflows/{flow}")
    assert page.status_code == 404
    assert f"no workflow {flow}" in text_of(page)
