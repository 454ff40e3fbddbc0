"""Limits: what is stored about limits, and that claims obey them on every engine."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import InvalidValue, LimitNotFound
from dibs.model.limit import Limit, NewLimit, NewQueueSettings, NewTypeSettings, QueueSettings, TypeSettings
from dibs.store.contract import LimitOperations
from tests.helpers.clients import run
from tests.helpers.each import for_each


def limits(app: Any) -> LimitOperations:
    operations: LimitOperations = app._store.limits
    return operations


def put(app: Any, name: str, source: str = "command", **values: Any) -> Limit:
    stored: Limit = run(app, limits(app).put_limit(NewLimit(name=name, **values), source))  # type: ignore[arg-type]
    return stored


def put_queue(app: Any, queue: str, source: str = "command", **values: Any) -> QueueSettings:
    new = NewQueueSettings(queue=queue, **values)
    stored: QueueSettings = run(app, limits(app).put_queue(new, source))  # type: ignore[arg-type]
    return stored


def get(app: Any, name: str) -> Limit:
    found: Limit = run(app, limits(app).get_limit(name))
    return found


# Setting


def test_a_limit_is_stored_with_its_values_and_no_use(app: Any, clock: Any) -> None:
    stored = put(app, "mail-api", max=5, rate="100/minute", burst=10, per="group")
    assert (stored.name, stored.max, stored.rate, stored.burst, stored.per) == (
        "mail-api",
        5,
        "100/minute",
        10,
        "group",
    )
    assert (stored.used, stored.waiting, stored.source, stored.declared) == (0, 0, "command", None)
    assert stored == get(app, "mail-api")


def test_limits_are_listed_by_name(app: Any) -> None:
    put(app, "stripe", max=5)
    put(app, "mail", rate="1/second")
    assert [limit.name for limit in run(app, limits(app).list_limits())] == ["mail", "stripe"]


def test_a_limit_that_is_set_again_has_the_new_values(app: Any, clock: Any) -> None:
    first = put(app, "stripe", max=5)
    clock.advance(1)
    assert put(app, "stripe", max=5) == first
    changed = put(app, "stripe", max=1)
    assert (changed.max, changed.created_at) == (1, first.created_at)
    assert changed.updated_at > first.updated_at


def test_what_a_change_of_a_limit_leaves_out_stays(app: Any) -> None:
    app.set_limit("mail-api", max=5, rate="100/minute", burst=10, per="group")
    changed = app.set_limit("mail-api", max=3)
    assert (changed.max, changed.rate, changed.burst, changed.per) == (3, "100/minute", 10, "group")
    changed = app.set_limit("mail-api", rate="50/minute")
    assert (changed.max, changed.rate, changed.burst, changed.per) == (3, "50/minute", 10, "group")
    assert changed == app.get_limit("mail-api")


def test_none_removes_a_value_of_a_limit_and_the_burst_goes_with_its_rate(app: Any) -> None:
    app.set_limit("mail-api", max=5, rate="100/minute", burst=10, per="group")
    changed = app.set_limit("mail-api", rate=None, per=None)
    assert (changed.max, changed.rate, changed.burst, changed.per) == (5, None, 1, None)
    with pytest.raises(InvalidValue, match="'mail-api' limits nothing"):
        app.set_limit("mail-api", max=None)
    with pytest.raises(InvalidValue, match="burst belongs to a rate"):
        app.set_limit("mail-api", burst=3)
    assert app.get_limit("mail-api") == changed
    swapped = app.set_limit("mail-api", max=None, rate="1/second")
    assert (swapped.max, swapped.rate) == (None, "1/second")


def test_a_limit_that_was_removed_and_is_set_again_keeps_no_value(app: Any) -> None:
    app.set_limit("mail-api", max=5, rate="100/minute", burst=10)
    app.remove_limit("mail-api")
    again = app.set_limit("mail-api", max=3)
    assert (again.max, again.rate, again.burst) == (3, None, 1)


def test_a_declared_limit_has_exactly_the_declared_values(app: Any) -> None:
    put(app, "mail-api", "code", max=5, rate="100/minute", burst=10)
    assert put(app, "mail-api", "code", max=4).rate is None


def test_a_removed_limit_is_gone_until_it_is_set_again(app: Any) -> None:
    put(app, "stripe", max=5)
    run(app, limits(app).remove_limit("stripe"))
    assert run(app, limits(app).list_limits()) == []
    with pytest.raises(LimitNotFound, match="There is no limit 'stripe'"):
        get(app, "stripe")
    with pytest.raises(LimitNotFound):
        run(app, limits(app).remove_limit("stripe"))
    assert put(app, "stripe", max=2).max == 2


@for_each(
    "values",
    [
        {},
        {"max": 0},
        {"max": True},
        {"max": 1.5},
        {"max": 2_000_000_000},
        {"rate": "none"},
        {"rate": "5/fortnight"},
        {"rate": 5},
        {"max": 1, "burst": 2},
        {"rate": "1/second", "burst": 0},
        {"max": 1, "per": "tenant"},
        {"max": 1, "name": ""},
        {"max": 1, "name": "a\tb"},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        NewLimit(**{"name": "stripe", **values})


def test_the_refusal_of_a_rate_shows_how_a_rate_of_a_limit_is_written(app: Any) -> None:
    with pytest.raises(dibs.InvalidValue) as refused:
        app.set_limit("mail", rate="5 a minute")
    assert '"600/minute"' in refused.value.hint
    assert "requests" not in refused.value.hint  # a limit counts starts of tasks


# Declared in code and set by hand


def test_a_limit_set_by_hand_stays_until_its_declaration_changes(app: Any) -> None:
    assert put(app, "stripe", "code", max=5).max == 5
    by_hand = put(app, "stripe", max=2)
    assert (by_hand.max, by_hand.overridden, by_hand.declared) == (
        2, True, {"max": 5, "rate": None, "burst": 1, "per": None}
    )  # fmt: skip
    assert put(app, "stripe", "code", max=5).max == 2
    declared_again = put(app, "stripe", "code", max=6)
    assert (declared_again.max, declared_again.source, declared_again.overridden) == (6, "code", False)


def test_a_limit_set_by_hand_before_it_is_declared_stays_and_shows_the_declaration(app: Any) -> None:
    put(app, "stripe", max=2)
    declared = put(app, "stripe", "code", max=5)
    assert (declared.max, declared.overridden) == (2, True)
    assert declared.declared is not None
    assert declared.declared["max"] == 5


def test_settings_of_a_queue_made_by_hand_stay_until_their_declaration_changes(app: Any) -> None:
    put(app, "stripe", max=5)
    put_queue(app, "mail", "code", fair=True)
    by_hand = put_queue(app, "mail", fair=False, limits=["stripe"])
    assert (by_hand.fair, by_hand.limits, by_hand.overridden) == (False, ["stripe"], True)
    assert put_queue(app, "mail", "code", fair=True).fair is False
    declared_again = put_queue(app, "mail", "code", fair=True, limits=["stripe"])
    assert (declared_again.fair, declared_again.limits, declared_again.overridden) == (True, ["stripe"], False)


def test_a_limit_that_is_named_twice_is_refused(app: Any) -> None:
    app.set_limit("stripe", max=5)
    twice = ["stripe", "stripe"]
    attempts: list[Any] = [
        lambda: app.enqueue("charge", limits=twice),
        lambda: app.set_queue("mail", limits=twice),
        lambda: app.set_type("charge", limits=twice),
        lambda: app.queue("mail", limits=twice),
        lambda: app.set_schedule("nightly", "@daily", "charge", limits=twice),
        lambda: app.task(limits=twice)(lambda: None),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidValue, match="'stripe' is given twice"):
            attempt()
    app.set_queue("mail", limits=["stripe"])
    assert app.enqueue("charge", queue="mail", limits=["stripe"]).limits == [
        "stripe"
    ]  # named by the task and its queue


# Queues, types, groups


def test_a_setting_that_is_left_out_stays(app: Any) -> None:
    put(app, "stripe", max=5)
    put_queue(app, "mail", limits=["stripe"])
    assert put_queue(app, "mail", fair=True).limits == ["stripe"]
    found = run(app, limits(app).get_queue("mail"))
    assert (found.fair, found.limits) == (True, ["stripe"])
    assert put_queue(app, "mail", limits=[]).limits == []


def test_a_queue_without_settings_has_the_defaults(app: Any) -> None:
    assert run(app, limits(app).get_queue("mail")) == QueueSettings("mail")
    assert run(app, limits(app).get_type_settings("charge")) == TypeSettings("charge")
    assert run(app, limits(app).queue_settings()) == []
    assert run(app, limits(app).type_settings()) == []


def test_a_type_has_limits_and_a_parameter_that_names_the_group(app: Any) -> None:
    put(app, "tenant", max=2, per="group")
    new = NewTypeSettings(type="charge", limits=["tenant"], group_by="tenant")
    stored = run(app, limits(app).put_type(new, "command"))
    assert (stored.type, stored.limits, stored.group_by) == ("charge", ["tenant"], "tenant")
    assert run(app, limits(app).type_settings()) == [stored]
    removed = run(app, limits(app).put_type(NewTypeSettings(type="charge", group_by=""), "command"))
    assert (removed.limits, removed.group_by) == (["tenant"], None)


def test_settings_with_a_limit_that_does_not_exist_are_refused(app: Any) -> None:
    with pytest.raises(LimitNotFound, match="stripe"):
        put_queue(app, "mail", limits=["stripe"])
    with pytest.raises(LimitNotFound, match="stripe"):
        run(app, limits(app).put_type(NewTypeSettings(type="charge", limits=["stripe"]), "command"))
    assert run(app, limits(app).queue_settings()) == []


def test_settings_name_those_of_their_limits_that_were_removed(app: Any) -> None:
    for name in ("tn", "stripe"):
        app.set_limit(name, max=5)
    app.set_queue("mail", limits=["tn", "stripe"])
    app.set_type("charge", limits=["tn"])
    assert app.get_queue("mail").removed_limits == app.get_type_settings("charge").removed_limits == []
    app.remove_limit("tn")
    assert (app.get_queue("mail").limits, app.get_queue("mail").removed_limits) == (["tn", "stripe"], ["tn"])
    assert [each.removed_limits for each in app.queue_settings()] == [["tn"]]
    assert [each.removed_limits for each in app.type_settings()] == [["tn"]]
    assert app.set_queue("mail", fair=True).removed_limits == ["tn"]
    app.set_limit("tn", max=1)
    assert app.get_queue("mail").removed_limits == []


def test_a_group_has_a_weight(app: Any) -> None:
    assert run(app, limits(app).groups("mail")) == []
    run(app, limits(app).put_group("mail", "acme", 3))
    run(app, limits(app).put_group("mail", None, 2))
    assert [(group.group, group.weight) for group in run(app, limits(app).groups("mail"))] == [
        (None, 2.0),
        ("acme", 3.0),
    ]
    assert [group.group for group in run(app, limits(app).groups("mail", 1, ""))] == ["acme"]


def test_the_answer_to_a_new_weight_has_the_tasks_that_wait(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    for group in ("acme", "acme", "globex"):
        app.enqueue("charge", queue="mail", limits=["tenant"], group=group)
    stored = run(app, limits(app).put_group("mail", "acme", 3))
    assert [stored] == [group for group in run(app, limits(app).groups("mail")) if group.group == "acme"]
    assert (stored.weight, stored.waiting) == (3.0, 2)
    assert run(app, limits(app).put_group("mail", None, 2)).waiting == 0


@for_each("weight", [0, -1, float("nan"), float("inf"), True, "3", 2e6])
def test_a_weight_that_makes_no_sense_is_refused(weight: Any) -> None:
    from dibs.model.limit import check_weight

    with pytest.raises(InvalidValue, match="weight"):
        check_weight(weight)


@pytest.mark.parametrize("carrier", ["queue", "type"])
def test_tasks_that_wait_obey_a_setting_when_the_call_returns(app: Any, carrier: str) -> None:
    app.enqueue_many([dibs.NewTask("resize", queue="mail") for _ in range(3)])
    app.set_limit("stripe", max=1)
    counts: list[int] = []
    if carrier == "queue":
        app.set_queue("mail", limits=["stripe"], note=counts.append)
    else:
        app.set_type("resize", limits=["stripe"], note=counts.append)
    assert sum(counts) == 3
    assert len(app.claim_many("worker-1", 3)) == 1


def test_the_verbs_of_a_client_set_and_show_limits_settings_and_groups(app: Any) -> None:
    limit = app.set_limit("tenant", max=2, rate="1/second", burst=3, per="group")
    assert (limit.max, limit.rate, limit.burst, limit.per, limit.source) == (2, "1/second", 3, "group", "command")
    assert app.limits() == [limit]
    assert app.get_limit("tenant") == limit
    assert app.limit_groups("tenant") == []
    queue = app.set_queue("mail", fair=True, limits=["tenant"])
    assert (queue.fair, queue.limits) == (True, ["tenant"])
    assert (app.get_queue("mail"), app.queue_settings()) == (queue, [queue])
    kind = app.set_type("charge", limits=["tenant"], group_by="tenant")
    assert (app.get_type_settings("charge"), app.type_settings()) == (kind, [kind])
    group = app.set_group("mail", "acme", weight=3)
    assert app.groups("mail") == [group]
    assert app.groups("mail", 1, after="acme") == []
    app.remove_limit("tenant")
    assert app.limits() == []
