"""Starts `python -m MODULE ARGS` repeatedly, without the time that the import of dibs takes.

The starter is a process that has imported everything, and forks for each command. A request comes over the socket whose
number it is given, with the three standard files of the command and a socket for the replies: the process id of the
command, and its exit status. The starter is a program, not a module of the tests: a command finds only what it finds in
a new process. See starting.py.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import typer.main

import dibs

ALSO = ("pydantic", "typer._adapters", "rich.live", "rich.progress", "rich.table", "rich.text")
"""What commands import when they run."""

LONGEST = 1 << 18


def import_all() -> None:
    """Everything that a command may need."""
    for name in (*modules_of(dibs.__path__, "dibs."), *ALSO):
        if not name.endswith("__main__"):
            importlib.import_module(name)
    build_commands_once()
    gc.collect()
    gc.freeze()


def modules_of(path: Iterable[str], prefix: str) -> Iterator[str]:
    """The modules of a package. Not those of dibs.django, which can be imported only in a Django project."""
    for module in pkgutil.iter_modules(path, prefix):
        if module.name == "dibs.django":
            continue
        yield module.name
        if module.ispkg:
            yield from modules_of(importlib.import_module(module.name).__path__, f"{module.name}.")


def build_commands_once() -> None:
    """Build the commands of dibs before the fork: Typer builds all of them anew for each call, and that takes 50 ms."""
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(dibs.cli.app)


def next_command(asked: socket.socket) -> dict[str, Any] | None:
    """Wait for a command, and return it in the process that is to run it; None in the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the processes that wait for commands are not waited for
    while True:
        message, files, _, _ = socket.recv_fds(asked, LONGEST, 4)
        if not message:
            return None
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked.close()
    *standard, answers = files
    if child := os.fork():
        for file in (0, 1, 2, *standard):
            os.close(file)
        _wait_for(child, socket.socket(fileno=answers))
    os.close(answers)
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    return json.loads(message)  # type: ignore[no-any-return]


def _wait_for(child: int, answers: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the command's to end
    answers.send(str(child).encode())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answers.send(str(code).encode())
    os._exit(0)


def become(args: list[str], env: dict[str, str], cwd: str) -> None:
    """Be as a process that was started so."""
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    sys.path[0] = cwd
    sys.argv[1:] = args


def run(module: str) -> int:
    """Run the module as the main program; its exit code. What else the module raises ends this process as usual."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        return end.code or 0
    return 0


def leave(code: int) -> None:
    """End as Python does, but do not take the modules apart: that would touch, and so copy, all memory of the process
    from which this process was forked, and that takes 30 ms of CPU time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except (OSError, ValueError):
        return  # Python has its own way to end a process that cannot write
    os._exit(code)


if __name__ == "__main__":
    requests = socket.socket(fileno=int(sys.argv[1]))
    import_all()
    if (wanted := next_command(requests)) is not None:
        become(wanted["args"], wanted["env"], wanted["cwd"])
        leave(run(wanted["module"]))
