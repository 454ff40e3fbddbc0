"""The scenarios of the server: each verb by several clients, a worker, a limit across two servers, wrong keys."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from bench.contest import Contestant, Figures, percentiles
from bench.databases import COUNTS, EVENTS, Counts, Engine, Fill, fill_dibs
from bench.http_keys import compare_keys
from bench.http_load import Done, Job
from bench.http_requests import PAGE, WORKER
from bench.http_server import ROOT, Served, serving
from bench.queues.contests import drain
from bench.queues.processes import Door
from bench.queues.systems import DIBS, DibsSystem
from dibs import Dibs

TASKS = "SELECT id, token FROM dibs_tasks ORDER BY id"
TOKENS = "SELECT token, count(*) FROM dibs_tasks GROUP BY token"
THERE = 1000
"""Tasks that are there where tasks are looked at."""

FILL = 1000
DAY = 86_400.0
WINDOW = 60.0
PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of one kind: `count` of them (of cycles: cycles; of exchanges: tasks) while the clock runs.

    `rate`: so many a second, from all clients together; None: each asks again when it was answered.
    """

    verb: str
    clients: int
    count: int
    rate: float | None = None
    batch: int = 1

    @property
    def name(self) -> str:
        """What the table calls it."""
        return {"cycle": "claim + complete", "exchange": f"exchange, {self.batch} a request"}.get(self.verb, self.verb)

    @property
    def setting(self) -> str:
        """Further cells of the table."""
        return "" if self.rate is None else f"{self.rate:,.0f}/s"

    @property
    def warm_up(self) -> int:
        """Requests before the clock starts: every client's, and enough that PostgreSQL has made up its mind."""
        return max(20, self.clients * (2 if self.verb == "exchange" else 12))

    @property
    def tasks(self) -> int:
        """How many tasks there are when it is over."""
        if self.verb in ("get", "list"):
            return THERE
        return self.count + self.warm_up * self.batch

    @property
    def requests(self) -> int:
        """What the job counts: exchanges run until no task is left."""
        return sys.maxsize if self.verb == "exchange" else self.count


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    requests: int = 5_000
    tasks: int = 20_000
    limit: int = 6_000
    tries: int = 3_000

    @classmethod
    def quick(cls) -> Sizes:
        """A small version."""
        return cls(requests=300, tasks=1_000, limit=600, tries=200)


def contests(engine: Engine, sizes: Sizes) -> Iterator[list[Contestant]]:
    """Those on this engine. The members of each take turns."""
    for traffic, bare in _traffic(sizes):
        yield [
            _contestant(engine, traffic, "dibs", partial(_ask, engine, traffic)),
            *([_contestant(engine, traffic, "bare", partial(_ask_bare, traffic))] if bare else []),
        ]
    yield [
        Contestant(
            "worker", "drain", engine.name, name, 1, "def", partial(drain, engine, system, "def", 1, sizes.tasks)
        )
        for system, name in ((REMOTE, "worker over HTTP"), (DIBS, "worker on the database"))
    ]
    limit = partial(_hammer, engine, sizes)
    yield [Contestant("limit", f"{sizes.limit:,} a minute", engine.name, "2 servers", 20, "", limit)]
    yield [Contestant("key", "a 401", engine.name, "dibs", 1, "", partial(_compare, engine, sizes))]


def _traffic(sizes: Sizes) -> Iterator[tuple[Traffic, bool]]:
    """What is asked, and whether the bare endpoint is asked as well."""
    many = sizes.requests
    yield Traffic("claim", 10, many), True
    yield Traffic("claim", 50, many), True
    yield Traffic("claim", 50, many, rate=500), False
    yield Traffic("create", 10, many), False
    yield Traffic("get", 10, 2 * many), True
    yield Traffic("list", 10, many // 2), False
    yield Traffic("complete", 10, many), False
    yield Traffic("cycle", 10, many // 2), False
    yield Traffic("exchange", 10, 4 * many, batch=10), False
    yield Traffic("exchange", 10, 10 * many, batch=100), False


def _contestant(engine: Engine, traffic: Traffic, side: str, run: partial[Figures]) -> Contestant:
    return Contestant("requests", traffic.name, engine.name, side, traffic.clients, traffic.setting, run)


# Requests


def _ask(engine: Engine, traffic: Traffic) -> Figures:
    with engine.filled(0 if traffic.verb == "create" else traffic.tasks, _fill(traffic)) as url:
        key = new_key(url)
        there = list(engine.count(url, TASKS).items())
        with serving(url) as server:
            done = _run(_job(traffic, [server], key, there))
        _check(engine, url, traffic, done)
    return _figures(traffic, done)


def _ask_bare(traffic: Traffic) -> Figures:
    with serving(None) as server:
        return _figures(traffic, _run(_job(traffic, [server], "none", [(1, 0)])))


def _job(traffic: Traffic, servers: list[Served], key: str, there: list[tuple[int, int]]) -> Job:
    return Job(
        ports=[server.port for server in servers],
        key=key,
        verb=traffic.verb,
        clients=traffic.clients,
        count=traffic.requests,
        warm_up=traffic.warm_up,
        rate=traffic.rate,
        batch=traffic.batch,
        tasks=there if traffic.verb in ("get", "list", "complete") else [],
        expected=[201] if traffic.verb == "create" else [200],
        pids=[server.process.pid for server in servers],
    )


def _run(job: Job) -> Done:
    command = [sys.executable, "-m", "bench.http_load"]
    ran = subprocess.run(  # noqa: S603 - ourselves
        command, input=msgspec.json.encode(job), capture_output=True, cwd=ROOT, timeout=PATIENCE, check=False
    )
    if ran.returncode != 0:
        raise RuntimeError(f"The load failed: {ran.stderr.decode(errors='replace')[-1500:]}")
    return msgspec.json.decode(ran.stdout, type=Done)


def _figures(traffic: Traffic, done: Done) -> Figures:
    requests = len(done.latencies)
    figures = {"per_second": requests / done.seconds, **percentiles(done.latencies), "cpu": done.cpu * 1000 / requests}
    return figures | ({"tasks_per_second": done.finished / done.seconds} if done.finished else {})


def new_key(url: str, rate_limit: str = "none") -> str:
    """A key that may do everything, as often as that."""
    with Dibs(url) as app:
        return app.create_key("bench", ["admin"], rate_limit=rate_limit).key


def _fill(traffic: Traffic) -> Fill:
    return _fill_claimed if traffic.verb == "complete" else fill_dibs


def _fill_claimed(url: str, tasks: int) -> None:
    fill_dibs(url, tasks)
    with Dibs(url) as app:
        while app.claim_many(WORKER, FILL, lease=DAY):
            pass


# Checks of the database after a run


def _check(engine: Engine, url: str, traffic: Traffic, done: Done) -> None:
    """Raise unless every task is where it must be, claimed once, under token 1, with all lines of its history."""
    found = engine.count(url, COUNTS), engine.count(url, EVENTS), engine.count(url, TOKENS)
    expected = _books(traffic)
    if found != expected:
        raise RuntimeError(f"After '{traffic.name}' on {engine.name} the books say {found}, and should say {expected}.")
    if traffic.verb in ("claim", "create", "cycle", "exchange"):
        ids, token = {task for task, _ in done.seen}, 0 if traffic.verb == "create" else 1
        if len(done.seen) != traffic.tasks or len(ids) != traffic.tasks or {each for _, each in done.seen} != {token}:
            raise RuntimeError(
                f"The answers show {len(done.seen)} tasks, {len(ids)} different ones, of {traffic.tasks}."
            )
    elif traffic.verb in ("get", "list"):
        wanted = (traffic.count + traffic.warm_up) * (PAGE if traffic.verb == "list" else 1)
        if len(done.seen) != wanted or (traffic.verb == "get" and len(set(done.seen)) != min(wanted, THERE)):
            raise RuntimeError(f"The answers show {len(done.seen)} tasks instead of {wanted}, or not those asked for.")


def _books(traffic: Traffic) -> tuple[Counts, Counts, dict[int, int]]:
    tasks = traffic.tasks
    if traffic.verb in ("create", "get", "list"):
        return {"pending": tasks}, {"enqueued": tasks}, {0: tasks}
    if traffic.verb == "claim":
        return {"claimed": tasks}, {"enqueued": tasks, "claimed": tasks}, {1: tasks}
    return {"completed": tasks}, {"enqueued": tasks, "claimed": tasks, "completed": tasks}, {1: tasks}


# A worker


class RemoteSystem(DibsSystem):
    """dibs, whose workers know a server and a key, and no database."""

    @contextlib.contextmanager
    def door(self, url: str) -> Iterator[Door]:
        """See System."""
        key = new_key(url)
        with serving(url) as server:
            yield Door(server.url, {"DIBS_API_KEY": key}, [server.process])


REMOTE = RemoteSystem()


# Limits and keys


def _hammer(engine: Engine, sizes: Sizes) -> Figures:
    """Two servers, one key, more requests than it may make in the window."""
    traffic = Traffic("get", 20, sizes.limit * 4 // 3)
    with engine.filled(THERE, fill_dibs) as url:
        key = new_key(url, f"{sizes.limit}/minute")
        there = list(engine.count(url, TASKS).items())
        with serving(url) as one, serving(url) as other:
            job = _job(traffic, [one, other], key, there)
            done = _run(msgspec.structs.replace(job, warm_up=0, expected=[200, 429]))
    granted, refused = done.statuses.get(200, 0), done.statuses.get(429, 0)
    if done.seconds >= WINDOW or not refused:
        raise RuntimeError(f"{granted} granted and {refused} refused in {done.seconds:.0f} s: not within one window.")
    off = (granted - sizes.limit) * 100 / sizes.limit
    return {"granted": granted, "refused": refused, "off": off, "wrong": abs(off), "seconds": done.seconds}


def _compare(engine: Engine, sizes: Sizes) -> Figures:
    with engine.filled(THERE, fill_dibs) as url:
        key = new_key(url)
        with serving(url) as server:
            return compare_keys(server.port, key, sizes.tries)
