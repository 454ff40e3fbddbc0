"""Workers decode params and encode results in every lane. What they cannot decode fails, and the error has no data."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import dibs
from dibs import BatchItem, CodecFailed, CodecMissing, Context, InvalidValue, PollerConfig, State, TaskPoller
from dibs.testing import isolated
from tests.helpers import codecs as module_of_child
from tests.helpers import tables
from tests.helpers.codecs import SECRET, Payment, Veil, charge_apart, charge_batch_apart, charge_each, read_apart
from tests.helpers.each import for_each


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application whose handlers have a codec."""
    with dibs.Dibs(url, codec=Veil()) as app:
        yield app


def without_codec(app: dibs.Dibs, codec: Any = None) -> Any:
    """The handler `charge` of another version of the program, in the same store."""
    other = dibs.Dibs(app.url)
    other.task(name="charge", codec=codec, backoff=dibs.Backoff(0.001), retry_on=TimeoutError)(lambda card: card)
    return other


def run_once(app: dibs.Dibs) -> None:
    """Run the tasks that are due."""
    assert app.worker(burst=True, concurrency=8).run() == 0


# In every lane


@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_handlers_and_hooks_have_plain_values_and_the_store_has_none(app: dibs.Dibs, url: str, lane: str) -> None:
    seen: list[Any] = []
    ended: list[dibs.EndedAttempt] = []

    def charge(ctx: Context, card: str) -> dict[str, Any]:
        seen.append(ctx.checkpoint("card", lambda: {"card": card}))
        return {"charged": card, "params": ctx.task.params}

    async def charge_async(ctx: Context, card: str) -> dict[str, Any]:
        async def value() -> Any:
            return {"card": card}

        seen.append(await ctx.checkpoint("card", value))
        return {"charged": card, "params": ctx.task.params}

    def around(ctx: Context, call_next: Any) -> Any:
        seen.append(ctx.task.params)
        return call_next()

    options: dict[str, Any] = {"middleware": [] if lane == "loop" else [around], "on_success": ended.append}
    handler: Any = app.task(name="charge", **options)(charge if lane == "thread" else charge_async)
    with app.worker():
        task = handler.enqueue(SECRET).wait(30)
    plain = {"card": SECRET}
    assert task.result == {"charged": SECRET, "params": plain}
    assert seen == [plain] * len(seen) != []
    assert [(each.task.params, each.result) for each in ended] == [(plain, task.result)]
    assert SECRET not in str(tables.read(url))


def test_a_child_process_decodes_and_encodes_and_reads_the_results_of_its_parents(url: str) -> None:
    app = module_of_child.app
    app.use_url(url)
    with app, app.worker():
        with app.workflow("order") as flow:
            charged = flow.step(charge_apart, SECRET)
            flow.step(read_apart.new(), after=charged)
        app.wait_workflow(flow.id, 60)
        steps = {step.name: step.task_id for step in app.steps(flow.id)}
        done = charge_apart.get(steps["charge_apart"])
        assert done.result == {"charged": SECRET, "params": {"card": SECRET}}
        read = read_apart.get(steps["read_apart"])
        assert read.result == SECRET
        assert SECRET not in str(tables.read(url))


@pytest.mark.parametrize("lane", ["thread", "loop", "process"])
def test_a_batch_handler_has_plain_documents_and_the_store_has_none(app: dibs.Dibs, url: str, lane: str) -> None:
    async def charge_async(items: Sequence[BatchItem[Payment]]) -> list[Any]:
        return [{"charged": item.value.card, "params": item.ctx.task.params} for item in items]

    module_of_child.app.use_url(url)
    owner, charge = module_of_child.app, charge_batch_apart
    if lane != "process":
        function: Any = charge_async if lane == "loop" else charge_each
        owner, charge = app, app.batch_task(name="charge", wait=0)(function)
    with owner, owner.worker(burst=True, children=1):
        tasks = charge.map([Payment(SECRET), Payment("5555")])
        plain = owner.enqueue(charge.name, {"card": "plain"})
        results = tasks.results(timeout=60)
        owner.wait(plain.id, 60)
        assert charge.get(plain.id).result["charged"] == "plain"
    assert results == [{"charged": card, "params": {"card": card}} for card in (SECRET, "5555")]
    assert SECRET not in str(tables.read(url))


def test_documents_that_cannot_be_decoded_fail_alone(app: dibs.Dibs) -> None:
    charge = app.batch_task(name="charge", wait=0)(charge_each)
    good = charge.enqueue(Payment(SECRET))

    def encoded_by(codec: Veil) -> dibs.Task:
        other = dibs.Dibs(app.url).batch_task(name="charge", codec=codec)(charge_each)
        return other.options(max_attempts=1).enqueue(Payment(SECRET))

    wrong, missing = encoded_by(Veil(key=b"wrong")), encoded_by(Veil("other"))
    run_once(app)
    assert charge.get(good.id).result["charged"] == SECRET
    assert [app.get(task.id).error.type for task in (wrong, missing)] == ["CodecFailed", "CodecMissing"]


def test_a_batch_handler_reads_results_of_its_parents_as_plain_values(app: dibs.Dibs) -> None:
    first = app.task(name="first")(lambda: SECRET)

    async def read(items: Sequence[BatchItem[Payment]]) -> list[Any]:
        return [item.ctx.results["first"] for item in items]

    reader = app.batch_task(name="read", wait=0)(read)
    with app.workflow("order") as flow:
        flow.step(reader, Payment("5555"), after=flow.step(first))
    run_once(app)
    assert flow.result() == {"first": SECRET, "read": SECRET}


def test_plain_params_of_a_handler_with_a_codec_run_and_their_result_is_encoded(app: dibs.Dibs) -> None:
    @app.task
    def charge(card: str) -> str:
        return card

    task = app.enqueue("charge", {"card": SECRET})
    run_once(app)
    assert app.get(task.id).result["$encoded"] == "veil"
    assert charge.get(task.id).result == SECRET


# What cannot be decoded


def test_a_worker_without_the_codec_fails_the_task_at_once_and_shows_no_data(app: dibs.Dibs, url: str) -> None:
    charge = app.task(name="charge")(lambda card: card)
    for codec in (None, Veil("other")):
        task = charge.enqueue(SECRET)
        run_once(without_codec(app, codec))
        failed = app.get(task.id)
        assert (failed.state, failed.attempts, failed.error.type) == (State.FAILED, 1, "CodecMissing")
        assert f"No codec 'veil' is declared here to decode the params of task {task.id}" in failed.error.message
    assert app.redrive(error="CodecMissing") == 2
    run_once(app)  # the right program
    assert [charge.get(number).result for number in (1, 2)] == [SECRET, SECRET]
    assert SECRET not in str(tables.read(url))


def test_a_wrong_key_costs_attempts_whatever_the_retry_rules_are_and_shows_no_data(app: dibs.Dibs, url: str) -> None:
    charge = app.task(name="charge")(lambda card: card)
    task = charge.options(backoff=dibs.Backoff(0.001)).enqueue(SECRET)
    with without_codec(app, Veil(key=b"wrong")).worker():
        failed = app.wait(task.id, 30)
    assert (failed.state, failed.attempts, failed.error.type) == (State.FAILED, 3, "CodecFailed")
    assert "it raised WrongKey" in failed.error.message
    assert not failed.error.permanent
    assert app.redrive(error="CodecFailed") == 1
    run_once(app)
    assert charge.get(task.id).result == SECRET
    assert SECRET not in str(tables.read(url))


class Broken(Veil):
    """A codec that fails at results."""

    def encode(self, data: bytes) -> bytes:
        if data == b'"result"':
            raise ConnectionError(SECRET)
        return super().encode(data)


def test_a_codec_that_fails_at_the_result_fails_the_attempt(app: dibs.Dibs) -> None:
    @app.task(codec=Broken(), backoff=dibs.Backoff(0.001))
    def charge(card: str) -> str:
        return "result"

    task = charge.enqueue(SECRET)
    run_once(app)
    failed = app.get(task.id)
    assert (failed.attempts, failed.error.type) == (3, "CodecFailed")
    assert "could not encode the result: it raised ConnectionError" in failed.error.message
    assert SECRET not in str(failed.error)


# Results of other steps


def test_a_step_reads_results_by_the_codecs_of_their_handlers(app: dibs.Dibs) -> None:
    @app.task(codec=Veil("other", b"other"))
    def first() -> str:
        return SECRET

    @app.task(codec=None)
    def second() -> str:
        return "plain"

    @app.task(codec=None)
    def read(ctx: Context) -> Any:
        return [len(ctx.results["first"]), ctx.results.of(second), min(ctx.results.values())]

    with app.workflow("order") as flow:
        flow.step(read, after=[flow.step(first), flow.step(second)])
    run_once(app)
    [task] = app.list_tasks(type="read")
    assert task.result == [len(SECRET), ["plain"], SECRET]


def test_a_step_reads_the_results_of_a_sub_workflow(app: dibs.Dibs) -> None:
    @app.task(codec=Veil("inner", b"inner"))
    def inner() -> str:
        return SECRET

    @app.task
    def read(ctx: Context) -> Any:
        return dict(ctx.results)

    with app.workflow("order") as flow:
        with flow.workflow("by step") as steps:
            steps.step(inner)
            steps.options(name="$encoded").step(inner)
        with flow.workflow("finalized") as finalized:
            finalized.step(inner)
            finalized.finalize(inner)
        flow.options(name="read").step(read, after=[steps, finalized])
    run_once(app)
    [task] = app.list_tasks(type="read")
    expected = {"by step": {"inner": SECRET, "$encoded": SECRET}, "finalized": SECRET}
    assert read.get(task.id).result == expected


def test_the_result_of_a_workflow_is_plain_in_sub_workflows_too_and_a_clear_error_without_the_codec(
    app: dibs.Dibs,
) -> None:
    @app.task
    def inner() -> str:
        return SECRET

    @app.task
    def last(ctx: Context) -> Any:
        return [ctx.execution.completed, dict(ctx.results)]

    flows = []
    for finalized in (False, True):
        with app.workflow("order") as flow:
            with flow.workflow("outer") as outer, outer.workflow("deep") as deep:
                deep.step(inner)
            if finalized:
                flow.finalize(last)
        flows.append(flow)
    run_once(app)
    by_step = {"outer": {"deep": {"inner": SECRET}}}
    assert [flow.result() for flow in flows] == [by_step, [["outer"], by_step]]
    for flow in flows:
        with pytest.raises(CodecMissing, match=r"No codec 'veil' .*result of the step '(outer|\(finalizer\))'"):
            dibs.Dibs(app.url).workflow_result(flow.id, timeout=30)


def test_a_step_that_cannot_decode_a_result_fails_when_it_reads_it(app: dibs.Dibs) -> None:
    @app.task
    def first() -> str:
        return SECRET

    reads = dibs.Dibs(app.url)

    @reads.task(max_attempts=1)
    def reader(ctx: Context, name: str) -> Any:
        return ctx.results[name] if name else len(ctx.results)

    with app.workflow("order") as flow:
        after = flow.step(first)
        flow.step(reader.new("first"), after=after)
        flow.options(name="counts").step(reader.new(""), after=after)
    run_once(app)
    run_once(reads)
    failed, done = (app.get(step.task_id) for step in app.steps(flow.id)[1:])
    assert (failed.error.type, done and done.result) == ("CodecMissing", 1)
    assert "the result of the step 'first' (first)" in failed.error.message


# The plain loop, and tests


def test_the_poller_decodes_by_the_codecs_of_its_app(app: dibs.Dibs, url: str) -> None:
    charge = app.task(name="charge")(lambda card: card)
    first, second = charge.enqueue(SECRET), app.enqueue("other", charge.new(SECRET).params)
    poller = TaskPoller(app, "poller-1", PollerConfig(poll_interval=0.01, order="fifo"))
    seen = []

    def call(task: dibs.Task) -> str:
        seen.append(task.params)
        if len(seen) == 2:
            poller.stop()
        return SECRET

    poller.poll_loop(call)
    assert seen == [{"card": SECRET}] * 2
    assert charge.get(first.id).result == SECRET
    assert app.get(second.id).result["$encoded"] == "veil"
    assert SECRET not in str(tables.read(url))


def test_tests_see_plain_values(app: dibs.Dibs) -> None:
    ended: list[Any] = []

    @app.task(on_success=lambda end: ended.append((end.task.params, end.result)))
    def charge(card: str) -> str:
        return card

    with isolated(app) as box:
        assert box.run_now(charge, SECRET) == SECRET
        task = charge.enqueue(SECRET)
        assert [each.params for each in box.assert_enqueued(charge, card=SECRET)] == [{"card": SECRET}]
        with pytest.raises(AssertionError, match=SECRET):
            box.assert_enqueued(charge, card="5555")
        [done] = box.drain()
        assert (done.id, done.params, done.result) == (task.id, {"card": SECRET}, SECRET)
        assert app.get(task.id).raw_result["$encoded"] == "veil"
    assert ended == [({"card": SECRET}, SECRET)] * 2


# Declaration


class Half:
    """A codec without a fingerprint."""

    name = "half"

    def encode(self, data: bytes) -> bytes:
        return data

    decode = encode


class Short(Half):
    """A codec whose fingerprint is too short."""

    def fingerprint(self, data: bytes) -> bytes:
        return b"short"


class Texts(Short):
    """A codec that returns no bytes."""

    encode = str  # type: ignore[assignment]


REFUSED = [
    (Half(), "without fingerprint"),
    (Veil, "is a class"),
    ([], "empty"),
    ([Veil(), Veil()], "Two codecs are named 'veil'"),
    (Veil("a b"), "The name of a codec must be"),
    (Veil(""), "The name of a codec must be"),
    ("zlib", "is not a codec"),
]


@for_each("codec, message", REFUSED)
def test_what_is_no_codec_is_refused_where_it_is_declared(app: dibs.Dibs, codec: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        app.task(name="charge", codec=codec)
    with pytest.raises(InvalidValue, match=message):
        dibs.Dibs(app.url, codec=codec)


def test_a_codec_that_returns_something_else_is_refused_at_the_enqueue(app: dibs.Dibs) -> None:
    with pytest.raises(InvalidValue, match="fingerprint of 5 bytes"):
        app.task(name="short", codec=Short())(lambda: None).enqueue()
    with pytest.raises(CodecFailed, match="it returned str, not bytes"):
        app.task(name="texts", codec=Texts())(lambda: None).enqueue()


def test_threads_share_a_codec(app: dibs.Dibs) -> None:
    names = set()

    @app.task
    def charge(card: str) -> str:
        names.add(threading.current_thread().name)
        return card

    tasks = app.enqueue_many([charge.new(str(number)) for number in range(100)])
    run_once(app)
    assert [charge.get(task.id).result for task in tasks] == [str(number) for number in range(100)]


def test_a_program_without_codecs_names_the_missing_one_when_it_reads_a_result(app: dibs.Dibs) -> None:
    charge = app.task(name="charge")(lambda card: card)
    task = charge.enqueue(SECRET)
    run_once(app)
    handler = without_codec(app).handlers["charge"]
    with pytest.raises(CodecMissing, match=f"No codec 'veil' is declared here to decode the result of task {task.id}"):
        _ = handler.get(task.id).result
