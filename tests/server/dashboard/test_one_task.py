"""The page of one task: its state, its history, the allowed actions, and all content as text."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import dibs
from tests.helpers.browsing import text_of
from tests.helpers.codecs import Veil
from tests.helpers.retention import keep
from tests.helpers.tasks import dead, events, task_in
from tests.server.dashboard.conftest import Site
from tests.server.dashboard.test_tasks import EVIL


def buttons(text: str) -> list[str]:
    """What may be done to the task."""
    return re.findall(r'action="/tasks/\d+/(\w+)"', text)


def test_the_page_of_a_running_task_shows_holder_lease_and_progress(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", {"width": 640}, queue="media", key="photo-7", priority=5)
    claim = app.claim_by_id(task.id, "worker-7", lease=100)
    app.progress(claim, 40, "page 4 of 10")
    page = site.visitor("read").get(f"/tasks/{task.id}")
    words = text_of(page)
    assert re.search(r"Claimed by worker-7 , its lease ends in (9\d s|1 min)", words)
    assert '<progress max="100" value="40"' in page.text
    assert "40 % · page 4 of 10" in words
    for fact in ('"width": 640', "Queue media", "Key photo-7", "Priority 5", "Token 1"):
        assert fact in words


def test_the_timeline_shows_every_attempt_with_its_worker_and_error(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", max_attempts=3)
    for number in (1, 2):
        app.fail(app.claim_by_id(task.id, f"worker-{number}"), ValueError(f"broken {number}"), retry_in=0)
    app.complete(app.claim_by_id(task.id, "worker-3"), {"size": [3, 4]})
    page = site.visitor("read").get(f"/tasks/{task.id}")
    words = text_of(page)
    assert re.search(r"1 worker-1 .*failed ValueError: broken 1 2 worker-2 .*broken 2 3 worker-3 .*completed", words)
    assert re.findall(r'<rect class="(\w+) run"', page.text) == ["failed", "failed", "completed"]
    assert '"size": [' in words
    assert [entry for entry in ("enqueued", "claimed", "failed", "completed") if entry not in words] == []


def test_a_permanent_failure_is_marked_as_permanent_on_the_pages(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", max_attempts=3)
    app.fail(app.claim_by_id(task.id, "worker-1"), ValueError("bad input"), permanent=True)
    words = text_of(site.visitor("read").get(f"/tasks/{task.id}"))
    assert "It failed permanently in attempt 1 of 3" in words
    assert "Permanent error ValueError: bad input" in words
    assert "Attempts 1 of 3 the failure was permanent" in words
    assert words.count("failed permanently") == 3  # the explanation, the attempt, the history
    assert re.search(r"1 /3 permanent", text_of(site.visitor("read").get("/tasks?state=failed")))


def test_an_error_is_shown_with_its_traceback(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    failure = dibs.Failure("ValueError", "no width", "Traceback (most recent call last):\n  in resize")
    app.fail(app.claim_by_id(task.id, "w-1"), failure, permanent=True)
    words = text_of(site.visitor("read").get(f"/tasks/{task.id}"))
    assert "ValueError: no width" in words
    assert "Traceback (most recent call last): in resize" in words


def test_the_page_of_a_waiting_task_shows_the_reason(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", queue="mail")
    app.pause("mail")
    words = text_of(site.visitor("read").get(f"/tasks/{task.id}"))
    assert "Why is it not running?" in words
    assert "Its queue 'mail' is paused" in words
    assert "No live worker serves queue 'mail'" in words


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("pending", ["cancel", "change"]),
        ("claimed", ["cancel"]),
        ("scheduled", ["retry", "cancel", "change"]),
        ("failed", ["retry"]),
        ("cancelled", ["retry"]),
        ("completed", []),
    ],
)
def test_buttons_depend_on_the_state_of_the_task_and_the_scopes_of_the_key(
    site: Site, app: dibs.Dibs, state: str, shown: list[str]
) -> None:
    task = task_in(app, state)
    assert buttons(site.visitor("read", "enqueue").get(f"/tasks/{task.id}").text) == shown
    assert buttons(site.visitor("read", "work").get(f"/tasks/{task.id}").text) == []


def test_a_task_is_cancelled_and_retried(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    visitor = site.visitor("read", "enqueue")
    assert "Cancelled." in text_of(visitor.post(f"/tasks/{task.id}/cancel"))
    assert "Retried: the task is pending, with all its attempts." in text_of(visitor.post(f"/tasks/{task.id}/retry"))
    app.claim_by_id(task.id, "w-1")
    assert "The worker was asked to stop." in text_of(visitor.post(f"/tasks/{task.id}/cancel"))
    assert events(app, task.id) == ["enqueued", "cancelled", "retried", "claimed", "cancel_requested"]
    refused = visitor.post(f"/tasks/{task.id}/retry")
    assert (refused.status_code, "cannot be retried: it is claimed" in text_of(refused)) == (409, True)


def test_a_limited_key_finds_no_task_of_other_queues(site: Site, app: dibs.Dibs) -> None:
    [theirs] = dead(app, queue="theirs")
    visitor = site.visitor("admin", queues=["mine"])
    for path in (f"/tasks/{theirs}", f"/tasks/{theirs}/whole/params", "/tasks/999999"):
        assert visitor.get(path).status_code == 404
    for action in ("cancel", "retry"):
        assert visitor.post(f"/tasks/{theirs}/{action}").status_code == 404
    assert events(app, theirs)[-1] == "failed"


def test_an_unknown_task_is_reported_on_a_page(site: Site) -> None:
    answer = site.visitor("read").get("/tasks/4711")
    assert answer.status_code == 404
    assert "4711" in text_of(answer)


def test_the_page_of_a_pruned_task_shows_its_history(site: Site, app: dibs.Dibs) -> None:
    task = task_in(app, "completed")
    keep(app, completed=0)
    app.upkeep()
    assert app.get(task.id) is None
    page = site.visitor("read").get(f"/tasks/{task.id}")
    assert page.status_code == 200
    assert "This task was pruned: its retention has ended." in text_of(page)
    assert re.findall(r'<rect class="(\w+) run"', page.text) == ["completed"]
    assert buttons(page.text) == []
    assert site.visitor("read", queues=["default"]).get(f"/tasks/{task.id}").status_code == 404


def test_a_step_links_to_its_workflow_if_the_key_covers_all_its_queues(site: Site, app: dibs.Dibs) -> None:
    steps = [
        dibs.NewStep(name="a", task=dibs.NewTask("resize", queue="mine")),
        dibs.NewStep(name="b", task=dibs.NewTask("resize", queue="theirs"), after=["a"]),
    ]
    workflow = app.start_workflow(dibs.NewWorkflow(name="my order", steps=steps))
    step = app.steps(workflow.id)[0].task_id
    assert f'href="/workflows/{workflow.id}"' in site.visitor("read").get(f"/tasks/{step}").text
    limited = site.visitor("read", queues=["mine"]).get(f"/tasks/{step}")
    assert "my order" not in limited.text
    assert f'href="/workflows/{workflow.id}"' not in limited.text


def test_the_task_of_a_tick_links_to_its_schedule(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("report", key="schedule:every night:2026-11-15T00:00:00Z")
    page = site.visitor("read").get(f"/tasks/{task.id}")
    assert "Schedule every night tick of 2026-11-15T00:00:00Z" in text_of(page)
    assert 'href="/schedules?show=every%20night#schedule-every%20night"' in page.text


def test_the_steps_of_a_workflow_link_to_the_result_on_the_task_page(site: Site, app: dibs.Dibs) -> None:
    steps = [dibs.NewStep(name="a", task=dibs.NewTask("resize"))]
    workflow = app.start_workflow(dibs.NewWorkflow(name="order", steps=steps))
    claim = app.claim("w-1")
    assert claim is not None
    app.complete(claim, {"bytes": 7})
    visitor = site.visitor("read")
    assert f'href="/tasks/{claim.task_id}#result"' in visitor.get(f"/workflows/{workflow.id}").text
    result = re.search(r'id="result".*?</section>', visitor.get(f"/tasks/{claim.task_id}").text, re.DOTALL)
    assert result is not None
    assert "bytes" in result[0]


def test_long_texts_are_cut_and_can_be_downloaded_in_full(site: Site, app: dibs.Dibs) -> None:
    params = {"text": "x" * 1_000_000}
    task = app.enqueue("big", params, max_attempts=1)
    failure = dibs.Failure("E", "m" * 60_000, "t" * 60_000)
    app.fail(app.claim_by_id(task.id, "w-1"), failure, permanent=True)
    visitor = site.visitor("read")
    page = visitor.get(f"/tasks/{task.id}")
    assert len(page.content) < 120_000
    assert "Download all" in page.text
    whole = visitor.get(f"/tasks/{task.id}/whole/params")
    assert json.loads(whole.text) == params
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["content-disposition"] == f'attachment; filename="task-{task.id}-params.json"'
    assert whole.headers["x-content-type-options"] == "nosniff"
    error = visitor.get(f"/tasks/{task.id}/whole/error").text
    assert error.endswith("m" * 60_000)
    for missing in ("result", "token", "..%2f"):
        assert visitor.get(f"/tasks/{task.id}/whole/{missing}").status_code == 404


@pytest.mark.parametrize(
    "params",
    [
        {"wide": [0] * 300_000},
        {"deep": json.loads("[" * 60 + "0" + "]" * 60)},
        {"both": json.loads("[" * 60 + ",".join(["0"] * 200_000) + "]" * 60)},
        {f"key {number}": number for number in range(40_000)},
        {EVIL: {EVIL: [EVIL]}},
        {"": None},
        {},
    ],
    ids=["wide", "deep", "wide and deep", "many keys", "evil", "empty key", "empty"],
)
def test_any_params_and_results_make_a_page_of_bounded_size(site: Site, app: dibs.Dibs, params: dict[str, Any]) -> None:
    task = app.enqueue("odd", params)
    app.complete(app.claim_by_id(task.id, "w-1"), params)
    visitor = site.visitor("read")
    page = visitor.get(f"/tasks/{task.id}")
    assert page.status_code == 200
    assert len(page.content) < 200_000
    for part in ("params", "result"):
        assert json.loads(visitor.get(f"/tasks/{task.id}/whole/{part}").text) == params


def test_hostile_texts_are_shown_as_text(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("<script>t</script>\u202e", {EVIL: EVIL}, queue="<i>\u202eq</i>", key='"><script>k</script>')
    claim = app.claim_by_id(task.id, "w-1")
    app.progress(claim, 3, EVIL)
    visitor = site.visitor("admin")
    held = visitor.get(f"/tasks/{task.id}")
    app.fail(claim, dibs.Failure("<b>E</b>" + EVIL, EVIL, EVIL), permanent=True)
    for page in (held, visitor.get(f"/tasks/{task.id}"), visitor.get(f"/tasks/{task.id}?history=all")):
        assert page.status_code == 200
        assert "<script>t" not in page.text
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert not set(page.text) & {"\u202e", "\u2066", "\x07", "\x1b"}


def test_a_long_history_shows_its_newest_entries_until_all_are_requested(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    for _ in range(130):
        app.release(app.claim_by_id(task.id, "w-1"))
    visitor = site.visitor("read")
    page = visitor.get(f"/tasks/{task.id}")
    assert "the last 200 of 261 entries" in text_of(page)
    assert page.text.count('data-label="Time"') == 200
    assert re.findall(r'data-label="Attempt">(\d+)<', page.text) == [str(number) for number in range(92, 131)]
    assert visitor.get(f"/tasks/{task.id}?history=all").text.count('data-label="Time"') == 261


def test_a_very_long_history_makes_a_page_of_bounded_size(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    for _ in range(1005):
        app.release(app.claim_by_id(task.id, "w-1"))
    visitor = site.visitor("read")
    some, most = visitor.get(f"/tasks/{task.id}"), visitor.get(f"/tasks/{task.id}?history=all")
    assert "the last 200 of 2,011 entries · more" in text_of(some)
    assert "the last 2,000 of 2,011 entries" in text_of(most)
    assert most.text.count('data-label="Time"') == 2000


# Expiry, and the pause of the type


def test_the_page_shows_an_expiry_and_that_the_task_has_expired(site: Site, app: dibs.Dibs) -> None:
    soon = app.enqueue("send", expires_in=3600)
    late = app.enqueue("send", expires_at=datetime(2000, 1, 1, tzinfo=UTC))
    app.upkeep()
    visitor = site.visitor("read")
    assert "Expires" in text_of(visitor.get(f"/tasks/{soon.id}"))
    shown = text_of(visitor.get(f"/tasks/{late.id}"))
    assert ("Expired" in shown, "TaskExpired" in shown) == (True, True)


def test_a_type_is_paused_on_the_page_of_a_task_and_resumed_there_or_on_the_queues_page(
    site: Site, app: dibs.Dibs
) -> None:
    task = app.enqueue("send")
    visitor = site.visitor("admin")
    page = visitor.post(f"/tasks/{task.id}/pause-type")
    assert "Task type send is paused" in text_of(page)
    assert app.claim("worker-1") is None
    assert "Resume type" in page.text
    visitor.post(f"/tasks/{task.id}/resume-type")
    assert app.paused_types() == []
    app.pause_type("send")
    assert "Paused task types" in text_of(visitor.get("/queues"))
    assert "Task type send is resumed" in text_of(visitor.post("/types/resume", name="send"))
    assert app.claim("worker-1") is not None


def test_a_visitor_of_some_queues_cannot_pause_a_type(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("send", queue="mine")
    visitor = site.visitor("admin", queues=["mine"])
    assert "Pause type" not in visitor.get(f"/tasks/{task.id}").text
    assert visitor.post(f"/tasks/{task.id}/pause-type").status_code == 403
    assert visitor.post("/types/resume", name="send").status_code == 403
    assert app.paused_types() == []


def log_line(claim: dibs.Claim, number: int, message: str, level: str = "info") -> dibs.LogLine:
    at = datetime(2025, 11, 12, 10, 30, 0, 123456, tzinfo=UTC)
    return dibs.LogLine(claim.task_id, claim.token, claim.attempt, number, at, dibs.LogLevel(level), "videos", message)


def add_lines(app: dibs.Dibs, *lines: dibs.LogLine) -> None:
    app._store.run(app._store.logs.add_log_lines(lines))


def test_logs_are_shown_by_attempt_with_the_newest_open(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    page = site.visitor("read").get(f"/tasks/{task.id}")
    assert "<h2>Logs</h2>" not in page.text
    assert "data-restless" not in page.text
    first = app.claim_by_id(task.id, "w-1")
    add_lines(app, *(log_line(first, number, f"line {number}") for number in range(1, 251)))
    app.fail(first, "no", retry_in=0)
    second = app.claim_by_id(task.id, "w-1")
    add_lines(app, log_line(second, 1, "goes wrong", "error"))
    page = site.visitor("read").get(f"/tasks/{task.id}")
    words = text_of(page)
    assert "Attempt 2 1 line 10:30:00.123 error goes wrong Attempt 1 250 lines, the last 200 are shown" in words
    assert "line 51 " in words
    assert "line 50 " not in words
    assert re.findall(r'id="log-panel-(\d)"( open)?', page.text) == [("2", " open"), ("1", "")]
    assert "data-restless" in page.text  # lines are written without a transition
    app.complete(second)
    assert "data-restless" not in site.visitor("read").get(f"/tasks/{task.id}").text


def test_log_lines_are_text(site: Site, app: dibs.Dibs) -> None:
    claim = app.claim_by_id(app.enqueue("resize").id, "w-1")
    add_lines(app, log_line(claim, 1, EVIL), msgspec.structs.replace(log_line(claim, 2, "x"), logger=f'"{EVIL}'))
    page = site.visitor("read").get(f"/tasks/{claim.task_id}")
    assert "&lt;script&gt;alert(1)" in page.text
    assert "<script>alert" not in page.text
    assert "<img src=x" not in page.text
    assert not set(page.text) & {"\u202e", "\u2066", "\x07", "\x1b"}


def test_a_key_limited_to_other_queues_sees_no_logs(site: Site, app: dibs.Dibs) -> None:
    claim = app.claim_by_id(app.enqueue("resize", queue="mail").id, "w-1")
    add_lines(app, log_line(claim, 1, "private"))
    visitor = site.visitor("read", queues=["video"])
    answer = visitor.get(f"/tasks/{claim.task_id}")
    assert (answer.status_code, "private" in answer.text) == (404, False)


def test_encoded_values_are_shown_in_words_and_downloaded_as_they_are_stored(site: Site, app: dibs.Dibs) -> None:
    charge = app.task(name="charge", codec=Veil())(lambda card: card)
    task = charge.enqueue("4111-1111")
    visitor = site.visitor("read", "enqueue")
    words = text_of(visitor.get(f"/tasks/{task.id}"))
    assert re.search(r"Params encoded by veil, 68 bytes", words)
    assert "Encoded params are changed by a program that has the codec." in words
    assert 'name="params"' not in visitor.get(f"/tasks/{task.id}").text
    assert re.search(r"charge +encoded by veil +pending", text_of(visitor.get("/tasks")), re.IGNORECASE)
    app.change(task.id, params=charge.new("5555").params)
    app.complete(app.claim_by_id(task.id, "worker-1"), charge.encode("4111-1111"))
    words = text_of(visitor.get(f"/tasks/{task.id}"))
    assert re.search(r"Result encoded by veil, \d+ bytes", words)
    assert "params $encoded" in words  # in the history
    stored = json.loads(visitor.get(f"/tasks/{task.id}/whole/result").text)
    assert charge.decode(stored) == "4111-1111"


def test_only_a_task_that_may_still_run_shows_when_it_is_due(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", delay=60)
    path = f"/tasks/{task.id}"
    assert "<dt>Due</dt>" in site.visitor("read").get(path).text
    app.cancel(task.id)
    assert "<dt>Due</dt>" not in site.visitor("read").get(path).text
