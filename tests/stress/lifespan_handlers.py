"""Handlers in all lanes of an app whose lifespan fails at random at its start and at its end, in any process."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

import dibs
from tests.stress.handlers import begin
from tests.stress.reply_log import path_of, reply_log_of

WORKER_START = "the start fails in the worker"
WORKER_END = "the end fails in the worker"
CHILD_START = "the start fails in the first child"
LATER_CHILD_START = "the start fails in a later child"
CHILD_END = "the end fails in a child"
CHILD_STARTED = "started in a child"

VARIABLE = "DIBS_STRESS_LIFESPAN"
"""The environment variable with the plan of a worker: its child processes read the same."""

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url


class LifespanPlan(msgspec.Struct, frozen=True):
    """How likely each fault is in a worker and its child processes. `pid`: that of the worker."""

    folder: str
    worker: str
    pid: int
    seed: int
    awaited: bool
    odds: dict[str, float]

    def keep(self) -> None:
        """For this process and its children."""
        os.environ[VARIABLE] = msgspec.json.encode(self).decode()

    @staticmethod
    def read() -> LifespanPlan:
        """That of the worker of this process."""
        return msgspec.json.decode(os.environ[VARIABLE], type=LifespanPlan)

    @property
    def in_child(self) -> bool:
        return os.getpid() != self.pid

    def children(self) -> int:
        """Child processes so far that have started the lifespan, or tried to."""
        path = path_of(self.folder, self.worker)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return sum(text.count(f'["{kind}"') for kind in (CHILD_STARTED, CHILD_START, LATER_CHILD_START))

    def log(self, kind: str) -> None:
        reply_log_of(self.folder, self.worker).write(kind, [os.getpid()])

    def perhaps_fail(self, kind: str) -> None:
        """Raise, as likely as the plan has it."""
        if random.Random(f"{self.seed} {kind} {self.children()}").random() < self.odds.get(kind, 0):
            self.log(kind)
            raise LifespanBroken(kind)


class LifespanBroken(Exception):
    """What a lifespan raises."""


@dataclass
class OpenResources:
    """What handlers share. They may use it only in its process, and between start and end."""

    pid: int
    is_open: bool = True


@app.lifespan
def opens() -> Any:
    plan = LifespanPlan.read()
    return opens_async(plan) if plan.awaited else opens_plainly(plan)


@contextmanager
def opens_plainly(plan: LifespanPlan) -> Iterator[OpenResources]:
    resources = start(plan)
    yield resources
    end(plan, resources)


@asynccontextmanager
async def opens_async(plan: LifespanPlan) -> AsyncIterator[OpenResources]:
    resources = start(plan)
    yield resources
    end(plan, resources)


def start(plan: LifespanPlan) -> OpenResources:
    if plan.in_child:
        plan.perhaps_fail(LATER_CHILD_START if plan.children() else CHILD_START)
        plan.log(CHILD_STARTED)
    else:
        plan.perhaps_fail(WORKER_START)
    return OpenResources(os.getpid())


def end(plan: LifespanPlan, resources: OpenResources) -> None:
    resources.is_open = False
    plan.perhaps_fail(CHILD_END if plan.in_child else WORKER_END)


@app.task
def use(ctx: dibs.Context, folder: str) -> dict[str, Any]:
    begin(ctx, folder)
    resources: OpenResources = ctx.resources
    if not resources.is_open or resources.pid != os.getpid():
        raise dibs.Permanent(f"The resources are not those of this process: {resources}.")
    return {"token": ctx.token}


@app.task
async def use_async(ctx: dibs.Context, folder: str) -> dict[str, Any]:
    return use.function(ctx, folder)


@app.task(lane="process")
def use_apart(ctx: dibs.Context, folder: str) -> dict[str, Any]:
    return use.function(ctx, folder)
