"""The pages to keep open: they update without a reload, and their buttons have the described effect."""

from __future__ import annotations

import re

import httpx
import psycopg
import pytest
from playwright.sync_api import Route, expect

from dibs import NewTask, State
from tests.browser.sample import fill
from tests.browser.site import Site, expect_no_reload, live
from tests.helpers.workflows import DIAMOND, start, step


def test_the_overview_counts_what_is_enqueued_elsewhere_without_a_reload(site: Site) -> None:
    page = site.visitor("read")
    live(page)
    expect(page.get_by_text("enqueue the first task")).to_be_visible()
    site.app.enqueue_many([NewTask("resize", {"n": n}) for n in range(42)])
    expect(page.locator("#figure-pending")).to_have_text("42")
    claims = site.app.claim_many("worker-1", 2, lease=3600)
    site.app.fail(claims[0], "no such picture", permanent=True)
    expect(page.locator("#figure-pending")).to_have_text("40")
    expect(page.locator("#figure-claimed")).to_have_text("1")
    expect(page.locator("#figure-dead")).to_have_text("1")
    expect(page.locator("#failures")).to_contain_text("no such picture")
    expect(page.locator("#chart-depth svg")).to_be_visible()
    expect_no_reload(page)


def test_the_first_visitor_sees_charts_at_once(site: Site) -> None:
    site.app.enqueue_many([NewTask("resize", {"n": n}) for n in range(3)])
    site.app.complete(site.app.claim_many("worker-1", 1)[0])
    page = site.visitor("read")
    for name in ("depth", "wait", "run"):
        expect(page.locator(f"#chart-{name} svg :is(.lone, .line, .edge)").first).to_be_visible()
        expect(page.locator(f"#chart-{name}")).not_to_contain_text("No data")


def test_a_change_between_the_page_and_its_first_update_is_shown(site: Site) -> None:
    page = site.visitor("read", at="/queues")
    key = site.key("read")

    def hold_back(route: Route) -> None:
        site.app.enqueue("resize", {}, queue="late")
        httpx.get(f"{site.url}/metrics", headers={"X-API-Key": key}).raise_for_status()  # for this the server looks
        route.continue_()

    page.route("**/live", hold_back)
    page.reload()
    expect(page.locator("tr[data-row]", has_text="late")).to_be_visible()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_page_shows_the_age_of_its_figures_while_the_store_does_not_answer(site: Site, url: str) -> None:
    page = site.visitor("read", at="/queues")
    live(page)
    sign = page.locator("#live-status")
    with psycopg.connect(url) as holding:
        holding.execute("LOCK TABLE dibs_workers IN ACCESS EXCLUSIVE MODE")
        expect(sign).to_have_class(re.compile(r"\boff\b"))
        expect(sign).to_have_text(re.compile(r"numbers are \d+ s old"))
        holding.commit()
    expect(sign).to_have_text("live")
    expect(sign).to_have_class(re.compile(r"\bon\b"))
    expect_no_reload(page)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_page_from_the_back_forward_cache_is_loaded_again(site: Site) -> None:
    page = site.visitor("read", at="/queues")
    live(page)
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: false }))")
    expect_no_reload(page)
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    with page.expect_navigation():
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    site.app.enqueue("resize", {}, queue="late")
    expect(page.locator("tr[data-row]", has_text="late")).to_be_visible()


def test_a_queue_is_paused_and_resumed(site: Site) -> None:
    site.app.enqueue("resize", {}, queue="pictures")
    page = site.visitor(at="/queues")
    live(page)
    row = page.locator("tr[data-row]", has_text="pictures")
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(row.locator(".state.paused")).to_be_visible()
    assert site.app.claim("worker-1") is None
    row.get_by_role("button", name="Resume").click()
    expect(row.locator(".state.paused")).to_have_count(0)
    assert site.app.claim("worker-1") is not None
    expect_no_reload(page)


def test_pausing_needs_a_confirmation_and_a_double_click_pauses_nothing(site: Site) -> None:
    for name in ("films", "pictures"):
        site.app.enqueue("resize", queue=name)
    page = site.visitor(at="/queues")
    row = page.locator("tr[data-row]", has_text="films")
    row.get_by_role("button", name="Pause").dblclick()
    expect(page.get_by_role("dialog")).to_contain_text("Pause queue films?")
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [queue.name for queue in site.app.queues() if queue.paused] == []


def test_the_second_click_of_a_double_click_does_not_confirm(site: Site) -> None:
    site.app.enqueue("resize", queue="films")
    page = site.visitor(at="/queues")
    page.locator("tr[data-row]", has_text="films").get_by_role("button", name="Pause").click()
    box = page.locator("#confirm-yes").bounding_box()
    assert box is not None
    page.keyboard.press("Escape")
    page.evaluate(  # as on a small screen, where the question opens under the cursor
        """([x, y]) => Object.assign(document.querySelector("tr[data-row] form.act").style,
             {position: "fixed", left: `${x}px`, top: `${y}px`})""",
        [box["x"], box["y"]],
    )
    page.mouse.dblclick(box["x"] + 10, box["y"] + 10)
    expect(page.get_by_role("dialog")).to_be_visible()
    assert [queue.name for queue in site.app.queues() if queue.paused] == []


def test_a_message_overlays_the_page_and_moves_nothing(site: Site) -> None:
    for name in ("films", "pictures"):
        site.app.enqueue("resize", queue=name)
        site.app.pause(name)
    page = site.visitor(at="/queues")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(2)
    expect(page.get_by_text("still being counted")).to_have_count(0)  # the line is there while the counts are old
    before = [rows.nth(n).bounding_box() for n in range(2)]
    rows.nth(0).get_by_role("button", name="Resume").click()
    expect(page.locator("#notice")).to_contain_text("films")
    after = [rows.nth(n).bounding_box() for n in range(2)]
    assert [box["y"] for box in before if box] == [box["y"] for box in after if box]
    button = rows.nth(1).get_by_role("button", name="Resume")
    button.click(timeout=5000)  # the message does not cover it, and takes no clicks
    expect(page.locator("#notice")).to_contain_text("pictures")


def test_a_message_that_came_with_the_page_disappears_after_a_while(site: Site) -> None:
    site.app.enqueue("resize", queue="films")
    page = site.visitor(at="/queues")
    page.clock.install()
    page.context.add_cookies([{"name": "dibs_notice", "value": "films%20goes%20on.", "url": site.url}])
    page.reload()
    expect(page.locator("#notice")).to_contain_text("films goes on.")
    page.clock.fast_forward(7000)
    expect(page.locator("#notice")).to_be_empty()


def test_a_queue_that_is_paused_elsewhere_is_shown_as_paused(site: Site) -> None:
    site.app.enqueue("resize", {}, queue="pictures")
    page = site.visitor("read", at="/queues")
    live(page)
    site.app.pause("pictures")
    site.app.enqueue("resize", {}, queue="pictures")  # a pulse tells of what happens to tasks
    expect(page.locator("tr[data-row]", has_text="pictures").locator(".state.paused")).to_be_visible()
    expect_no_reload(page)


def test_a_worker_is_shown_with_its_claimed_tasks(site: Site) -> None:
    sample = fill(site.app)
    page = site.visitor("read", at="/workers")
    row = page.locator("tr[data-row]", has_text="worker-1")
    expect(row.get_by_role("link", name=f"#{sample.claimed}", exact=True)).to_be_visible()
    row.get_by_role("link", name="worker-1").click()
    expect(page).to_have_url(re.compile(r"/tasks\?worker=worker-1"))
    expect(page.locator(f"#row-{sample.claimed}")).to_be_visible()


def test_a_workflow_is_drawn_and_its_boxes_change_with_its_steps(site: Site) -> None:
    workflow = start(site.app, *DIAMOND)
    page = site.visitor("read", at="/workflows")
    page.get_by_role("link", name="order").click()
    live(page)
    boxes = page.locator("svg.flow a.node")
    expect(boxes).to_have_count(4)
    fetch, left = (page.locator("svg.flow a.node", has_text=name) for name in ("fetch", "left"))
    expect(fetch).to_have_class(re.compile("pending"))
    expect(left).to_have_class(re.compile("blocked"))
    claim = site.app.claim("worker-1", lease=3600)
    assert claim is not None
    expect(fetch).to_have_class(re.compile("claimed"))
    site.app.complete(claim)
    expect(fetch).to_have_class(re.compile("completed"))
    expect(left).to_have_class(re.compile("pending"))
    expect_no_reload(page)
    fetch.click()
    expect(page).to_have_url(f"{site.url}/tasks/{claim.task.id}")
    assert site.app.get_workflow(workflow) is not None


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_workflow_of_a_hundred_steps_can_be_read_without_overlaps(site: Site) -> None:
    fan = [step(f"part-{n}", "fetch") for n in range(60)]
    chain = [step(f"link-{n}", f"link-{n - 1}" if n else "fetch") for n in range(38)]
    workflow = start(site.app, step("fetch"), *fan, *chain, step("merge", *(each.name for each in fan)))
    page = site.visitor("read", at=f"/workflows/{workflow}?unfold=1")
    expect(page.locator("svg.flow a.node")).to_have_count(100)
    overlaps = page.evaluate(
        """() => {
          const boxes = [...document.querySelectorAll("svg.flow rect.box")].map((each) => each.getBBox());
          const cross = (from, size, other, otherSize) => from < other + otherSize && other < from + size;
          const meet = (a, b) => cross(a.x, a.width, b.x, b.width) && cross(a.y, a.height, b.y, b.height);
          return boxes.flatMap((a, n) => boxes.slice(n + 1).filter((b) => meet(a, b))).length;
        }"""
    )
    assert overlaps == 0


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_failed_workflow_is_retried_by_a_button(site: Site) -> None:
    workflow = start(site.app, step("charge"), step("ship", "charge"))
    claim = site.app.claim("worker-1")
    assert claim is not None
    site.app.fail(claim, "the card has expired", permanent=True)
    page = site.visitor(at=f"/workflows/{workflow}")
    live(page)
    expect(page.locator("#flow-head .state")).to_have_text("failed")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#flow-head .state")).to_have_text("running")
    expect_no_reload(page)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_schedule_is_run_now_and_disabled(site: Site) -> None:
    site.app.set_schedule("nightly", "0 3 * * *", "clean_up")
    page = site.visitor(at="/schedules")
    row = page.locator("tr[data-row]", has_text="nightly")
    row.get_by_role("button", name="Run now").click()
    expect(page.locator("#notice")).not_to_be_empty()
    assert [task.state for task in site.app.list_tasks(type="clean_up")] == [State.PENDING]
    row.get_by_role("button", name="Disable").click()
    page.get_by_role("dialog").get_by_role("button", name="Disable").click()
    expect(row.locator(".state")).to_have_text("disabled")
    assert not site.app.get_schedule("nightly").enabled


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_key_is_created_shown_once_and_revoked(site: Site) -> None:
    page = site.visitor(at="/keys")
    page.get_by_label("Name").fill("ci")
    page.get_by_role("checkbox", name="read").check()
    page.get_by_role("button", name="Create").click()
    secret = page.locator("#secret").inner_text()
    assert site.stranger_may_enter(secret)
    page.goto("/keys")
    expect(page.get_by_role("main")).not_to_contain_text(secret)
    row = page.locator("tr[data-row]", has_text="ci")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row.locator(".state")).to_have_text("revoked")
    assert not site.stranger_may_enter(secret)
