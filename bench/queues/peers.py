"""The other queues: how each is measured, the source of its settings, and features of dibs that it does not have."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.queues.mix import QUEUES

Count = str | Callable[[Any], int]
"""How many: an SQL query for one number, or a function of a client of Redis."""


@dataclass(frozen=True, slots=True)
class MixOf:
    """What a queue does of the mix: which features it `lacks` ("types", "queues", "scheduling"), `how` it is set up
    where that needs words, and how its store is counted where that differs from the drain."""

    lacks: tuple[str, ...] = ()
    how: str = ""
    unfinished: Count | None = None
    completed: Count | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """Another queue on one engine.

    `settings` are those with which it drains, in words; with the first it also waits and idles, and with all of them if
    it `polls`, because how often is what they are about. `share` is how many of
    the tasks it gets: a slow one would take all day. `unfinished` counts what is not durably done, `completed` what its
    books say was done (None: it keeps none). `waits`: it has workers, so that it makes sense to let one wait for work.
    """

    name: str
    engine: str
    module: str
    package: str
    settings: dict[str, str]
    unfinished: Count
    completed: Count | None
    source: str
    lacks: str
    share: float = 1.0
    at_once: str = ""
    bulk: bool = False
    waits: bool = True
    polls: bool = False
    processes: tuple[int, ...] = (1, 2)
    python: tuple[int, int] = (3, 11)
    stop_with: signal.Signals = signal.SIGTERM
    mix: MixOf = MixOf()
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def venv(self) -> str:
        """The name of its virtual environment, and of its file of requirements."""
        return self.module.removesuffix("_queue")


def _in_groups(groups: list[dict[str, Any]]) -> int:
    """What a stream's only group has not read, or not acknowledged."""
    return sum(group["pending"] + (group["lag"] or 0) for group in groups)


def _in_rq(redis: Any, *registries: str) -> int:
    """Jobs in these registries of all queues of the mix."""
    return int(sum(redis.zcard(f"rq:{registry}:{queue}") for registry in registries for queue in QUEUES))


def _dbos(engine: str, table: str) -> Peer:
    return Peer(
        name="DBOS",
        engine=engine,
        module="dbos_queue",
        package="dbos",
        settings={"1": "as it comes, polls every second", "0.1": "polls every 0.1 s"},
        unfinished=f"SELECT count(*) FROM {table} WHERE status IN ('ENQUEUED', 'PENDING')",  # noqa: S608 - ours
        completed=f"SELECT count(*) FROM {table} WHERE status = 'SUCCESS'",  # noqa: S608 - ours
        source="docs.dbos.dev/python/reference/queues: no limits, polling_interval_sec",
        lacks="polls; no leases: what a dead process ran waits until a process with its id starts",
        share=0.02,
        polls=True,
        mix=MixOf(
            how="a workflow with one step, since steps are what is tried again",
            unfinished=f"SELECT count(*) FROM {table} WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')",  # noqa: S608
        ),
    )


PEERS = (
    Peer(
        name="Huey",
        engine="SQLite",
        module="huey_queue",
        package="huey",
        settings={"1": "1 thread", "4": "4 threads", "1 every 0.01": "1 thread, polls every 0.01 s"},
        unfinished="SELECT count(*) FROM task",
        completed=None,
        source="huey.readthedocs.io/en/latest/consumer.html, SqliteHuey with fsync=True",
        lacks="deletes a task before it runs: lost if the worker dies; no fencing, no history",
        share=0.2,
        polls=True,
        at_once="threads",
        stop_with=signal.SIGINT,  # lets what runs end
        mix=MixOf(lacks=("queues",), unfinished="SELECT (SELECT count(*) FROM task) + (SELECT count(*) FROM schedule)"),
    ),
    Peer(
        name="PGQueuer",
        engine="PostgreSQL",
        module="pgqueuer_queue",
        package="pgqueuer",
        settings={"1x10": "as it comes, batch 10", "5x10": "5 consumers, batch 10", "1x500": "batch 500"},
        unfinished="SELECT count(*) FROM pgqueuer",
        completed="SELECT count(DISTINCT job_id) FROM pgqueuer_log WHERE status = 'successful'",
        source="its own tools/benchmark.py (uvloop, asyncpg, 5 consumers, batch 10); batch 500 is our tuning",
        lacks="completions are not fenced and are written in batches; a job is deleted when it is done",
        at_once="coroutines",
        bulk=True,
        mix=MixOf(lacks=("queues",)),
    ),
    Peer(
        name="litequeue",
        engine="SQLite",
        module="litequeue_queue",
        package="litequeue",
        settings={"FULL": "synchronous=FULL", "NORMAL": "as it comes (NORMAL: not durable)"},
        unfinished="SELECT count(*) FROM Queue WHERE status < 2",
        completed="SELECT count(*) FROM Queue WHERE status = 2",
        source="github.com/litements/litequeue, README; FULL is set after it has set NORMAL",
        lacks="a message queue: no workers, retries, leases, fencing, history; what a dead process held stays locked",
        share=0.08,
        waits=False,
        mix=MixOf(lacks=("types", "queues", "scheduling")),
    ),
    Peer(
        name="persist-queue",
        engine="SQLite",
        module="persistqueue_queue",
        package="persist-queue",
        settings={"ack": "SQLiteAckQueue"},
        unfinished="SELECT count(*) FROM ack_queue_default WHERE status < 5",
        completed="SELECT count(*) FROM ack_queue_default WHERE status = 5",
        source="github.com/peter-wangxu/persist-queue, README: SQLiteAckQueue, auto_commit",
        lacks="one process only; no workers, retries, leases, fencing, history",
        share=0.08,
        processes=(1,),
        waits=False,
        mix=MixOf(lacks=("types", "queues", "scheduling")),
    ),
    _dbos("SQLite", "workflow_status"),
    _dbos("PostgreSQL", "dbos.workflow_status"),
    Peer(
        name="Procrastinate",
        engine="PostgreSQL",
        module="procrastinate_queue",
        package="procrastinate",
        settings={"1": "as it comes, 1 at once", "30": "30 at once"},
        unfinished="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        completed="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
        mix=MixOf(how="looks for scheduled jobs every 0.5 s instead of 5"),
        source="procrastinate.readthedocs.io/en/stable/howto/production/concurrency.html",
        lacks="completions are not fenced; jobs of a dead worker stay until a task of yours retries them",
        share=0.02,
        at_once="coroutines",
        bulk=True,
    ),
    Peer(
        name="Chancy",
        engine="PostgreSQL",
        module="chancy_queue",
        package="chancy",
        settings={"10": "asyncio, 10 at once", "1000": "asyncio, 1,000 at once"},
        unfinished="SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')",
        completed="SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'",
        mix=MixOf(how="RetryPlugin without backoff; looks for jobs every second instead of 5"),
        source="tkte.ch/chancy: AsyncExecutor, eager_polling",
        lacks="completions are written once a second; no history of moves",
        share=0.1,
        at_once="coroutines",
        bulk=True,
    ),
    Peer(
        name="Oban",
        engine="PostgreSQL",
        module="oban_queue",
        package="oban",
        settings={"10": "10 at once, as in its guide", "100": "100 at once"},
        unfinished="SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing', 'scheduled', 'retryable')",
        completed="SELECT count(*) FROM oban_jobs WHERE state = 'completed'",
        mix=MixOf(how="no backoff; looks for scheduled jobs every 0.5 s instead of 1"),
        source="oban.pro/docs/py, guide: queues and their limits",
        lacks="no lease: rescued after 5 minutes, even if it runs; bulk inserts and acknowledgements are paid for",
        share=0.03,
        at_once="coroutines",
        bulk=True,
        python=(3, 12),
    ),
    Peer(
        name="Celery",
        engine="Redis",
        module="celery_queue",
        package="celery",
        settings={"prefork 2": "prefork, 2 children, as it comes", "solo 1": "solo"},
        unfinished=lambda redis: redis.llen("celery") + redis.hlen("unacked"),
        completed=None,
        mix=MixOf(unfinished=lambda redis: sum(map(redis.llen, QUEUES)) + redis.hlen("unacked")),
        source="docs.celeryq.dev/en/stable/userguide/optimizing.html: prefetch for short tasks; results ignored",
        lacks="acknowledges a task before it runs: lost if the worker dies; no fencing, no history",
        share=0.03,
    ),
    Peer(
        name="RQ",
        engine="Redis",
        module="rq_queue",
        package="rq",
        settings={"fork": "as it comes, a fork for each job", "simple": "SimpleWorker"},
        unfinished=lambda redis: redis.llen("rq:queue:bench") + redis.zcard("rq:wip:bench"),
        completed=lambda redis: redis.zcard("rq:finished:bench"),
        mix=MixOf(
            how="with the scheduler of its worker",
            unfinished=lambda redis: (
                sum(redis.llen(f"rq:queue:{queue}") for queue in QUEUES) + _in_rq(redis, "wip", "scheduled")
            ),
            completed=lambda redis: _in_rq(redis, "finished"),
        ),
        source="python-rq.org/docs/workers: SimpleWorker where no fork is wanted",
        lacks="completions are not fenced; no history",
        share=0.008,
        bulk=True,
    ),
    Peer(
        name="Dramatiq",
        engine="Redis",
        module="dramatiq_queue",
        package="dramatiq",
        settings={"8": "8 threads, as it comes", "2": "2 threads"},
        unfinished=lambda redis: redis.hlen("dramatiq:bench.msgs"),
        completed=None,
        mix=MixOf(
            how="a backoff of 1 ms",
            unfinished=lambda redis: sum(
                redis.hlen(f"dramatiq:{queue}{delayed}.msgs") for queue in QUEUES for delayed in ("", ".DQ")
            ),
        ),
        source="dramatiq.io/guide.html: threads for each process",
        lacks="completions are not fenced; no history",
        share=0.07,
        at_once="threads",
    ),
    Peer(
        name="Taskiq",
        engine="Redis",
        module="taskiq_queue",
        package="taskiq",
        settings={"100": "streams, 100 at once, as it comes"},
        unfinished=lambda redis: _in_groups(redis.xinfo_groups("taskiq")),
        completed=None,
        mix=MixOf(
            lacks=("scheduling",),
            how="a stream for each queue; scheduling would need another process",
            unfinished=lambda redis: sum(_in_groups(redis.xinfo_groups(queue)) for queue in QUEUES),
        ),
        source="taskiq-python.github.io/available-components/brokers.html: RedisStreamBroker",
        lacks="completions are not fenced; what a dead worker held comes back after 10 minutes; no history",
        share=0.07,
        at_once="coroutines",
    ),
    Peer(
        name="SAQ",
        engine="Redis",
        module="saq_queue",
        package="saq",
        settings={"10": "10 at once, as it comes"},
        unfinished=lambda redis: redis.zcard("saq:bench:incomplete"),
        completed=None,
        mix=MixOf(lacks=("queues",), how="scheduled times are whole seconds"),
        source="saq-py.readthedocs.io: concurrency of the worker",
        lacks="completions are not fenced; no history",
        share=0.03,
        at_once="coroutines",
    ),
    Peer(
        name="ARQ",
        engine="Redis",
        module="arq_queue",
        package="arq",
        settings={
            "10 every 0.5": "as it comes, polls every 0.5 s",
            "100 every 0.05": "100 at once, polls every 0.05 s",
        },
        unfinished=lambda redis: redis.zcard("arq:queue"),
        completed=lambda redis: len(redis.keys("arq:result:*")),
        mix=MixOf(lacks=("queues",)),
        source="arq-docs.helpmanual.io: max_jobs, poll_delay",
        lacks="polls; completions are not fenced; a job may run twice at a shutdown, as it says; no history",
        share=0.02,
        polls=True,
        at_once="coroutines",
    ),
)
