"""Declarations: what a program declares about limits holds from its first enqueue on, beside what is set by hand."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import dibs
from dibs import InvalidValue, LimitNotFound, LimitUnknown, ScheduleNotFound
from dibs.model.limit import NewTypeSettings
from dibs.model.schedule import NewSchedule
from tests.helpers.clients import run
from tests.helpers.limiting import assert_exact, claim, enqueue, put, put_queue, put_type, settle
from tests.helpers.waiting import until


def charge(tenant: str = "acme", n: int = 0) -> None:
    """A handler."""


def declare_charge(app: Any, **options: Any) -> Any:
    return app.task(**{"limits": ["stripe"], **options})(charge)


# Declaring


def test_a_declaration_stores_nothing_by_itself(app: Any) -> None:
    app.limit("stripe", max=1)
    app.queue("mail", fair=True)
    declare_charge(app)
    assert (app.limits(), app.queue_settings(), app.type_settings()) == ([], [], [])


def test_an_equal_declaration_may_be_repeated_and_another_one_is_refused(app: Any) -> None:
    app.limit("stripe", max=1)
    app.limit("stripe", max=1)
    app.queue("mail", limits=["stripe"])
    app.queue("mail", limits=("stripe",))
    with pytest.raises(InvalidValue, match="'stripe' is already declared"):
        app.limit("stripe", max=2)
    with pytest.raises(InvalidValue, match="'mail' is already declared"):
        app.queue("mail", fair=True)


def test_a_wrong_declaration_is_refused_where_it_is_made(app: Any) -> None:
    for declare in (
        lambda: app.limit("stripe"),
        lambda: app.limit("stripe", max=0),
        lambda: app.queue("mail", limits="stripe"),
        lambda: app.queue("mail", fair=1),
        lambda: app.task(limits="stripe")(charge),
        lambda: app.task(group_by="nothing")(charge),
        lambda: app.task(group_by="tenant", group="acme")(charge),
    ):
        with pytest.raises(InvalidValue):
            declare()


# The first enqueue


def test_the_limits_of_a_program_hold_from_its_first_enqueue_on(app: Any) -> None:
    app.limit("stripe", max=1)
    declare_charge(app)
    enqueue(app, 3)
    assert len(claim(app)) == 1
    [limit] = app.limits()
    assert (limit.max, limit.source, limit.used, limit.waiting) == (1, "code", 1, 2)
    assert_exact(app)


def test_a_batch_and_a_workflow_store_the_declarations_as_well(app: Any, open_app: Any, url: str) -> None:
    app.limit("stripe", max=1)
    app.enqueue_many([dibs.NewTask("charge", limits=["stripe"]) for _ in range(2)])
    other = open_app(url)
    other.limit("mail", max=1)
    step = dibs.NewStep(name="a", task=dibs.NewTask("send", limits=["mail"]))
    other.start_workflow(dibs.NewWorkflow(name="w", steps=[step]))
    assert [limit.name for limit in app.limits()] == ["mail", "stripe"]


def test_a_limit_that_is_declared_after_the_first_enqueue_is_stored_by_the_next_one(app: Any) -> None:
    app.limit("stripe", max=1)
    enqueue(app)
    app.limit("mail", max=1)
    enqueue(app, limits=["mail"])
    assert [limit.name for limit in app.limits()] == ["mail", "stripe"]


def test_a_limit_that_is_not_declared_is_refused_at_enqueue(app: Any) -> None:
    app.limit("stripe", max=1)
    with pytest.raises(LimitUnknown, match="'mail'"):
        enqueue(app, limits=["mail"])


def test_tasks_enqueued_by_another_program_obey_the_limits_of_the_handler(app: Any, open_app: Any, url: str) -> None:
    app.limit("tenant", max=1, per="group")
    declare_charge(app, limits=["tenant"], group_by="tenant")
    app.declare()
    other = open_app(url)
    for tenant in ("acme", "acme", "other"):
        other.enqueue("charge", {"tenant": tenant})
    assert sorted(each.task.group for each in claim(other)) == ["acme", "other"]


def test_the_options_of_a_call_add_limits_and_replace_the_group(app: Any) -> None:
    app.limit("stripe", max=9)
    app.limit("tenant", max=1, per="group")
    handler = declare_charge(app, group_by="tenant").options(limits=["tenant"], group="eve")
    [task, _] = app.enqueue_many([handler.new(tenant="acme"), handler.new(tenant="acme")])
    assert (task.limits, task.group) == (["tenant"], "eve")
    assert len(claim(app)) == 1
    assert {limit.name: limit.used for limit in app.limits()} == {"stripe": 1, "tenant": 1}


# Storing everything


def test_declare_stores_everything_and_the_tasks_that_wait_obey(app: Any) -> None:
    put(app, "other", max=1)
    app.enqueue_many([dibs.NewTask("charge", {"tenant": "acme"}) for _ in range(3)])
    app.limit("stripe", max=1)
    app.queue("default", limits=["other"])
    declare_charge(app, schedule="@daily")
    app.declare()
    assert len(claim(app)) == 1
    assert {limit.name: (limit.used, limit.waiting) for limit in app.limits()} == {"stripe": (1, 2), "other": (1, 2)}
    assert [schedule.name for schedule in app.schedules()] == ["charge"]
    assert_exact(app)


def test_declare_raises_what_is_refused_and_stores_the_rest(app: Any) -> None:
    app.limit("stripe", max=1)
    app.queue("mail", limits=["unknown"])
    declare_charge(app)
    with pytest.raises(LimitNotFound, match="'unknown'"):
        app.declare()
    assert [settings.limits for settings in app.type_settings()] == [["stripe"]]
    assert app.queue_settings() == []


def test_the_first_enqueue_logs_a_declaration_that_is_refused(app: Any, caplog: Any) -> None:
    declare_charge(app)
    with caplog.at_level(logging.ERROR, "dibs.worker"):
        enqueue(app)
    assert "a declaration was refused (limits of the task type 'charge')" in caplog.text
    assert "There is no limit 'stripe'" in caplog.text


def test_tasks_are_settled_by_a_later_program_if_the_first_one_did_not_settle_them(
    app: Any, open_app: Any, url: str
) -> None:
    put(app, "stripe", max=1)
    enqueue(app, 3)
    put_type(app, "charge", "code", limits=["stripe"])  # and the program ends
    other = open_app(url)
    other.limit("stripe", max=1)
    declare_charge(other)
    other.declare()
    assert len(claim(app)) == 1


def test_a_walk_through_the_tasks_is_not_repeated_for_the_same_declarations(app: Any) -> None:
    app.limit("stripe", max=1)
    declare_charge(app)
    declarations = app._declarations()
    assert run(app, app._store.limits.declare(declarations)).unsettled
    assert run(app, app._store.limits.declare(declarations)).unsettled
    settle(app)
    assert not run(app, app._store.limits.declare(declarations)).unsettled


# By hand and in code


def test_a_type_set_by_hand_stays_until_its_declaration_changes(app: Any, open_app: Any, url: str) -> None:
    for name in ("stripe", "mail"):
        put(app, name, max=1)
    declare_charge(app)
    app.declare()
    app.set_type("charge", limits=[])
    app.declare()
    [settings] = app.type_settings()
    assert (settings.limits, settings.overridden, settings.declared["limits"]) == ([], True, ["stripe"])
    changed = open_app(url)
    declare_charge(changed, limits=["stripe", "mail"])
    changed.declare()
    [settings] = app.type_settings()
    assert (settings.limits, settings.overridden, settings.source) == (["stripe", "mail"], False, "code")


def test_a_handler_that_has_no_limits_any_more_takes_its_declaration_back(app: Any, open_app: Any, url: str) -> None:
    put(app, "stripe", max=1)
    declare_charge(app)
    app.declare()
    changed = open_app(url)
    changed.task(charge)
    enqueue(changed)
    assert app.get_type_settings("charge").limits == ["stripe"]  # an enqueue takes nothing back
    changed.declare()
    assert app.get_type_settings("charge").limits == []
    put_type(app, "charge", limits=["stripe"])
    changed.declare()
    assert app.get_type_settings("charge").limits == ["stripe"]


def test_a_type_without_limits_is_stored_by_no_declaration(app: Any) -> None:
    app.task(charge)
    app.declare()
    assert app.type_settings() == []


def test_a_limit_removed_by_hand_stays_removed_until_its_declaration_changes(app: Any, open_app: Any, url: str) -> None:
    app.limit("stripe", max=1)
    declare_charge(app)
    app.declare()
    enqueue(app, 2)
    app.remove_limit("stripe")
    again = open_app(url)
    again.limit("stripe", max=1)
    declare_charge(again)
    again.declare()
    assert app.limits() == []
    assert len(claim(app)) == 2
    with pytest.raises(LimitNotFound):
        put(app, "stripe", "code", max=1)
    changed = open_app(url)
    changed.limit("stripe", max=3)
    changed.declare()
    [limit] = app.limits()
    assert (limit.max, limit.used, limit.source) == (3, 2, "code")
    assert_exact(app)


def test_code_goes_on_to_enqueue_after_its_limit_was_removed_by_hand(app: Any, open_app: Any, url: str) -> None:
    app.limit("stripe", max=1)
    declare_charge(app)
    app.declare()
    app.remove_limit("stripe")
    enqueue(app, 2, limits=["stripe"])
    starting = open_app(url)
    starting.limit("stripe", max=1)
    declare_charge(starting)
    enqueue(starting, 2, limits=["stripe"])
    assert len(claim(app)) == 4


def test_a_limit_that_no_code_declares_is_unknown_after_its_removal(app: Any) -> None:
    put(app, "stripe", max=1)
    app.remove_limit("stripe")
    with pytest.raises(LimitUnknown):
        enqueue(app, limits=["stripe"])
    with pytest.raises(LimitNotFound):
        put_queue(app, "mail", limits=["stripe"])


def test_a_limit_that_was_removed_and_set_by_hand_shows_its_declaration(app: Any) -> None:
    put(app, "stripe", "code", max=5)
    app.remove_limit("stripe")
    by_hand = put(app, "stripe", max=2)
    assert (by_hand.overridden, by_hand.declared["max"]) == (True, 5)  # type: ignore[index]
    assert put(app, "stripe", "code", max=5).max == 2


# Schedules


def put_schedule(app: Any, cron: str, **options: Any) -> Any:
    new = NewSchedule(name="nightly", cron=cron, type="charge", **options)
    return run(app, app._store.schedules.put_schedule(new, "code"))


def test_a_schedule_removed_by_hand_stays_removed_until_its_declaration_changes(app: Any, clock: Any) -> None:
    put_schedule(app, "@hourly")
    app.remove_schedule("nightly")
    with pytest.raises(ScheduleNotFound):
        put_schedule(app, "@hourly")
    with pytest.raises(ScheduleNotFound):
        app.remove_schedule("nightly")
    with pytest.raises(ScheduleNotFound):
        app.enable_schedule("nightly")
    clock.advance(86400)
    assert (app.tick(), app.schedules()) == (0, [])
    changed = put_schedule(app, "@daily")
    assert (changed.cron, changed.enabled, changed.source) == ("@daily", True, "code")
    clock.advance(86400)
    assert app.tick() == 1


def test_a_removed_schedule_that_is_set_by_hand_starts_again_now(app: Any, clock: Any) -> None:
    put_schedule(app, "@hourly")
    app.remove_schedule("nightly")
    clock.advance(86400)
    again = app.set_schedule("nightly", "@hourly", "charge")
    assert (again.enabled, again.overridden) == (True, True)
    assert app.tick() == 0
    clock.advance(3600)
    assert app.tick() == 1


def test_ticks_obey_limits(app: Any, clock: Any) -> None:
    put(app, "stripe", max=1)
    put(app, "tenant", max=1, per="group")
    stored = app.set_schedule("every", "@hourly", "charge", catch_up="all", limits=["stripe", "tenant"], group="acme")
    assert (stored.limits, stored.group) == (["stripe", "tenant"], "acme")
    assert app.get_schedule("every") == stored
    clock.advance(3 * 3600)
    assert app.tick() == 3
    [running] = claim(app)
    assert (running.task.limits, running.task.group) == (["stripe", "tenant"], "acme")
    app.complete(running)
    assert len(claim(app)) == 1
    changed = app.set_schedule("every", "@hourly", "charge", catch_up="all")
    assert (changed.limits, changed.group) == ([], None)


def test_a_tick_with_an_unknown_limit_is_refused_and_the_schedule_shows_it(app: Any, clock: Any) -> None:
    app.set_schedule("every", "@hourly", "charge", limits=["unknown"])
    clock.advance(3600)
    assert app.tick() == 0
    assert "unknown" in app.get_schedule("every").last_error


def test_the_group_of_a_handler_applies_to_its_schedule(app: Any) -> None:
    handler = app.task(schedule="@hourly", group="acme")(charge)
    assert handler.schedule.group == "acme"


def test_settings_that_name_a_removed_limit_by_hand_are_refused(app: Any) -> None:
    put(app, "stripe", "code", max=1)
    app.remove_limit("stripe")
    with pytest.raises(LimitNotFound):
        put_type(app, "charge", limits=["stripe"])
    new = NewTypeSettings(type="charge", limits=["stripe"])
    assert run(app, app._store.limits.put_type(new, "code")).limits == ["stripe"]
    until(lambda: enqueue(app))
    assert len(claim(app)) == 1
