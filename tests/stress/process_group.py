"""Processes that work or send, to be killed, frozen, thawed, ended and replaced; what each does is in members.py."""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from multiprocessing.connection import wait as wait_for_sentinel
from pathlib import Path
from typing import Any

from tests.helpers.freezing import freeze
from tests.helpers.processes import ROOT
from tests.helpers.waiting import until
from tests.stress import members
from tests.stress.checking import Death
from tests.stress.members import Role
from tests.stress.reply_log import Reader

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.stress.members", "tests.stress.handlers", "psycopg", "psycopg_pool"])
_numbers = itertools.count(1)

PATIENCE = 60.0
"""Seconds until what a scenario waits for must have happened."""


class Member:
    """One process. `deaths`: when it was killed or frozen, and until when, for measuring how soon others take over."""

    def __init__(self, role: Role, under: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        self.role, self.under, self.env = role, under, env
        self.name = role.name
        self.deaths: list[Death] = []
        self._replies = Reader(Path(role.folder), role.name)
        self._process = _Apart(role, under, env or {}) if under or env else _Forked(role)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """False once the process has ended."""
        return self._process.exit_code(0) is None

    @property
    def log(self) -> str:
        """Its standard error."""
        path = Path(self.role.folder) / f"{self.name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def reply_count(self) -> int:
        """How many answers it has had that were no trouble."""
        return self._replies.count()

    def kinds(self) -> dict[str, int]:
        """How many answers of each kind it has had."""
        self._replies.count()
        return dict(self._replies.kinds)

    def wait_for(self, count: int, timeout: float = PATIENCE) -> None:
        """Until it has had that many answers more than now."""
        goal = self.reply_count() + count
        until(lambda: self.reply_count() >= goal or self._has_ended(), timeout)

    def kill(self) -> None:
        """kill -9, and remember when."""
        self.signal(signal.SIGKILL)
        self.deaths.append(Death(time.time()))
        self._process.exit_code(PATIENCE)

    def freeze(self, database: str | None = None) -> None:
        """Freeze the process at any instruction; with a database, not while it has a transaction open."""
        if self.is_alive:
            freeze(self.pid, outside_transactions_of=database)
        self.deaths.append(Death(time.time()))

    def thaw(self) -> None:
        """Let the process continue."""
        if self.deaths and self.deaths[-1].until == math.inf and self.is_alive:
            self.deaths[-1].until = time.time()
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM."""
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Any signal, unless it has ended."""
        if self.is_alive:
            os.kill(self.pid, number)

    def exit_code(self, timeout: float = PATIENCE) -> int:
        """Wait until it has ended; negative: by which signal."""
        code = self._process.exit_code(timeout)
        assert code is not None, f"{self.name} did not end within {timeout} seconds.\n{self.log}"
        return code

    def close(self) -> None:
        """Kill the process if it still runs."""
        self.signal(signal.SIGKILL)
        self.exit_code()

    def _has_ended(self) -> bool:
        assert self.is_alive or self.deaths, f"{self.name} ended with {self.exit_code()}.\n{self.log}"
        return bool(self.deaths) and not self.is_alive


class ProcessGroup:
    """Members of one kind."""

    def __init__(
        self,
        kind: str,
        url: str,
        folder: Path,
        chance: random.Random,
        *,
        under: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.kind, self.url, self.folder, self.chance = kind, url, folder, chance
        self.under, self.env, self.options = under, env, options
        self.all: list[Member] = []
        self.members: list[Member] = []
        """The members that should be at work."""

    def start(self, count: int = 1, **options: Any) -> list[Member]:
        """That many more, each ready once it has been told something: wait for that with `wait_until_at_work`."""
        new = [Member(self._role(options), self.under, self.env) for _ in range(count)]
        self.all += new
        self.members += new
        return new

    def pick(self) -> Member:
        """Any of them."""
        return self.chance.choice(self.members)

    def kill(self, member: Member | None = None) -> Member:
        """kill -9 this one, or any; it is not replaced."""
        member = member or self.pick()
        member.kill()
        self.members.remove(member)
        return member

    def replace(self, gone: Member) -> Member:
        """Another in its place. A sender begins with the batch whose answer the last one did not live to hear."""
        if gone in self.members:
            self.members.remove(gone)
        options = dict(gone.role.options)
        if self.kind == "sender":
            options["series"] = options.get("series", gone.name)
            options["first"] = options.get("first", 0) + gone.reply_count()
        return self.start(1, **options)[0]

    def restart_the_dead(self) -> int:
        """What a service manager does; how many had ended."""
        dead = [member for member in self.members if not member.is_alive]
        for member in dead:
            self.replace(member)
        return len(dead)

    def wait_until_at_work(self) -> None:
        """Until each of them has had an answer."""
        for member in self.members:
            until(lambda: member.reply_count() or member._has_ended(), PATIENCE)  # noqa: B023 (called at once)

    def reply_count(self) -> int:
        """How many answers all of them have had, those of the dead included."""
        return sum(member.reply_count() for member in self.all)

    def wait_for(self, count: int, timeout: float = PATIENCE) -> None:
        """Until they have had that many answers more than now, all together."""
        goal = self.reply_count() + count
        until(lambda: self.reply_count() >= goal, timeout)

    def stop(self) -> None:
        """SIGTERM for all, and wait until they have ended."""
        for member in self.members:
            member.thaw()
            member.terminate()
        for member in self.members:
            member.exit_code()
        self.members.clear()

    def close(self) -> None:
        """None of them outlives this."""
        for member in self.all:
            member.close()

    def deaths(self) -> dict[str, list[Death]]:
        """The times at which each member was killed or frozen."""
        return {member.name: member.deaths for member in self.all if member.deaths}

    def _role(self, options: dict[str, Any]) -> Role:
        name = f"{self.kind.rpartition(':')[2]}-{next(_numbers)}"
        mixture = {**self.options, **options}
        return Role(self.kind, name, self.url, str(self.folder), self.chance.randrange(2**32), mixture)


class _Forked:
    """A process from a server that has imported everything before: it starts in milliseconds."""

    def __init__(self, role: Role) -> None:
        self._process = _context.Process(target=members.play, args=[role])
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def exit_code(self, timeout: float) -> int | None:
        if self._process.exitcode is None and timeout:
            wait_for_sentinel([self._process.sentinel], timeout)
        return self._process.exitcode


class _Apart:
    """A process started by its command, under another program (strace, faketime) or in another environment.

    The member is the child of that program, if it stays: `pid` is then the member's, not the program's.
    """

    def __init__(self, role: Role, under: Sequence[str], env: Mapping[str, str]) -> None:
        command = [*under, sys.executable, "-m", "tests.stress.members", json.dumps(asdict(role))]
        log = (Path(role.folder) / f"{role.name}.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=log, env={**os.environ, **env}
            )

    @property
    def pid(self) -> int:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        found = children.read_text(encoding="ascii").split() if children.exists() else []
        return int(found[0]) if found else self._process.pid

    def exit_code(self, timeout: float) -> int | None:
        try:
            return self._process.wait(timeout) if timeout else self._process.poll()
        except subprocess.TimeoutExpired:
            return None
