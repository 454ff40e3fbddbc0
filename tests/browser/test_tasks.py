"""Tasks: they appear without a reload, can be found, and can be retried or cancelled, many at a time."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from dibs import NewTask, State
from tests.browser.sample import fail_many, fill
from tests.browser.site import Site, expect_no_reload, live


def test_a_task_that_is_enqueued_elsewhere_shows_up_without_a_reload(site: Site) -> None:
    page = site.visitor("read", at="/tasks")
    live(page)
    task = site.app.enqueue("resize", {"picture": 4711})
    row = page.locator(f"#row-{task.id}")
    expect(row).to_contain_text("4711")
    expect(row.locator(".state")).to_have_text("pending")
    claim = site.app.claim("worker-1", lease=3600)
    assert claim is not None
    expect(row.locator(".state")).to_have_text("claimed")
    site.app.complete(claim, {"width": 800})
    expect(row.locator(".state")).to_have_text("completed")
    expect_no_reload(page)


def test_search_finds_text_in_params_and_errors_and_filters_narrow_it(site: Site) -> None:
    sample = fill(site.app, text="a needle")
    others = site.app.enqueue_many([NewTask("resize", {"straw": n}) for n in range(120)])
    page = site.visitor("read", at="/tasks")
    page.get_by_role("searchbox").fill("needle state:failed")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("tr[data-row]")).to_have_count(2)
    expect(page.locator(f"#row-{sample.failed}")).to_contain_text("a needle")
    page.get_by_role("searchbox").fill(str(others[3].id))
    page.get_by_role("searchbox").press("Enter")
    expect(page).to_have_url(re.compile(rf"(/tasks/{others[3].id}|id={others[3].id})"))
    page.goto("/tasks?type=resize")
    page.get_by_role("link", name="Older").click()
    expect(page.locator(f"#row-{others[60].id}")).to_be_visible()


def test_all_matching_tasks_are_retried_in_as_many_batches_as_needed(site: Site) -> None:
    ids = fail_many(site.app, 600)
    other = fail_many(site.app, 1, error="something else")[0]
    page = site.visitor(at="/tasks?state=failed&error=picture")
    page.get_by_role("radio", name="all that match").check()
    page.get_by_role("button", name="Retry dead letter").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry all tasks that match")
    dialog.get_by_role("button", name="Retry").click()
    expect(page.locator("#notice")).to_contain_text("600 tasks")
    assert site.app.stats().depth == {"pending": 600, "failed": 1}
    assert site.app.get(other).state is State.FAILED  # type: ignore[union-attr]
    assert site.app.get(ids[0]).state is State.PENDING  # type: ignore[union-attr]


def test_declining_a_confirmation_changes_nothing(site: Site) -> None:
    fail_many(site.app, 3)
    page = site.visitor(at="/dead")
    page.get_by_role("button", name="Retry all").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.reload()
    assert site.app.stats().depth == {"failed": 3}


def test_only_the_selected_tasks_are_cancelled(site: Site) -> None:
    tasks = site.app.enqueue_many([NewTask("resize", {"n": n}) for n in range(4)])
    page = site.visitor("read", "enqueue", at="/tasks")
    for task in tasks[:2]:
        page.get_by_role("checkbox", name=f"Select task {task.id}", exact=True).check()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator(f"#row-{tasks[0].id} .state")).to_have_text("cancelled")
    assert site.app.stats().depth == {"cancelled": 2, "pending": 2}


def test_one_group_of_the_dead_letter_is_redriven(site: Site) -> None:
    fail_many(site.app, 5, error="no such picture")
    fail_many(site.app, 2, error="the disk is full")
    page = site.visitor(at="/dead")
    live(page)
    group = page.locator("tr[data-row]", has_text="no such picture")
    expect(group.locator(".count")).to_have_text("5")
    group.get_by_role("button", name="Retry").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(group).to_have_count(0)
    expect(page.locator("tr[data-row]", has_text="the disk is full")).to_be_visible()
    expect_no_reload(page)
    assert site.app.stats().depth == {"pending": 5, "failed": 2}


def test_the_page_of_a_task_shows_its_history_and_updates_without_a_reload(site: Site) -> None:
    task = site.app.enqueue("resize", {"picture": 4711}, queue="pictures")
    first = site.app.claim("worker-1", lease=3600)
    assert first is not None
    site.app.fail(first, ConnectionError("the disk is away"), retry_in=0)
    page = site.visitor(at=f"/tasks/{task.id}")
    live(page)
    expect(page.locator("#params-text")).to_contain_text("4711")
    expect(page.locator("#error")).to_contain_text("the disk is away")
    expect(page.locator("#head .state")).to_have_text("pending")
    expect(page.locator("#reasons")).to_contain_text("worker")
    second = site.app.claim("worker-2", lease=3600)
    assert second is not None
    expect(page.locator("#state")).to_contain_text("worker-2")
    site.app.progress(second, 40, "scaling")
    site.app.complete(second, {"width": 800})
    expect(page.locator("#head .state")).to_have_text("completed")
    expect(page.locator("#result-text")).to_contain_text("800")
    expect_no_reload(page)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_failed_task_is_retried_from_its_page(site: Site) -> None:
    failed = fail_many(site.app, 1)[0]
    page = site.visitor("read", "enqueue", at=f"/tasks/{failed}")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#head .state")).to_have_text("pending")
    assert site.app.stats().depth == {"pending": 1}
