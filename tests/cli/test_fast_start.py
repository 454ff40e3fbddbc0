"""--help and completion answer fast, because they import few modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import dibs
from dibs.cli import app, options
from dibs.model.claim import Order
from dibs.model.task import State
from tests.cli.running import run_dibs

HEAVY = (
    "rich",
    "msgspec",
    "asyncio",
    "sqlite3",
    "psycopg",
    "uvicorn",
    "starlette",
    "dibs.client",
    "dibs.server",
    "dibs.store",
    "dibs.model",
    "dibs.wire",
    "dibs.worker",
)

ASK_ALL = """
import sys
known = set(sys.modules)  # as a start of Python imports them, with coverage as well
import contextlib, io, json
from dibs.cli import app
from dibs.cli.errors import run
from typer.main import get_command
built, answers = get_command(app), []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run(built, [*command, "--help"])
    answers.append([command, code, out.getvalue(), sorted(set(sys.modules) - known)])
    known = set(sys.modules)
print(json.dumps(answers))
"""
"""Asks every command for its help, one after the other in one process, and says what each of them imported."""


def commands() -> list[list[str]]:
    """Every command there is, as it is typed."""
    found: list[list[str]] = [[], *([command.name or ""] for command in app.registered_commands)]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        names = [command.name or "" for command in group.typer_instance.registered_commands]
        found += [[group.name or ""], *([group.name or "", name] for name in names)]
    return found


def test_the_help_of_every_command_imports_nothing_heavy() -> None:
    asked = [sys.executable, "-c", ASK_ALL, json.dumps(commands())]
    answers = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert "dibs.cli.errors" in answers[0][3]
    for command, code, text, modules in answers:
        assert code == 0, command
        assert text.startswith(f"Usage: {' '.join(['dibs', *command])}")
        heavy = [each for each in modules if each in HEAVY or each.startswith(tuple(f"{name}." for name in HEAVY))]
        assert heavy == [], command


def test_the_options_name_the_states_and_orders_of_the_model_which_they_do_not_import() -> None:
    assert sorted(options.STATES) == sorted(State)
    assert sorted(options.ORDERS) == sorted(Order)


def test_every_public_name_is_imported_on_access() -> None:
    assert [name for name in dibs.__all__ if not hasattr(dibs, name)] == []
    assert set(dir(dibs)) >= set(dibs.__all__)
    assert not hasattr(dibs, "Frobnicate")


def test_the_option_version_prints_the_version() -> None:
    assert run_dibs("--version").out == f"dibs {dibs.__version__}\n"


def completed(words: str, tmp_path: Path) -> list[str]:
    """What the shell would offer for the last word."""
    line = f"dibs {words}"
    position = str(len(line.split()) - (0 if line.endswith(" ") else 1))
    done = run_dibs(cwd=tmp_path, _DIBS_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=position)
    return done.out.split()


def test_the_shell_completes_commands_states_queues_and_types(tmp_path: Path) -> None:
    run_dibs("enqueue", "resize", "--queue", "media", cwd=tmp_path)
    assert {"tasks", "top"} <= set(completed("t", tmp_path))
    assert completed("tasks list --state c", tmp_path) == ["claimed", "completed", "cancelled"]
    assert completed("tasks list --queue ", tmp_path) == ["media"]
    assert completed("enqueue re", tmp_path) == ["resize"]


def test_completion_without_a_database_offers_nothing_and_creates_none(tmp_path: Path) -> None:
    assert completed("tasks list --queue ", tmp_path) == []
    assert list(tmp_path.iterdir()) == []
