"""`dibs limits`, `dibs groups`, `dibs queues set` and `dibs types set`."""

from __future__ import annotations

import re

import dibs
from dibs.cli.options import complete_group, complete_limit
from tests.cli.running import Run
from tests.helpers.clients import run as run_on


def test_a_limit_is_set_listed_shown_and_removed(run: Run, client: dibs.Dibs) -> None:
    assert run("limits", "list").err == "No limits.\n"
    done = run("limits", "set", "stripe", "--max", "5", "--rate", "100/minute", "--burst", "10", "--per", "group")
    assert done.out == "Limit stripe: at most 5 at once, 100/minute with bursts of 10 for each group.\n"
    title, row = run("limits", "list").out.splitlines()
    assert title.split() == ["limit", "used", "max", "rate", "burst", "per", "waiting", "set", "by"]
    assert row.split() == ["stripe", "0", "5", "100/minute", "10", "group", "0", "hand"]
    assert "at most 5 at once, 100/minute with bursts of 10 for each group" in run("limits", "show", "stripe").out
    assert run("limits", "remove", "stripe").out == "Limit stripe is removed.\n"
    assert client.limits() == []


def test_json_has_the_limit_as_over_http(run: Run) -> None:
    stored = run("limits", "set", "stripe", "--max", "5", "--json").json
    assert (stored["success"], stored["limit"]["max"], stored["limit"]["used"]) == (True, 5, 0)
    assert run("limits", "list", "--json").json == {"limits": [stored["limit"]]}
    assert run("limits", "show", "stripe", "--json").json == {
        "limit": stored["limit"],
        "groups": [],
        "queues": [],
        "task_types": [],
    }
    assert run("limits", "remove", "stripe", "--json").json == {"success": True, "name": "stripe"}


def test_options_that_are_left_out_of_a_limit_stay_as_they_are(run: Run, client: dibs.Dibs) -> None:
    run("limits", "set", "stripe", "--rate", "1/second", "--burst", "3")
    done = run("limits", "set", "stripe", "--max", "5")
    assert done.out == "Limit stripe: at most 5 at once, 1/second with bursts of 3.\n"
    assert run("limits", "set", "stripe", "--no-rate", "--per", "group").out == (
        "Limit stripe: at most 5 at once for each group.\n"
    )
    swapped = run("limits", "set", "stripe", "--no-max", "--no-per", "--rate", "2/second")
    assert swapped.out == "Limit stripe: 2/second.\n"
    limit = client.get_limit("stripe")
    assert (limit.max, limit.rate, limit.burst, limit.per) == (None, "2/second", 1, None)
    assert run("limits", "set", "stripe", "--rate", "1/second", "--no-rate").code == 2


def test_a_limit_that_makes_no_sense_is_refused(run: Run, client: dibs.Dibs) -> None:
    nothing = run("limits", "set", "stripe")
    assert (nothing.code, nothing.err.splitlines()[0]) == (2, "error: No value is given.")
    useless = run("limits", "set", "stripe", "--per", "group")
    assert (useless.code, useless.err) == (
        2,
        "error: The limit 'stripe' limits nothing.\nhint: Give max, rate or both.\n",
    )
    assert run("limits", "set", "stripe", "--max", "0").code == 2
    assert run("limits", "set", "stripe", "--rate", "5/fortnight").code == 2
    assert run("limits", "set", "stripe", "--max", "1", "--per", "tenant").code == 2
    for command in ("show", "remove"):
        missing = run("limits", command, "stripe")
        assert (missing.code, "There is no limit 'stripe'." in missing.err) == (1, True)
    assert client.limits() == []


def test_the_declared_value_is_shown_beside_the_value_set_by_hand(run: Run, client: dibs.Dibs) -> None:
    from dibs.model.limit import NewLimit

    run_on(client, client._store.limits.put_limit(NewLimit(name="stripe", max=5), "code"))
    assert "set by:      code" in run("limits", "show", "stripe").out
    run("limits", "set", "stripe", "--max", "2")
    shown = run("limits", "show", "stripe").out
    assert "hand, since its declaration in code" in shown
    assert '"max": 5' in shown
    limit = run("limits", "show", "stripe", "--json").json["limit"]
    assert (limit["max"], limit["overridden"], limit["declared"]["max"]) == (2, True, 5)


def test_a_queue_has_settings(run: Run, client: dibs.Dibs) -> None:
    run("limits", "set", "mail-api", "--max", "5")
    done = run("queues", "set", "mail", "--fair", "--limit", "mail-api")
    assert done.code == 0
    assert "yes: the groups take turns" in done.out
    shown = run("queues", "show", "mail").out
    assert ("mail-api" in shown, "open" in shown, "hand" in shown) == (True, True, True)
    changed = run("queues", "set", "mail", "--no-limits", "--json").json
    assert (changed["success"], changed["settings"]["fair"], changed["settings"]["limits"]) == (True, True, [])
    assert run("queues", "show", "mail", "--json").json["settings"] == changed["settings"]
    assert run("queues", "set", "mail", "--no-fair", "--json").json["settings"]["fair"] is False


def test_tasks_that_wait_obey_a_new_limit_when_the_command_returns(run: Run, client: dibs.Dibs) -> None:
    client.enqueue_many([dibs.NewTask("resize", queue="mail") for _ in range(3)])
    run("limits", "set", "mail-api", "--max", "1")
    run("queues", "set", "mail", "--limit", "mail-api")
    assert len(client.claim_many("worker-1", 3)) == 1
    row = run("limits", "list").out.splitlines()[1].split()
    assert (row[1], row[2], row[3]) == ("1", "1", "2")


def test_a_queue_is_shown_with_its_tasks_and_its_settings(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize", queue="mail")
    shown = run("queues", "show", "mail", "--json").json
    assert (shown["depth"], shown["settings"]["fair"], shown["settings"]["source"]) == ({"pending": 1}, False, None)
    assert run("queues", "show", "nowhere").code == 2


def test_settings_that_contradict_or_name_no_limit_are_refused(run: Run, client: dibs.Dibs) -> None:
    assert run("queues", "set", "mail").code == 2
    assert run("queues", "set", "mail", "--limit", "a", "--no-limits").code == 2
    assert run("types", "set", "charge").code == 2
    assert run("types", "set", "charge", "--group-by", "x", "--no-group-by").code == 2
    unknown = run("queues", "set", "mail", "--limit", "stripe")
    assert (unknown.code, "There is no limit 'stripe'." in unknown.err) == (1, True)
    assert run("types", "set", "charge", "--limit", "stripe").code == 1
    assert (client.queue_settings(), client.type_settings()) == ([], [])


def test_a_type_has_limits_whether_it_is_registered_or_not(run: Run, client: dibs.Dibs) -> None:
    run("limits", "set", "tenant", "--max", "2", "--per", "group")
    run("types", "set", "charge", "--limit", "tenant", "--group-by", "tenant")
    shown = run("types", "show", "charge", "--json").json
    assert (shown["task_type"], shown["settings"]["limits"]) == (None, ["tenant"])
    assert "registered:  no" in run("types", "show", "charge").out
    client.register_type("charge", None)
    shown = run("types", "show", "charge", "--json").json
    assert (shown["task_type"]["version"], shown["settings"]["group_by"]) == (1, "tenant")
    assert run("types", "set", "charge", "--no-group-by", "--json").json["settings"]["group_by"] is None
    assert run("types", "show", "unknown").code == 1


def test_the_tasks_that_use_a_limit_up_are_listed(run: Run, client: dibs.Dibs) -> None:
    client.set_limit("stripe", max=1)
    client.set_type("charge", limits=["stripe"])
    first, second = (client.enqueue("charge", group=group) for group in ("acme", "globex"))
    client.enqueue("resize")
    client.claim_many("worker-1", 3)
    held = run("tasks", "list", "--with-limit", "stripe", "--state", "claimed", "--json").json
    assert [task["id"] for task in held["tasks"]] == [first.id]
    of_group = run("tasks", "list", "--group", "globex", "--json").json
    assert [task["id"] for task in of_group["tasks"]] == [second.id]
    assert run("tasks", "list", "--follow", "--with-limit", "stripe").code == 2
    moved = run("tasks", "set", "--all", "--with-group", "globex", "--priority", "5", "--yes")
    assert moved.code == 0
    assert client.get(second.id).priority == 5  # type: ignore[union-attr]


def test_a_task_is_shown_with_the_limits_of_its_type_and_its_queue(run: Run, client: dibs.Dibs) -> None:
    for name in ("own", "of-type", "of-queue"):
        client.set_limit(name, max=5)
    client.set_type("charge", limits=["of-type"])
    client.set_queue("shop", limits=["of-queue", "own"])
    task = client.enqueue("charge", queue="shop", limits=["own"])
    assert "own, of-type (of its type), of-queue (of its queue)\n" in run("tasks", "show", str(task.id)).out


def test_a_limit_that_was_removed_is_marked_where_it_is_carried(run: Run, client: dibs.Dibs) -> None:
    for name in ("tn", "stripe"):
        client.set_limit(name, max=5)
    client.set_queue("mail", limits=["tn", "stripe"])
    client.set_type("charge", limits=["tn"])
    run("limits", "remove", "tn")
    assert "tn (removed), stripe\n" in run("queues", "show", "mail").out
    assert "tn (removed)\n" in run("types", "show", "charge").out
    assert run("queues", "show", "mail", "--json").json["settings"]["removed_limits"] == ["tn"]
    task = client.enqueue("charge", queue="mail")
    shown = run("tasks", "show", str(task.id)).out
    assert ("stripe (of its queue)" in shown, "tn" in shown) == (True, False)


def test_a_limit_is_shown_with_what_carries_it(run: Run, client: dibs.Dibs) -> None:
    client.set_limit("stripe", max=5)
    assert "carried by:  no queue or type: it applies to tasks that name it\n" in run("limits", "show", "stripe").out
    for queue in ("mail", "shop"):
        client.set_queue(queue, limits=["stripe"])
    client.set_type("charge", limits=["stripe"])
    shown = run("limits", "show", "stripe").out
    assert re.search(r"^queues: +mail, shop$", shown, re.MULTILINE)
    assert re.search(r"^types: +charge$", shown, re.MULTILINE)
    as_json = run("limits", "show", "stripe", "--json").json
    assert (as_json["queues"], as_json["task_types"]) == (["mail", "shop"], ["charge"])


def test_a_rate_is_shown_with_its_next_start(run: Run, client: dibs.Dibs) -> None:
    client.set_limit("mail-api", rate="1/day")
    client.enqueue_many([dibs.NewTask("send", limits=["mail-api"])] * 2)
    assert "next start" not in run("limits", "show", "mail-api").out
    client.claim_many("worker-1", 2)
    [group] = client.limit_groups("mail-api")
    assert f"next start:  {group.free_at:%Y-%m-%d %H:%M:%S} UTC\n" in run("limits", "show", "mail-api").out


def test_a_note_says_how_many_running_tasks_a_new_limit_does_not_count(run: Run, client: dibs.Dibs) -> None:
    client.set_limit("a", max=1)
    client.enqueue_many([dibs.NewTask("resize", queue="mail")] * 4)
    client.claim_many("worker-1", 3)
    note = "note: 3 running tasks are not counted, because a worker claimed them before.\n"
    assert run("queues", "set", "mail", "--limit", "a").err == note
    assert client.get_limit("a").used == 0
    assert run("types", "set", "resize", "--limit", "a").err == note
    assert run("queues", "set", "mail", "--limit", "a", "--json").err == ""
    assert run("queues", "set", "mail", "--no-limits").err == ""
    client.claim("worker-1")
    assert run("types", "set", "resize", "--limit", "a").err == note
    for claimed in client.list_tasks(state="claimed"):
        client.cancel(claimed.id)
    assert run("queues", "set", "elsewhere", "--limit", "a").err == ""


def test_groups_have_weights(run: Run, client: dibs.Dibs) -> None:
    assert run("groups", "list", "mail").err == "No groups.\n"
    assert run("groups", "set", "mail", "acme", "--weight", "3").out == "Group acme of queue mail has the weight 3.\n"
    run("groups", "set", "mail", "--weight", "0.5")
    _, nobody, acme = run("groups", "list", "mail").out.splitlines()
    assert nobody.split() == ["(no", "group)", "0.5", "0"]
    assert acme.split() == ["acme", "3", "0"]
    page = run("groups", "list", "mail", "--limit", "1", "--json").json
    assert ([each["weight"] for each in page["groups"]], page["next_cursor"]) == ([0.5], "")
    page = run("groups", "list", "mail", "--after", "", "--json").json
    assert ([each["group"] for each in page["groups"]], page["next_cursor"]) == (["acme"], None)
    assert run("groups", "set", "mail", "acme", "--weight", "0").code == 2


def test_limits_and_groups_are_completed(run: Run, client: dibs.Dibs) -> None:
    import typer
    from click import Command

    client.set_limit("stripe", max=5)
    client.set_group("mail", "acme", weight=2)
    context = typer.Context(Command("dibs"))
    context.params = {"url": client.url, "queue": "mail"}
    assert complete_limit(context, "st") == ["stripe"]
    assert complete_group(context, "a") == ["acme"]


def test_a_task_is_enqueued_with_limits_and_a_group_and_shows_them(run: Run, client: dibs.Dibs) -> None:
    for name in ("stripe", "tenant"):
        client.set_limit(name, max=1)
    done = run("enqueue", "charge", "--limit", "stripe", "--limit", "tenant", "--group", "acme", "--json")
    task = done.json["task"]
    assert (sorted(task["limits"]), task["group"]) == (["stripe", "tenant"], "acme")
    shown = run("tasks", "show", str(task["id"])).out
    assert "acme" in shown
    assert "stripe" in shown
    unknown = run("enqueue", "charge", "--limit", "nowhere")
    assert (unknown.code, "There is no limit 'nowhere'." in unknown.err) == (2, True)
    assert len(client.list_tasks()) == 1
