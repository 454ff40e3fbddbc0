"""Limits hold while many processes claim, finish, enqueue and change limits at the same time (promise 11)."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Completed, LimitReached, NewTask
from dibs.model.limit import NewLimit
from dibs.observe.limits_check import LimitPeriod, LimitsRecord
from dibs.observe.verify import verify
from tests import matrix
from tests.engines.test_many_processes import all_tasks
from tests.helpers.databases import run_sql
from tests.helpers.limiting import assert_exact, enqueue, settle, use
from tests.helpers.processes import ask_all, processes
from tests.helpers.tasks import enqueue_all
from tests.helpers.waiting import until
from tests.stress.limited import CARRIED, OWN, Limits, used_by

RACER = "tests.helpers.limit_racer"
PROCESSES = 8
TASKS = 2000 if matrix.is_stress() else 400
ROUNDS = 200 if matrix.is_stress() else 40

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
"""Of engines on which several transactions write at once."""

MOST_SLOWER = 0.05
"""Seconds by which a call may be slower beside an open transaction."""

WAITS_FOR_FLOW = """SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE '%%dibs_flow%%' AND datname = current_database()"""


def assert_verified(app: dibs.Dibs, record: LimitsRecord) -> None:
    """The history has no moment above a limit, no lost permit and no group that was starved, and the counters agree."""
    report = verify(app.all_history(), tasks=all_tasks(app), limits=record)
    assert report.ok, report
    assert_exact(app)


def completed(app: dibs.Dibs) -> int:
    return app.stats().depth.get("completed", 0)


def scaled(number: int, store_url: str) -> int:
    """A fifth of the number in front of a server, where all processes share one more process and each call takes
    longer."""
    return number // 5 if store_url.startswith("http") else number


# Many processes


def test_overlapping_limits_hold_while_tasks_of_higher_priority_arrive(store_url: str) -> None:
    """Promise 11, with retries, released and recovered tasks, and enqueues between claims."""
    count = scaled(TASKS, store_url)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    limits = Limits()
    limits.begin(store_url)
    options = [{"limits": list(own), "group": group} for own in OWN for group in "ab"]
    with dibs.Dibs(store_url) as app, processes(store_url, PROCESSES, RACER) as members:
        there = sum(app.stats().depth.values())
        commands: list[dict[str, Any]] = [
            {"do": "work", "seed": seed + n, "done": there + count, "exchange": n % 3 == 0}
            for n in range(PROCESSES - 2)
        ]
        commands += [{"do": "enqueue", "seed": seed + n, "count": count // 2, "options": options} for n in range(2)]
        ended = Counter(task_id for answer in ask_all(members, commands)[:-2] for task_id in answer)
        assert len(ended) >= there + count
        assert max(ended.values()) == 1
        assert [task.id for task in all_tasks(app) if not task.finished] == []
        assert app.claim_many("last", 10) == []
        assert_verified(app, limits.record(app))


def test_no_permit_is_unused_while_eight_claimers_take_the_tasks_of_one_backlog(store_url: str) -> None:
    """In each round the holders of the five permits complete their tasks and claim, and so do all others: five claims
    are live at the end of the round, because each claim of a holder finds its own permit, or another process has it."""
    rounds = scaled(ROUNDS, store_url)
    with dibs.Dibs(store_url) as app, processes(store_url, PROCESSES, RACER) as members:
        app.set_limit("stripe", max=5)
        enqueue_all(app, [NewTask("t", limits=["stripe"]) for _ in range(5 * rounds + 5)])
        for _ in range(rounds):
            assert sum(ask_all(members, [{"do": "take"}] * PROCESSES)) == 5
            assert use(app, "stripe")[0] == 5
        assert use(app, "stripe") == (5, 5)
        assert_exact(app)


def test_no_permit_is_unused_while_groups_and_types_compete_for_it(store_url: str) -> None:
    """As above, with backlogs that two counters open and close."""
    rounds = scaled(ROUNDS, store_url)
    with dibs.Dibs(store_url) as app, processes(store_url, PROCESSES, RACER) as members:
        app.set_limit("stripe", max=5)
        app.set_limit("tenant", max=2, per="group")
        tasks = [
            NewTask(f"type-{n % 3}", limits=["tenant", "stripe"][: 1 + n % 2], group=f"group-{n % 7}", priority=n % 4)
            for n in range(40 * rounds)  # each group has more than two tasks a round that need no stripe
        ]
        enqueue_all(app, tasks)
        for _ in range(rounds):
            ask_all(members, [{"do": "take", "count": 2}] * PROCESSES)
            held = app.list_tasks(state="claimed", limit=1000)
            assert sum("stripe" in task.limits for task in held) <= 5
            groups = Counter(task.group for task in held)
            assert set(groups.values()) == {2}, groups
            assert len(groups) == 7, groups
        assert_exact(app)


def test_changes_of_a_limit_hold_for_all_processes_at_once(store_url: str) -> None:
    """5, 1, 5, removed, set again, while eight processes take tasks: no claim is above the maximum of its time."""
    count = scaled(TASKS, store_url)
    seed, limits = random.randrange(2**32), Limits()
    print(f"seed {seed}")
    limits.begin(store_url)
    with dibs.Dibs(store_url) as app, processes(store_url, PROCESSES, RACER) as members:
        done = sum(app.stats().depth.values()) + count
        enqueue_all(app, [NewTask("t", queue="queue-0", max_attempts=99) for _ in range(count)])
        commands = [{"do": "work", "seed": seed + n, "done": done} for n in range(PROCESSES)]
        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(ask_all, members, commands)
            while not working.done():
                for change in (NewLimit(name=CARRIED.name, max=1), CARRIED, None, CARRIED):
                    goal = completed(app) + 3
                    limits.remove(CARRIED.name) if change is None else limits.set(change)
                    until(lambda goal=goal: working.done() or completed(app) >= goal)  # type: ignore[misc]
            working.result()
        assert [task.id for task in all_tasks(app) if not task.finished] == []
        assert_verified(app, limits.record(app))


# Rates


def test_a_rate_holds_over_eight_processes_that_claim_in_batches(store_url: str, tmp_path: Path) -> None:
    """By real time there are never more than burst + rate x T claims."""
    drain_by_rate(store_url, tmp_path / "clock")


@pytest.mark.database("the clock of a server is its own")
def test_a_rate_holds_over_eight_processes_whose_clock_is_set_back(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle, the clock of all processes is set back, which neither gives a second burst nor stops the tasks for
    that time."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    monkeypatch.setenv("DIBS_TEST_CLOCK", str(clock))
    drain_by_rate(url, clock, back=600.0)


def drain_by_rate(url: str, clock: Path, back: float = 0.0) -> None:
    """Let eight processes claim all tasks of a rate, and compare the number of claims with the time at any moment."""
    rate, burst, total = 100, 20, 300
    values = NewLimit(name="mail-api", rate=f"{rate}/second", burst=burst)
    with dibs.Dibs(url) as app, processes(url, PROCESSES, RACER) as members, ThreadPoolExecutor(1) as pool:
        app.set_limit("mail-api", rate=values.rate, burst=burst)
        app.enqueue_many([NewTask("t", limits=["mail-api"]) for _ in range(total)])
        began = time.monotonic()
        draining = pool.submit(ask_all, members, [{"do": "drain", "seed": n, "total": total} for n in range(PROCESSES)])
        until(lambda: completed(app) >= total // 3)
        clock.write_text(str(-back))
        while (count := completed(app)) < total:
            assert count <= burst + rate * (time.monotonic() - began)
        took = time.monotonic() - began
        assert sum(draining.result()) == total
        assert total <= burst + rate * took
        assert took < 120  # and not the ten minutes by which the clock was set back
        record = LimitsRecord(limits=[LimitPeriod("mail-api", values)], used=used_by(app), drained=True, slack=0.25)
        assert_verified(app, record)


# Open transactions on PostgreSQL


@contextmanager
def opened(app: dibs.Dibs, url: str) -> Iterator[tuple[dibs.Dibs, psycopg.Connection[Any]]]:
    """A client whose calls join a transaction that stays open until the test commits it."""
    with psycopg.connect(url) as connection:
        yield app.on(connection), connection


def waiting(url: str, call: Future[Any]) -> None:
    """Return when the call waits for the lock of limited claims."""
    until(lambda: run_sql(url, WAITS_FOR_FLOW) == [(1,)] or call.done())
    assert not call.done(), call.result()


@on_postgres
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_claim_waits_for_an_uncommitted_claim_although_a_task_of_higher_priority_arrived(url: str, ends: str) -> None:
    with dibs.Dibs(url) as app, opened(app, url) as (joined, connection), ThreadPoolExecutor(1) as pool:
        app.set_limit("stripe", max=2)
        enqueue(app, 3, limits=["stripe"])
        first = joined.claim_many("a", 10)
        urgent = app.enqueue("t", limits=["stripe"], priority=9)
        second = pool.submit(app.claim_many, "b", 10)
        waiting(url, second)
        getattr(connection, ends)()
        got = second.result(30)
        assert len(first) == 2
        if ends == "commit":
            assert got == []
        else:
            assert [claim.task_id for claim in got] == [urgent.id, first[0].task_id]
        assert use(app, "stripe") == (2, 2)
        assert_exact(app)


@on_postgres
def test_an_open_transaction_that_enqueued_and_finished_limited_tasks_holds_up_nobody(url: str) -> None:
    """All calls return while the transaction is open: a call that waited for it would never return."""
    with dibs.Dibs(url) as app, opened(app, url) as (joined, connection), ThreadPoolExecutor(1) as pool:
        app.set_limit("stripe", max=3)
        app.set_queue("default", fair=True)
        enqueue(app, 6, limits=["stripe"], group="a")
        first, second, third = app.claim_many("a", 3)
        new = joined.enqueue_many([NewTask("t", limits=["stripe"], group=group, priority=9) for group in "ab"])
        joined.complete(first)
        joined.fail(second, "no", retry_in=0)

        def others() -> list[int]:
            enqueue(app, 2, limits=["stripe"], group="a")
            assert app.claim_many("b", 10) == []  # the permits of the open transaction have not come back
            app.complete(third)
            [claim] = app.claim_many("b", 10)
            with pytest.raises(LimitReached):
                app.claim_by_id(app.list_tasks(state="pending")[0].id, "b")
            app.release(claim)
            return [claim.task_id for claim in app.claim_many("b", 10)]

        assert len(pool.submit(others).result(30)) == 1
        connection.commit()
        claims = app.claim_many("b", 10)
        assert {claim.task_id for claim in claims} & {task.id for task in new}
        assert use(app, "stripe")[0] == 3
        assert_exact(app)


@on_postgres
def test_calls_beside_an_open_transaction_that_enqueued_and_finished_are_as_fast_as_without_it(url: str) -> None:
    with dibs.Dibs(url) as app, opened(app, url) as (joined, _), ThreadPoolExecutor(1) as pool:
        app.set_limit("stripe", max=9)
        app.set_queue("default", fair=True)
        enqueue(app, 9, limits=["stripe"], group="a")
        first, second, *_ = app.claim_many("a", 3)
        alone = fastest_calls(app)
        joined.enqueue_many([NewTask("t", limits=["stripe"], group=group, priority=9) for group in "ab"])
        joined.complete(first)
        joined.fail(second, "no", retry_in=0)
        beside = pool.submit(fastest_calls, app).result(30)
        slower = {verb: (alone[verb], beside[verb]) for verb in alone if beside[verb] > alone[verb] + MOST_SLOWER}
        assert slower == {}


def fastest_calls(app: dibs.Dibs) -> dict[str, float]:
    """How long each verb takes, in seconds, with a task of the limit; the fastest of five, because others use the
    machine as well."""
    fastest: dict[str, float] = {}

    def timed(verb: str, *args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        answer = getattr(app, verb)(*args, **options)
        fastest[verb] = min(time.perf_counter() - began, fastest.get(verb, 60.0))
        return answer

    for _ in range(5):
        *_, last = timed("enqueue_many", [NewTask("t", limits=["stripe"], group="b")] * 2)
        [claim] = timed("claim_many", "b", 1)
        timed("release", claim)
        claim = timed("claim_by_id", last.id, "b")
        _, [claim] = timed("exchange", [(claim, Completed())], "b", 1)
        timed("complete", claim)
    return fastest


@on_postgres
def test_while_an_open_transaction_holds_limited_claims_others_enqueue_finish_and_claim_plain_tasks(url: str) -> None:
    """Only claims that would take limited tasks wait for the transaction, because the counters are its own until it
    ends."""
    with dibs.Dibs(url) as app, opened(app, url) as (joined, connection), ThreadPoolExecutor(1) as pool:
        app.set_limit("stripe", max=2)
        enqueue(app, 3, limits=["stripe"])
        plain = enqueue(app, 2, type="plain")
        [held] = app.claim_many("a", 1, types=["charge"])
        assert len(joined.claim_many("b", 1, types=["charge"])) == 1

        def others() -> list[int]:
            claims = app.claim_many("c", 10, types=["plain"])
            app.finish([(claim, Completed()) for claim in claims])
            enqueue(app, 2, limits=["stripe"])
            app.complete(held)
            return [claim.task_id for claim in claims]

        assert pool.submit(others).result(30) == [task.id for task in plain]
        blocked = pool.submit(app.claim_many, "c", 10)
        waiting(url, blocked)
        connection.commit()
        assert len(blocked.result(30)) == 1
        assert use(app, "stripe") == (2, 2)
        assert_exact(app)


@on_postgres
def test_a_backlog_that_a_claim_closes_is_opened_by_a_permit_that_returns_meanwhile(url: str) -> None:
    """The claim has found the limit reached, and has not committed that the backlog is closed, when a claim ends."""
    with dibs.Dibs(url) as app, opened(app, url) as (joined, connection):
        app.set_limit("stripe", max=1)
        first, second = enqueue(app, 2, limits=["stripe"])
        [held] = app.claim_many("a", 10)
        enqueue(app, 1, limits=["stripe"], group="later")
        assert joined.claim_many("b", 10) == []
        app.complete(held)
        connection.commit()
        [again] = app.claim_many("b", 10)
        assert (held.task_id, again.task_id) == (first.id, second.id)
        assert_exact(app)


@on_postgres
def test_a_task_that_an_open_transaction_enqueued_obeys_a_limit_that_its_queue_was_given_meanwhile(url: str) -> None:
    with dibs.Dibs(url) as app, opened(app, url) as (joined, connection), ThreadPoolExecutor(1) as pool:
        app.set_limit("mail-api", max=1)
        joined.enqueue_many([NewTask("t", queue="mail") for _ in range(3)])
        setting = pool.submit(app.set_queue, "mail", limits=["mail-api"])
        until(lambda: setting.done() or app.queue_settings() != [])
        connection.commit()
        setting.result(30)
        assert settle(app) == 0
        assert len(app.claim_many("a", 10)) == 1
        assert use(app, "mail-api") == (1, 2)
        assert_exact(app)


@on_postgres
def test_a_setting_that_waits_for_an_open_transaction_says_so_in_the_end(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.procedures.OPEN_TRANSACTIONS", 0.1)
    with dibs.Dibs(url) as app, opened(app, url) as (joined, connection):
        app.set_limit("mail-api", max=1)
        joined.enqueue_many([NewTask("t", queue="mail"), NewTask("t", queue="mail")])
        with pytest.raises(dibs.WaitTimeout, match="The setting is stored, but"):
            app.set_queue("mail", limits=["mail-api"])
        connection.commit()
        app.set_queue("mail", limits=["mail-api"])
        assert len(app.claim_many("a", 10)) == 1
        assert use(app, "mail-api") == (1, 1)


@on_postgres
def test_a_claim_that_meets_locked_tasks_returns_each_task_once(url: str) -> None:
    """Between the choice of the tasks and their claim, another transaction may take some of them."""
    with dibs.Dibs(url) as app, psycopg.connect(url) as somebody:
        app.set_limit("stripe", max=9)
        limited, plain = enqueue(app, 3, limits=["stripe"]), enqueue(app, 3)
        locked = [limited[0].id, plain[0].id]
        somebody.execute("SELECT FROM dibs_tasks WHERE id = ANY (%s) FOR UPDATE", [locked])
        claims = app.claim_many("a", 6)
        expected = [task.id for task in limited[1:] + plain[1:]]
        assert [claim.task_id for claim in claims] == expected
        somebody.rollback()
        assert [claim.task_id for claim in app.claim_many("a", 6)] == locked
        assert use(app, "stripe") == (3, 0)
        assert_exact(app)
