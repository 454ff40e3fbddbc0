"""`dibs retention`."""

from __future__ import annotations

import pytest

import dibs
from dibs.cli.retention import RECORDS
from dibs.model.retention import Records
from tests.cli.running import Run


def test_the_rules_are_listed_with_the_defaults_first(run: Run, client: dibs.Dibs) -> None:
    client.signed("ann").set_retention("completed", None, type="invoice")
    client.set_retention("failed", 90, queue="mail")
    lines = [line.split() for line in run("retention", "list").out.splitlines()]
    assert lines[0] == ["records", "applies", "to", "keep", "changed", "(UTC)", "by"]
    assert lines[1] == ["completed", "everything", "else", "1d", "-", "-"]
    assert lines[2] == ["failed", "everything", "else", "30d", "-", "-"]
    assert (lines[6][:4], lines[6][-1]) == (["completed", "type", "invoice", "forever"], "ann")
    assert lines[7][:4] == ["failed", "queue", "mail", "90s"]
    rules = run("retention", "list", "--json").json["rules"]
    assert [rule["keep_seconds"] for rule in rules] == [86400, 2592000, 86400, 2592000, 86400, None, 90]
    assert (rules[5]["task_type"], rules[5]["changed_by"], rules[5]["changed_at"][-1]) == ("invoice", "ann", "Z")


def test_a_rule_is_set_and_removed(run: Run, client: dibs.Dibs) -> None:
    assert run("retention", "set", "completed", "7d").out == "completed: kept for 7d.\n"
    assert run("retention", "set", "completed", "0s", "--type", "ping").out == (
        "completed of type 'ping': deleted at the next upkeep.\n"
    )
    said = run("retention", "set", "failed", "forever", "--queue", "mail", "--json").json
    assert (said["success"], said["rule"]["queue"], said["rule"]["keep_seconds"]) == (True, "mail", None)
    run("retention", "set", "failed", "12h", "--workflow", "order")
    kept = {(rule.records, rule.queue, rule.type, rule.workflow): rule.keep for rule in client.retention()}
    assert kept["completed", None, None, None] == 7 * 86400
    assert kept["failed", None, None, "order"] == 12 * 3600
    assert run("retention", "remove", "completed", "--type", "ping").code == 0
    assert run("retention", "remove", "completed", "--json").json == {"success": True}
    assert len(client.retention()) == 7


def test_changes_are_listed_newest_first(run: Run, client: dibs.Dibs) -> None:
    assert run("retention", "changes").err == "No retention rule was changed.\n"
    client.signed("ann").set_retention("completed", 60, queue="mail")
    client.signed("ben").remove_retention("completed", queue="mail")
    _, removed, added = (line.split() for line in run("retention", "changes").out.splitlines())
    assert removed[2:] == ["ben", "completed", "queue", "mail", "removed"]
    assert added[2:] == ["ann", "completed", "queue", "mail", "1m"]
    assert [change["removed"] for change in run("retention", "changes", "--json").json["changes"]] == [True, False]


def test_a_rule_that_a_command_changes_has_the_user_of_the_system_as_its_author(
    run: Run, client: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    assert run("retention", "set", "completed", "7d", "--json").json["rule"]["changed_by"] == "ann"
    run("retention", "remove", "completed")
    assert [change.by for change in client.retention_changes()] == ["ann", "ann"]


@pytest.mark.parametrize("name", ["", "ann\nben", "a" * 300])
def test_a_rule_is_changed_also_if_the_user_has_no_usable_name(
    run: Run, client: dibs.Dibs, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: name)
    assert run("retention", "set", "completed", "7d").code == 0
    assert [change.by for change in client.retention_changes()] == [None]


def test_an_invalid_rule_is_refused_with_a_hint(run: Run, client: dibs.Dibs) -> None:
    wrong = run("retention", "set", "completed", "soon")
    assert (wrong.code, "'soon' is not a valid duration" in wrong.err) == (2, True)
    assert "RetentionNotFound" not in run("retention", "remove", "failed", "--queue", "nosuch").err
    assert (
        "No retention rule is set for failed of queue 'nosuch'"
        in run("retention", "remove", "failed", "--queue", "nosuch").err
    )
    assert "Use one of: completed" in run("retention", "set", "pending", "1d").err


def test_the_command_knows_every_kind_of_records() -> None:
    assert list(RECORDS) == list(Records)
