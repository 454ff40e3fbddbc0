"""`dibs schedules`: manages schedules from the shell."""

from __future__ import annotations

import re

import dibs
from tests.cli.running import Run


def test_a_schedule_is_added_shown_and_listed(run: Run, client: dibs.Dibs) -> None:
    options = ["--timezone", "Europe/Berlin", "--catch-up", "all", "--queue", "slow", "--priority", "3"]
    added = run("schedules", "add", "nightly", "0 3 * * *", "report", '{"day": "today"}', *options)
    assert added.code == 0
    assert re.fullmatch(r"Schedule nightly ticks next at \d{4}-.* UTC \(in \d+ (h|min|s)\)\.\n", added.out)
    schedule = client.get_schedule("nightly")
    assert (schedule.cron, schedule.timezone, schedule.catch_up) == ("0 3 * * *", "Europe/Berlin", "all")
    assert (schedule.type, schedule.params, schedule.queue, schedule.priority) == (
        "report",
        {"day": "today"},
        "slow",
        3,
    )
    shown = run("schedules", "show", "nightly").out.splitlines()
    assert {"state:       enabled", "cron:        0 3 * * * (Europe/Berlin)", '    "day": "today"'} <= set(shown)
    _, row = run("schedules", "list").out.splitlines()
    assert row.split()[:2] == ["nightly", "enabled"]
    [shape] = run("schedules", "list", "--json").json["schedules"]
    assert (shape["name"], shape["task_type"], shape["next_at"][-1]) == ("nightly", "report", "Z")
    assert run("schedules", "show", "nightly", "--json").json == {"schedule": shape}


def test_a_schedule_is_disabled_enabled_run_and_removed(run: Run, client: dibs.Dibs) -> None:
    run("schedules", "add", "nightly", "@daily", "report")
    assert run("schedules", "disable", "nightly").out == "Schedule nightly is disabled.\n"
    assert not client.get_schedule("nightly").enabled
    assert run("schedules", "enable", "nightly", "--json").json["schedule"]["enabled"] is True
    task = run("schedules", "run", "nightly", "--json").json["task"]
    assert (task["task_type"], task["status"]) == ("report", "pending")
    assert run("schedules", "remove", "nightly").out == "Schedule nightly is removed.\n"
    assert run("schedules", "list").err == "No schedules.\n"


def test_an_invalid_schedule_is_refused_with_the_reason(run: Run, client: dibs.Dibs) -> None:
    for name, cron, *options in (
        ("a", "every day"),
        ("a", "@daily", "--timezone", "Mars/Olympus"),
        ("a", "@daily", "--catch-up", "some"),
        ("a", "@daily", "--max-attempts", "0"),
    ):
        done = run("schedules", "add", name, cron, "report", *options, "--json")
        assert (done.code, done.json["code"]) == (2, "invalid_value")
    for verb in ("show", "enable", "disable", "run", "remove"):
        done = run("schedules", verb, "missing", "--json")
        assert (done.code, done.json["code"]) == (1, "schedule_not_found")
