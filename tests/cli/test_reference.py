"""The reference of the command line has every command and every option of --help, and no others."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from dibs import cli
from dibs.cli.output import Column
from tests.cli.running import run_dibs
from tests.cli.test_fast_start import commands
from tests.helpers.each import for_each

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
SHARED = {"--url", "--json", "--help"}
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
GROUPS = {
    "tasks",
    "dead",
    "queues",
    "limits",
    "groups",
    "schedules",
    "retention",
    "keys",
    "workflows",
    "types",
    "history",
}

SECTIONS = {
    " ".join(re.findall(r"[a-z]+(?![\w:])", title)): (title, body)
    for title, body in re.findall(r"^## `dibs ([^`]+)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
LEAVES = [command for command in commands() if command and not (len(command) == 1 and command[0] in GROUPS)]


@cache
def helped(*command: str) -> str:
    return run_dibs(*command, "--help", COLUMNS="200").out


@for_each("command", LEAVES)
def test_a_command_is_described_with_all_its_options(command: list[str]) -> None:
    name = " ".join(command)
    assert name in SECTIONS, f"docs/reference/command-line.md has no section `dibs {name}`"
    options = set(FLAG.findall(helped(*command).partition("Options:")[2])) - SHARED
    described = set(FLAG.findall(SECTIONS[name][1]))
    assert options - described == set(), "options that the page does not name"
    assert described - options - SHARED == set(), "options that do not exist"


@for_each("command", LEAVES)
def test_a_command_is_described_with_its_arguments(command: list[str]) -> None:
    usage = helped(*command).splitlines()[0]
    wanted = re.findall(r"[A-Z][A-Z_:]+(?=[\]}. ]|$)", usage.partition("[OPTIONS]")[2])
    title = SECTIONS[" ".join(command)][0]
    assert [argument for argument in wanted if argument not in title] == []


def test_the_page_describes_no_command_that_does_not_exist() -> None:
    assert set(SECTIONS) - {" ".join(command) for command in LEAVES} == set()


def test_the_global_options_are_described() -> None:
    shared = PAGE.partition("## `dibs worker")[0]
    assert [flag for flag in FLAG.findall(helped().partition("Options:")[2]) if flag not in shared] == []


def test_the_exit_codes_are_described_here_and_in_the_help() -> None:
    for code in ("0", "1", "2", "3"):
        assert f"| {code} |" in PAGE
        assert f"{code} " in helped().partition("Exit codes:")[2]


def test_options_and_tables_say_state_and_never_status() -> None:
    """Only JSON has the names of the HTTP API, where a state is `status`."""
    options = {flag for command in LEAVES for flag in FLAG.findall(helped(*command))}
    modules = [import_module(f"dibs.cli.{each.name}") for each in iter_modules(cli.__path__)]
    values = [value for module in modules for value in vars(module).values() if isinstance(value, tuple)]
    titles = {column.title for value in values for column in value if isinstance(column, Column)}
    assert "--state" in options
    assert "state" in titles
    assert [name for name in sorted(options | titles) if "status" in name] == []
