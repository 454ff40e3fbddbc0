"""What people see about limits is true, before a claim has looked at the tasks as well as afterwards."""

from __future__ import annotations

from typing import Any

from dibs import GroupInfo, NewTask
from dibs.model.checks import from_micros
from tests.helpers.clients import Clock, run
from tests.helpers.limiting import claim, enqueue, groups_of, operations, put, put_group, put_queue, put_type, use


def waiting_of(app: Any, limit: str) -> dict[str | None, tuple[int, int]]:
    return {group.group: (group.used, group.waiting) for group in groups_of(app, limit)}


def queue_groups(app: Any, queue: str, **options: Any) -> list[GroupInfo]:
    found: list[GroupInfo] = run(app, operations(app).groups(queue, **options))
    return found


def messages(app: Any, task: Any) -> list[tuple[str, str]]:
    return [(reason.code, reason.message) for reason in app.explain(task.id).reasons if reason.code != "no_worker"]


# Waiting tasks


def test_tasks_that_wait_are_counted_before_the_first_claim(app: Any) -> None:
    put(app, "stripe", max=1)
    put(app, "tenant", max=2, per="group")
    put_queue(app, "mail", limits=["stripe"])
    put_type(app, "charge", limits=["tenant"])
    enqueue(app, 3, group="acme")
    enqueue(app, 2, group="bolt", queue="mail")
    enqueue(app, 4, type="send", queue="mail")
    enqueue(app, 1, type="other", limits=["stripe"])
    enqueue(app, 5, type="plain")
    assert use(app, "stripe") == (0, 7)
    assert use(app, "tenant") == (0, 5)
    assert waiting_of(app, "stripe") == {None: (0, 7)}
    assert waiting_of(app, "tenant") == {"acme": (0, 3), "bolt": (0, 2)}


def test_the_figures_are_the_same_before_and_after_the_claim_that_registers_the_tasks(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    enqueue(app, 3, group="acme", limits=["tenant"])
    enqueue(app, 3, group="bolt", limits=["tenant"])
    assert claim(app, 9, types=["served"]) == []
    assert waiting_of(app, "tenant") == {"acme": (0, 3), "bolt": (0, 3)}
    held = claim(app, 9)
    assert waiting_of(app, "tenant") == {"acme": (1, 2), "bolt": (1, 2)}
    app.complete(held[0])
    assert waiting_of(app, "tenant") == {"acme": (0, 2), "bolt": (1, 2)}
    assert use(app, "tenant") == (1, 4)


def test_tasks_that_begin_to_wait_in_an_emptied_backlog_are_counted(app: Any) -> None:
    put(app, "stripe", max=5)
    enqueue(app, 1, limits=["stripe"])
    [held] = claim(app)
    assert claim(app) == []
    enqueue(app, 2, limits=["stripe"])
    app.release(held)
    assert use(app, "stripe") == (0, 3)
    assert waiting_of(app, "stripe") == {None: (0, 3)}


def test_groups_of_a_limit_that_neither_hold_nor_wait_are_left_out(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    enqueue(app, 1, group="acme", limits=["tenant"])
    enqueue(app, 1, group="bolt", limits=["tenant"])
    first, _ = claim(app)
    app.complete(first)
    assert waiting_of(app, "tenant") == {"bolt": (1, 0)}


def test_groups_of_a_limit_come_in_pages(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    app.enqueue_many([NewTask("charge", limits=["tenant"], group=f"g{n}") for n in range(5)])
    claim(app, 2)
    pages = [
        [group.group for group in run(app, operations(app).limit_groups("tenant", 2, after))]
        for after in (None, "g1", "g3")
    ]
    assert pages == [["g0", "g1"], ["g2", "g3"], ["g4"]]


def test_groups_of_a_queue_that_wait_are_listed_before_the_first_claim(app: Any) -> None:
    put_queue(app, "mail", fair=True)
    put_group(app, "mail", "idle", 2.5)
    enqueue(app, 2, queue="mail", group="acme")
    enqueue(app, 1, queue="mail")
    enqueue(app, 9, queue="elsewhere", group="acme")
    assert queue_groups(app, "mail") == [
        GroupInfo("mail", None, 1.0, 1),
        GroupInfo("mail", "acme", 1.0, 2),
        GroupInfo("mail", "idle", 2.5, 0),
    ]
    assert [group.group for group in queue_groups(app, "mail", after="acme")] == ["idle"]
    assert [group.group for group in queue_groups(app, "mail", limit=2)] == [None, "acme"]


# Explanations


def test_explain_names_the_limit_before_the_first_claim(app: Any) -> None:
    put(app, "stripe", max=2)
    tasks = enqueue(app, 4, limits=["stripe"])
    assert messages(app, tasks[1]) == []
    assert messages(app, tasks[3]) == [
        ("turn", "It comes after 3 tasks with the limit 'stripe', which has room now (0 of 2 in use).")
    ]


def test_explain_says_first_that_no_worker_is_there_if_the_limits_have_room(app: Any) -> None:
    put(app, "stripe", max=1)
    put_queue(app, "fair", fair=True)
    _, second = enqueue(app, 2, limits=["stripe"])
    _, fair = enqueue(app, 2, queue="fair")
    for task in (second, fair):
        assert [reason.code for reason in app.explain(task.id).reasons] == ["no_worker", "turn"]
    claim(app)
    assert [reason.code for reason in app.explain(second.id).reasons] == ["limit_reached", "no_worker"]


def test_explain_names_every_limit_that_stops_the_task(app: Any) -> None:
    put(app, "stripe", max=1)
    put(app, "tenant", max=1, per="group")
    enqueue(app, 1, group="acme", limits=["stripe", "tenant"])
    claim(app)
    urgent, task, other = (
        app.enqueue("charge", {}, priority=priority, group=group, limits=["stripe", "tenant"])
        for priority, group in ((5, "bolt"), (0, "acme"), (0, "bolt"))
    )
    stripe = "It waits for the limit 'stripe' (1 of 1 in use); {} before it."
    tenant = "It waits for the limit 'tenant' for the group '{}' ({} of 1 in use); {} before it."
    assert [message for _, message in messages(app, urgent)] == [stripe.format("no other task")]
    assert [message for _, message in messages(app, task)] == [
        stripe.format("1 task"),
        tenant.format("acme", 1, "no other task"),
    ]
    assert [message for _, message in messages(app, other)] == [
        stripe.format("2 tasks"),
        "It comes after 1 task with the limit 'tenant' for the group 'bolt', which has room now (0 of 1 in use).",
    ]


def test_explain_says_nothing_of_a_limit_whose_permit_came_back(app: Any) -> None:
    put(app, "stripe", max=1)
    tasks = enqueue(app, 2, limits=["stripe"])
    [held] = claim(app)
    app.complete(held)
    assert messages(app, tasks[1]) == []


def test_tasks_of_a_paused_queue_are_not_before_others(app: Any) -> None:
    put(app, "stripe", max=1)
    enqueue(app, 3, queue="paused", limits=["stripe"])
    app.pause("paused")
    [task] = enqueue(app, 1, limits=["stripe"])
    assert messages(app, task) == []


def test_explain_says_when_a_rate_opens(app: Any, clock: Clock) -> None:
    put(app, "api", rate="6/minute")
    tasks = enqueue(app, 4, limits=["api"])
    began = -(-clock.now // 1_000_000) * 1_000_000
    claim(app)
    clock.advance(3)
    opens, own = (f"{from_micros(began + after):%Y-%m-%d %H:%M:%S} UTC" for after in (10_000_000, 30_000_000))
    [(code, next_one)], [(_, last)] = messages(app, tasks[1]), messages(app, tasks[3])
    assert code == "limit_reached"
    assert (
        next_one == f"It waits for the limit 'api'; no other task before it. Its rate allows the next start at {opens}."
    )
    assert last == (
        f"It waits for the limit 'api'; 2 tasks before it. Its rate allows the next start at {opens}, "
        f"and that of this task at {own} at the earliest."
    )
    clock.advance(8)
    assert messages(app, tasks[1]) == []


def test_explain_says_how_many_tasks_have_their_turn_before(app: Any) -> None:
    put_queue(app, "mail", fair=True)
    put_group(app, "mail", "acme", 2)
    flood = enqueue(app, 50, queue="mail", group="flood")
    acme = enqueue(app, 5, queue="mail", group="acme")
    alone = enqueue(app, 2, queue="mail")
    assert messages(app, acme[4]) == [("turn", turn("4 tasks of its group 'acme'", "4 tasks"))]
    assert messages(app, flood[49]) == [("turn", turn("49 tasks of its group 'flood'", "7 tasks"))]
    assert messages(app, alone[1]) == [("turn", turn("1 task without a group", "3 tasks"))]
    assert messages(app, flood[0]) == []
    claim(app, 6, queues=["mail"])
    assert messages(app, acme[4]) == [("turn", turn("1 task of its group 'acme'", "1 task"))]


def turn(own: str, others: str) -> str:
    return f"It waits for its turn in the fair queue 'mail', after {own} and about {others} of other groups."
