"""Run `dibs` and return its exit code and output: in this process, or in a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import typer
import typer.main

from dibs.cli import app, errors
from tests.helpers.starting import start

COMMAND = [sys.executable, "-m", "dibs"]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


Run = Callable[..., Done]


def environment(url: str | None = None, **more: str) -> dict[str, str]:
    """This process's environment, with the store and nothing that changes how text looks."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DIBS_URL", "COLUMNS", "FORCE_COLOR")}
    return {**kept, **({"DIBS_URL": url} if url else {}), **more}


PROCESSES = frozenset({"demo", "server", "top", "worker"})
"""Commands that run until they are stopped: they handle signals and configure logging, and so need a process."""

OF_A_PROCESS = ("COMP_", "LANG", "LC_", "PYTHON", "TZ", "_DIBS")
"""Variables that are read when a process starts."""


def run_dibs(*args: str, url: str | None = None, cwd: Path | None = None, stdin: str = "", **env: str) -> Done:
    """Run the command to its end: in this process, which takes milliseconds, unless it needs a process of its own."""
    needs_process = not PROCESSES.isdisjoint(args[:1]) or any(name.startswith(OF_A_PROCESS) for name in env)
    run = run_dibs_process if needs_process else run_dibs_here
    return run(*args, url=url, cwd=cwd, stdin=stdin, **env)


def run_dibs_here(*args: str, url: str | None = None, cwd: Path | None = None, stdin: str = "", **env: str) -> Done:
    """Run the command in this process. Not for several threads at once: a process has one folder and one output."""
    out, err = _capture(), _capture()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(os, "environ", environment(url, **env))
        patch.setattr(sys, "stdin", given)
        patch.chdir(cwd or Path.cwd())
        try:
            code = errors.run(built(), args)
        except Exception:  # as Python ends a process
            traceback.print_exc()
            code = 1
    return Done(code, _text(out), _text(err))


@cache
def built() -> typer.Typer:
    """The commands, built once. Typer builds all of them anew for each call, and that takes 50 ms."""
    return cast("typer.Typer", typer.main.get_command(app))  # it is called as the application is called


def _capture() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(captured: io.TextIOWrapper) -> str:
    return captured.buffer.getvalue().decode()  # type: ignore[attr-defined,no-any-return]


def run_dibs_process(*args: str, url: str | None = None, cwd: Path | None = None, stdin: str = "", **env: str) -> Done:
    """Run the command to its end, in a process of its own."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        env = environment(url, **env)
        with start("dibs", *args, stdin=given, stdout=out, stderr=err, cwd=cwd, env=env) as process:
            try:
                code = process.wait(60)
            finally:
                process.kill()
        out.seek(0)
        err.seek(0)
        return Done(code, out.read().decode(), err.read().decode())
