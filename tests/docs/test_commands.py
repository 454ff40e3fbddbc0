"""The commands in the documentation are commands of dibs, with existing options."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import typer.main
from typer.exceptions import TyperException

from dibs.cli import app
from tests.helpers.each import for_each

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "deploy")
PAGES = [
    ROOT / "README.md",
    ROOT / "clients/typescript/README.md",
    *(page for each in FOLDERS for page in sorted((ROOT / each).rglob("*.md"))),
]

IN_SHELL = re.compile(r"^(?:\w+=\S+ )*dibs (.+)$", re.MULTILINE)
IN_UNIT = re.compile(r"^Exec\w+=\S*/dibs (.+)$", re.MULTILINE)
IN_ARRAY = re.compile(r"\[\"dibs\", .*?\]")
IN_TEXT = re.compile(r"`dibs ([a-z][^`]*)`")
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@for_each("page", PAGES)
def test_a_command_in_a_code_block_is_parsed_by_dibs(page: Path) -> None:
    refused = {shlex.join(args): reason for args in _commands(page) if (reason := _refusal(args))}
    assert refused == {}


@for_each("page", PAGES)
def test_a_command_mentioned_on_a_page_exists(page: Path) -> None:
    mentioned = IN_TEXT.findall(page.read_text(encoding="utf-8"))
    assert [command for command in mentioned if not _exists(command.split())] == []


def test_the_check_finds_a_wrong_command() -> None:
    assert _refusal(["worker", "tasks:app", "--lane", "process"])
    assert _refusal(["tasks", "lost"])
    assert not _exists(["dead", "redive"])
    assert len([args for page in PAGES for args in _commands(page)]) >= 20


def _commands(page: Path) -> list[list[str]]:
    text = page.read_text(encoding="utf-8")
    shell = "\n".join(SHELL_BLOCK.findall(text))
    lines = [*IN_SHELL.findall(shell), *IN_UNIT.findall(text)]
    arrays = [json.loads(array)[1:] for array in IN_ARRAY.findall(text)]
    return [shlex.split(line.partition(" | ")[0], comments=True) for line in lines] + arrays


def _refusal(args: list[str]) -> str:
    """Why the command line would refuse this; empty if it would not."""
    try:
        command, rest = _find(args)
        command.make_context("dibs", rest)
    except KeyError as missing:
        return f"there is no command {missing}"
    except TyperException as error:
        return error.format_message()
    return ""


def _exists(words: list[str]) -> bool:
    try:
        command, rest = _find(words)
    except KeyError:
        return False
    known = {name for parameter in command.params for name in parameter.opts}
    return all(word in known for word in rest if word.startswith("--"))


def _find(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the other words. A group alone may be spoken of as well."""
    command = _root()
    rest = list(words)
    while rest and hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    return command, rest


@cache
def _root() -> Any:
    return typer.main.get_command(app)
