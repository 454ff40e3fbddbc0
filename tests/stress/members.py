"""The programs of the processes in a stress run, each until it is stopped or dies: plain worker, real worker, sender.

Alone, under another program: `python -m tests.stress.members '{"kind": "plain", …}'`.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import dibs
from dibs import (
    Claim,
    ClaimLost,
    ClaimRef,
    Completed,
    DibsError,
    Event,
    Failed,
    Failure,
    Finished,
    NewTask,
    Order,
    Outcome,
    Released,
    State,
    StoreError,
    Task,
)
from tests.stress import limited
from tests.stress.reply_log import ENQUEUED, REFUSED, TROUBLE, ReplyLog

T = TypeVar("T")

PATIENCE = 90.0
"""Seconds for which a member asks again while the store does not answer."""

MAX_ATTEMPTS = 1000
"""Of what members enqueue: every death of a worker costs an attempt, and here they die all the time."""


FEW = 30
"""Waiting tasks of a queue with which limits are still reached."""


@dataclass(frozen=True)
class Role:
    """The name and the program of a process."""

    kind: str
    name: str
    url: str
    folder: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)


def play(role: Role) -> None:
    """Be that process, with its errors in a file of its own."""
    log = os.open(Path(role.folder) / f"{role.name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, force=True)
    code = kind_of(role)(role)
    sys.stderr.flush()
    os._exit(code or 0)  # a member may have been forked in the middle of a test: no exit handlers of that


def end_with_parent() -> None:
    """End this process when its parent ends, so that it does not outlive an aborted run."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


class Member:
    """The common part of plain workers and senders: a client, a reply log, a stop flag, and retries."""

    def __init__(self, role: Role) -> None:
        self.app = dibs.Dibs(role.url)
        self.name, self.folder, self.options = role.name, role.folder, role.options
        self.replies = ReplyLog(role.folder, role.name)
        self.chance = random.Random(role.seed)
        self.stopping = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())

    def go_on(self) -> None:
        """Its work, until `stopping` is set."""
        raise NotImplementedError

    def insist(self, call: Callable[[], T]) -> T:
        """Ask until there is an answer: every call here has a key, a token or a request, and is safe to repeat."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return call()
            except StoreError as error:
                self.replies.write(TROUBLE, [error.code])
                if time.monotonic() > deadline or self.stopping.is_set():
                    raise
                self.stopping.wait(0.02)


class PlainWorker(Member):
    """Claims, renews and finishes in every way there is, by plain verbs, and sends new tasks when few are left."""

    def __init__(self, role: Role) -> None:
        super().__init__(role)
        self.lease: float = self.options.get("lease", 1.0)
        self.batch: int = self.options.get("batch", 20)
        self.sends: bool = self.options.get("sends", True)
        self.upkeep_every: float = self.options.get("upkeep_every", 0.3)
        self.queues: list[str] | None = self.options.get("queues")
        self.mixed: bool = self.options.get("mixed", True)
        self.linger: float = self.options.get("linger", 0.0)
        self.replays: bool = self.options.get("replays", False)
        self._asked = self._sent = 0
        self._next_upkeep = time.monotonic() + self.upkeep_every

    def go_on(self) -> None:
        while not self.stopping.is_set():
            claims = self.claim()
            if self.sends and (count := self.missing(claims)):
                self.send(count)
            if claims and self.chance.random() < 0.2:
                self.renew(claims)
            if claims:
                self.stopping.wait(self.linger)
                self.report([(claim, self.an_outcome(claim)) for claim in claims])
            self.run_upkeep()

    def missing(self, claims: Sequence[Claim]) -> int:
        """How many tasks to send, if few are left. With limits a small batch may also mean that permits are few."""
        if self.options.get("limited"):
            return 2 * self.batch if self._asked % 3 == 1 and self.few_wait() else 0
        return 2 * self.batch if len(claims) < self.batch else 0

    def few_wait(self) -> bool:
        """True if one of the queues of plain workers is nearly empty."""
        return any(len(self.insist(partial(self.some_waiting, queue))) < FEW for queue in ("queue-0", "queue-1"))

    def some_waiting(self, queue: str) -> list[Task]:
        """The newest waiting tasks of this queue."""
        return self.app.list_tasks(state="pending", queue=queue, limit=FEW)

    def report(self, reports: list[tuple[Claim, Outcome]]) -> None:
        """Send the outcomes once or repeatedly: a repeated outcome gets a reply each time, and is written once."""
        for _ in range(self.chance.randint(1, 3) if self.replays else 1):
            self.finish(reports)

    def claim(self) -> list[Claim]:
        self._asked += 1
        order = Order.PRIORITY if self.chance.random() < 0.8 else self.chance.choice(list(Order))
        request = f"{self.name}-{self._asked}"
        ask = lambda: self.app.claim_many(  # noqa: E731
            self.name,
            self.batch,
            lease=self.lease,
            order=order,
            wait=0 if self.sends else 0.2,
            request=request,
            queues=self.queues,
        )
        claims = self.insist(ask)
        self.replies.write(Event.CLAIMED, [(claim.task_id, claim.token) for claim in claims])
        return claims

    def renew(self, claims: Sequence[Claim]) -> None:
        self.insist(lambda: self.app.renew_many(claims, self.lease))

    def finish(self, reports: list[tuple[Claim, Outcome]]) -> None:
        answers = self.insist(lambda: self.app.finish(reports))
        heard: dict[str, list[Any]] = {}
        for (claim, outcome), answer in zip(reports, answers, strict=True):
            kind = event_of(outcome, answer)
            if kind == REFUSED:
                heard.setdefault(REFUSED, []).append(refusal(claim, outcome))
            else:
                heard.setdefault(kind, []).append((claim.task_id, claim.token))
        for kind, what in heard.items():
            self.replies.write(kind, what)

    def an_outcome(self, claim: Claim) -> Outcome:
        """A random outcome, mostly completed; its content names the token under which it is sent."""
        kind = self.chance.random() if self.mixed else 0
        if kind < 0.9:
            return Completed({"token": claim.token})
        if kind < 0.95:
            return Failed(Failure("Boom", f"token {claim.token}"), retry_in=0, permanent=kind < 0.91)
        return Released(self.chance.choice([0, 0.05]))

    def send(self, count: int) -> None:
        self._sent += 1
        send_batch(self, f"{self.name}-{self._sent}", count)

    def run_upkeep(self) -> None:
        if time.monotonic() >= self._next_upkeep:
            self.insist(self.app.upkeep)
            self._next_upkeep = time.monotonic() + self.upkeep_every


class Sender(Member):
    """Sends batch after batch; the keys of a batch follow from its number, so that a successor can repeat it."""

    def go_on(self) -> None:
        series, first = self.options.get("series", self.name), self.options.get("first", 0)
        most, batch = self.options.get("most"), self.options.get("batch", 20)
        for number in range(first, 10**9 if most is None else most):
            if self.stopping.is_set():
                return
            send_batch(self, f"{series}-{number}", batch)
            self.stopping.wait(self.options.get("linger", 0.0))
            if number % 50 == 49:
                self.wait_for_others()

    def wait_for_others(self) -> None:
        """Not further ahead of the workers than they can follow."""
        backlog = self.options.get("backlog", 5000)
        while self.insist(self.app.stats).depth.get("pending", 0) > backlog and not self.stopping.wait(0.05):
            pass


def send_batch(member: Member, name: str, count: int) -> None:
    """That many tasks in one transaction, with keys made of the name, until it is acknowledged."""
    make = a_nap if member.options.get("naps") else a_limited_task if member.options.get("limited") else a_task
    new = [make(member, name, n) for n in range(count)]
    tasks = member.insist(lambda: member.app.enqueue_many(new))
    member.replies.write(ENQUEUED, [task.id for task in tasks], [task.key for task in tasks])


def a_task(member: Member, name: str, n: int) -> NewTask:
    """For plain workers, which run nothing."""
    size = member.options.get("payload", 0)
    params = {"of": name, "padding": "x" * size} if size else {"of": name}
    queue = f"queue-{n % 2}"
    return NewTask("t", params, key=f"{name}-{n}", priority=n % 3, max_attempts=MAX_ATTEMPTS, queue=queue)


def a_limited_task(member: Member, name: str, n: int) -> NewTask:
    """As `a_task`, with limits and a group that follow from its key, so that a repetition has the same."""
    options = limited.options_of(f"{name}-{n}")
    return msgspec.structs.replace(a_task(member, name, n), **options)


def a_nap(member: Member, name: str, n: int) -> NewTask:
    """For real workers, in a separate queue: plain workers claim from it only if it is among their queues."""
    params = {"folder": member.folder, "seconds": member.options["naps"]}
    return NewTask("nap", params, key=f"{name}-{n}", max_attempts=MAX_ATTEMPTS, queue="naps")


def refusal(claim: Claim | ClaimRef, outcome: Outcome) -> tuple[int, int, str, str]:
    """How it is written down."""
    return claim.task_id, claim.token, event_of(outcome, None), claim.worker_id


def event_of(outcome: Outcome, answer: Finished | DibsError | None) -> str:
    """What the history calls it; `refused` where it was."""
    if isinstance(answer, ClaimLost):
        return REFUSED
    if isinstance(answer, DibsError):
        raise answer
    if answer is not None and answer.state is State.CANCELLED:
        return Event.CANCELLED
    return {Completed: Event.COMPLETED, Failed: Event.FAILED, Released: Event.RELEASED}[type(outcome)]


def work_plainly(role: Role) -> int:
    return let_go(PlainWorker(role))


def send(role: Role) -> int:
    return let_go(Sender(role))


def let_go(member: Member) -> int:
    """Run until SIGTERM; an outage that still lasts then is not a fault of the member."""
    try:
        member.go_on()
    except StoreError:
        if not member.stopping.is_set():
            raise
    return 0


def work(role: Role) -> int:
    """A real worker, with the handlers of handlers.py."""
    from tests.stress import handlers

    return work_with(handlers.app, role)


def work_with(app: dibs.Dibs, role: Role) -> int:
    """A real worker, with the handlers of this app."""
    app.use_url(role.url)
    options = {"lease": 1.0, "upkeep_every": 0.3, "concurrency": 4, "poll": 0.1, **role.options}
    with app:
        return app.worker(worker_id=role.name, **options).run()


def kind_of(role: Role) -> Callable[[Role], int]:
    """One of those below, or `module:function` of a scenario that brings its own."""
    if role.kind in KINDS:
        return KINDS[role.kind]
    module, _, function = role.kind.partition(":")
    found: Callable[[Role], int] = getattr(importlib.import_module(module), function)
    return found


KINDS: dict[str, Callable[[Role], int]] = {"plain": work_plainly, "sender": send, "worker": work}

if __name__ == "__main__":
    play(Role(**json.loads(sys.argv[1])))
