"""Text of users is shown as text: it sets no colour, moves no cursor and forges no line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest

import dibs
from dibs.cli import text
from dibs.cli.logs import HumanFormatter, JsonFormatter
from tests.cli.running import Run
from tests.helpers.terminal import Terminal

EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J [bold]x[/bold] :smile:\r\nerror: forged \u202egnorw"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain grün 💚", "plain grün 💚"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x1b[0m\x00\x7f\x9b", r"\x1b[0m\x00\x7f\x9b"),
        ("\u202eleft\u2028line\u2066", r"\u202eleft\u2028line\u2066"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_escaped(given: str, shown: str) -> None:
    assert text.line(given) == shown


def test_text_of_several_lines_keeps_its_line_breaks() -> None:
    assert text.lines("a\r\nb\tc\x1b\rd\n") == "a\nb   c\\x1b\\rd\n"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "now"), (3, "3 s ago"), (59.9, "59 s ago"), (60, "1 min ago"), (3600, "1 h ago"), (-90000, "in 1 d")],
)
def test_times_are_shown_relative_to_now(seconds: float, shown: str) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert text.relative(now - timedelta(seconds=seconds), now) == shown


def test_a_url_is_shown_without_its_secrets() -> None:
    assert text.public_url("postgresql://me:secret@host:5432/db?password=secret") == "postgresql://me@host:5432/db"
    assert text.public_url("sqlite:////tmp/dibs.db") == "sqlite:////tmp/dibs.db"


def test_every_command_shows_hostile_text_as_text(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize", {EVIL: EVIL})
    claim = client.claim("worker-1")
    assert claim is not None
    client.progress(claim, 10, EVIL)
    for command in (["tasks", "list"], ["tasks", "show", str(task.id)], ["top"]):
        _assert_harmless(run(*command).out)
    client.fail(claim, dibs.Failure("Evil", EVIL, EVIL), permanent=True)
    for command in (
        ["tasks", "show", str(task.id)],
        ["tasks", "history", str(task.id)],
        ["tasks", "explain", str(task.id)],
        ["dead", "list"],
        ["top"],
        ["tasks", "list", "--json"],
    ):
        _assert_harmless(run(*command).out)


def _assert_harmless(out: str) -> None:
    assert "forged" in out
    assert not set(out) & set("\x1b\x07\x9b\r\u202e")
    assert not [line for line in out.splitlines() if line.startswith("error: forged")]


def test_on_a_terminal_markup_and_escape_sequences_are_shown_as_text(url: str, client: dibs.Dibs) -> None:
    client.enqueue("resize", {"evil": "\x1b[31m[bold]x[/bold] :smile:"})
    with Terminal("tasks", "list", "--url", url, columns=150) as terminal:
        terminal.shows(r"\\u001b\[31m\[bold\]x\[/bold\] :smile:")
        assert terminal.colour_of("evil") == "default"
        assert terminal.ends() == 0


def test_a_table_fits_the_terminal_and_colours_states(url: str, client: dibs.Dibs) -> None:
    client.enqueue("resize", {"text": "x" * 300})
    client.cancel(client.enqueue("resize").id)
    with Terminal("tasks", "list", "--url", url) as terminal:
        terminal.shows("…")
        assert terminal.ends() == 0
        assert len([line for line in terminal.lines if line]) == 3
        assert terminal.colour_of("pending") == "brown"


def test_a_log_entry_cannot_be_forged() -> None:
    try:
        raise ValueError("boom\nINFO dibs: forged")
    except ValueError as error:
        record = logging.LogRecord("dibs", logging.ERROR, "f.py", 1, "task %s", (EVIL,), (ValueError, error, None))
    entry, *trace = HumanFormatter().format(record).splitlines()
    assert r"Z ERROR   dibs: task \x1b[31mred" in entry
    assert trace
    assert all(line.startswith("    ") for line in trace)
    [entry] = JsonFormatter().format(record).splitlines()  # also at U+2028 and the like
    assert "\x1b" not in entry
    assert json.loads(entry)["message"] == f"task {EVIL}"
    assert json.loads(entry)["traceback"].endswith("ValueError: boom\nINFO dibs: forged")
