"""`dibs schedules`: manages schedules from the shell."""

from __future__ import annotations

import re

import dibs
from tests.cli.running import Run


def test_a_schedule_is_added_shown_and_listed(run: Run, client: dibs.Dibs) -> None:
    options = ["--timezone", "Europe/Berlin", "--catch-up", "all", "--queue", "slow", "--priority", "3"]
    added = run("schedules", "add", "nightly", "0 3 * * *", "report", '{"day": "today"}', *options)
    assert added.code == 0
    assert re.fullmatch(
        r"Schedule nightly ticks at 03:00 every day, Europe/Berlin; next \d{4}-.* UTC \(in \d+ (h|min|s)\)\.\n",
        added.out,
    )
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
    next_runs = shown[shown.index("next:") + 1 :][:5]
    assert all(
        re.fullmatch(r"  \w{3} \d{4}-\d\d-\d\d 03:00:00 Europe/Berlin, in \d+ (h|min|s|d)", each) for each in next_runs
    )
    title, row = run("schedules", "list").out.splitlines()
    assert title.split()[:4] == ["schedule", "state", "ticks", "timezone"]
    assert row.split()[:2] == ["nightly", "enabled"]
    [shape] = run("schedules", "list", "--json").json["schedules"]
    assert (shape["name"], shape["task_type"], shape["next_at"][-1]) == ("nightly", "report", "Z")
    answer = run("schedules", "show", "nightly", "--json").json
    assert (answer["schedule"], len(answer["next_runs"])) == (shape, 5)


def test_a_schedule_is_added_with_an_interval_jitter_a_start_an_end_and_an_overlap(run: Run, client: dibs.Dibs) -> None:
    options = ["--every", "30s", "--jitter", "5", "--overlap", "skip"]
    options += ["--start", "2030-01-31T08:00:00Z", "--end", "2030-01-31T09:00:00Z"]
    assert run("schedules", "add", "poll", "poll", '{"a": 1}', *options).code == 0
    schedule = client.get_schedule("poll")
    assert (schedule.every, schedule.jitter, schedule.overlap, schedule.params) == (30.0, 5.0, "skip", {"a": 1})
    shown = run("schedules", "show", "poll").out
    assert "every 30 seconds, each up to 5 seconds later, from 2030-01-31 08:00:00 UTC, until" in shown
    _, row = run("schedules", "list").out.splitlines()
    assert "every 30 s" in row


def test_a_schedule_with_a_single_time_has_ended_after_its_tick(run: Run, client: dibs.Dibs) -> None:
    added = run("schedules", "add", "launch", "report", "--at", "2020-01-31T08:00:00Z")
    assert added.out.startswith("Schedule launch ticks once, at 2020-01-31 08:00:00 UTC; next 2020-01-31 08:00:00 UTC")
    assert client.tick() == 1
    assert "state:       ended" in run("schedules", "show", "launch").out
    assert run("schedules", "list").out.splitlines()[1].split()[:2] == ["launch", "ended"]


def test_a_preview_shows_an_expression_in_words_and_its_next_runs_without_a_store(run: Run) -> None:
    options = ["--timezone", "Europe/Berlin", "--count", "3"]
    words, *runs = run("schedules", "preview", "30 3 * * 1-5", *options).out.splitlines()
    assert words == "at 03:30 on weekdays, Europe/Berlin"
    assert len(runs) == 3
    assert all(re.match(r"(Mon|Tue|Wed|Thu|Fri) \d{4}-\d\d-\d\d 03:30:00 Europe/Berlin, in ", each) for each in runs)
    answer = run("schedules", "preview", "--every", "2h", "--json").json
    assert (answer["description"], len(answer["next_runs"])) == ("every 2 hours", 5)


def test_the_words_after_the_name_must_fit_the_options(run: Run) -> None:
    for words in (["@daily"], ["report", "{}", "more", "--every", "5"], ["@daily", "report", "{}", "more"]):
        assert run("schedules", "add", "some", *words).code == 2


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
