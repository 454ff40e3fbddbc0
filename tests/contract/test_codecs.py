"""Encoded params and results: compared by value, refused where they cannot be read, unreadable in the store."""

from __future__ import annotations

import base64
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

import dibs
from dibs import CodecFailed, CodecMissing, InvalidValue, KeyConflict, NewTask, OutcomeConflict, State
from dibs.encoded import describe
from tests.helpers import tables
from tests.helpers.codecs import SECRET, Veil
from tests.helpers.each import for_each

KEYED = {"key": "order-7"}


def now(app: Any, value: Any) -> Any:
    """The value, awaited if it comes from AsyncDibs."""
    return app.loop.run(value) if inspect.iscoroutine(value) else value


def declare(app: Any, name: str = "charge", codec: Any = Veil(), **options: Any) -> Any:  # noqa: B008 - immutable
    """A handler with a codec."""

    def charge(card: str, amount: int = 1) -> str:
        return f"{card}: {amount}"

    return app.task(name=name, codec=codec, **options)(charge)


def forget(app: Any, name: str) -> None:
    """Remove the handler, as in the next version of the program."""
    del getattr(app, "app", app).handlers[name]


def with_values(task: Any, **changes: Any) -> Any:
    """The task with other values."""
    return msgspec.structs.replace(task, **changes)


def complete(app: Any, handler: Any, result: Any, claim: Any = None) -> Any:
    """Complete the next task with an encoded result. Returns its claim."""
    claim = claim or app.claim("worker-1")
    app.complete(claim, handler.encode(result))
    return claim


# In the store


def test_no_row_of_the_store_shows_params_or_result(app: Any, url: str) -> None:
    charge = declare(app)
    task = now(app, charge.options(key="k").enqueue(SECRET))
    complete(app, charge, {"charged": SECRET})
    done = app.get(task.id)
    assert SECRET not in str(tables.read(url))
    assert set(done.params) == set(done.raw_result) == {"$encoded", "fingerprint", "data"}
    assert done.result == done.raw_result  # read by its id alone
    assert charge.decode(done.params) == {"card": SECRET}
    assert charge.decode(done.raw_result) == {"charged": SECRET}
    assert describe(done.params).startswith("encoded by veil, ")


def test_the_result_has_the_type_of_the_handler(app: Any) -> None:
    charge = declare(app)
    task = now(app, charge.enqueue(SECRET))
    complete(app, charge, "paid")
    assert now(app, task.wait(timeout=10)).result == "paid"
    assert now(app, charge.get(task.id)).result == "paid"


def test_many_tasks_have_plain_results_and_errors_where_they_cannot_be_decoded(app: Any) -> None:
    charge = declare(app)
    tasks = now(app, charge.map([SECRET, "5555"]))
    for claim in app.claim_many("worker-1", 2):
        complete(app, charge, charge.decode(claim.task.params)["card"], claim)
    assert now(app, tasks.results(30)) == now(app, charge.tasks(tasks.ids).results(30)) == [SECRET, "5555"]
    forget(app, "charge")
    wrong = declare(app, "charge", Veil(key=b"other")).tasks(tasks.ids)
    assert [type(each) for each in now(app, wrong.results(30, return_exceptions=True))] == [CodecFailed] * 2
    with pytest.raises(CodecFailed):
        now(app, wrong.results(30))


def test_a_handler_with_a_codec_takes_its_schema_back(app: Any) -> None:
    declare(app, codec=None)
    app.declare()
    with pytest.raises(dibs.SchemaViolation):
        app.enqueue("charge", {"card": 1})
    forget(app, "charge")
    declare(app)
    app.declare()
    app.enqueue("charge", {"card": 1})
    assert [each.schema is None for each in app.list_types()] == [True, False]  # newest first


def test_a_result_of_another_codec_or_key_is_a_clear_error_and_stays_readable_as_it_is_stored(app: Any) -> None:
    charge = declare(app)
    task = now(app, charge.enqueue(SECRET))
    complete(app, charge, SECRET)
    wrong = declare(app, "wrong", Veil(key=b"other"))
    missing = dibs.Dibs("sqlite:///nowhere.db").task(name="missing", codec=Veil(name="other"))(lambda: None)
    stored = app.get(task.id)
    with pytest.raises(CodecFailed, match=r"'veil' could not decode the result of task \d.*WrongKey") as failed:
        wrong.read_result(with_values(stored, type="wrong"))
    assert SECRET not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__
    with pytest.raises(CodecMissing, match=r"No codec 'veil' .*result of task \d.*Declared: 'other'"):
        missing.read_result(with_values(stored, type="missing"))
    assert stored.raw_result["$encoded"] == "veil"


RIGHT = {"$encoded": "veil", "fingerprint": "0" * 32, "data": "AAAA"}


@for_each(
    "wrong",
    [
        {"$encoded": 1},
        {"$encoded": "veil", "fingerprint": "0" * 32},
        {**RIGHT, "$encoded": "a b"},
        {**RIGHT, "fingerprint": "abc"},
        {**RIGHT, "fingerprint": "0" * 130},
        {**RIGHT, "data": "not base64"},
        {**RIGHT, "data": "é"},
        {**RIGHT, "more": 1},
    ],
)
def test_an_object_with_the_reserved_key_that_is_not_an_encoded_value_is_refused(app: Any, wrong: Any) -> None:
    app.enqueue("charge")
    claim = app.claim("worker-1")
    for refused in (lambda: app.enqueue("charge", wrong), lambda: app.complete(claim, wrong)):
        with pytest.raises(InvalidValue, match=r"The key '\$encoded' in (params|result) is reserved"):
            refused()


def test_a_program_without_the_codec_can_pass_on_encoded_values(app: Any) -> None:
    reordered = app.enqueue("charge", dict(reversed(RIGHT.items())))
    assert app.get(reordered.id).params == RIGHT
    assert app.complete(app.claim("worker-1"), RIGHT).state is State.COMPLETED
    assert app.get(reordered.id).result == RIGHT


# Keys compare values


def test_the_same_key_with_the_same_params_gives_the_same_task_and_with_others_a_conflict(app: Any) -> None:
    charge = declare(app).options(**KEYED)
    first, again = now(app, charge.enqueue(SECRET, amount=2)), now(app, charge.enqueue(amount=2, card=SECRET))
    assert (again.id, again.deduplicated) == (first.id, True)
    assert again.params == first.params  # those of the first enqueue
    with pytest.raises(KeyConflict):
        now(app, charge.enqueue(SECRET, amount=3))
    with pytest.raises(KeyConflict):
        app.enqueue("charge", {"card": SECRET, "amount": 2}, **KEYED)  # plain params are other params


def test_the_same_params_with_a_new_codec_give_the_same_task(app: Any) -> None:
    old, new = Veil("veil-1", b"1"), Veil("veil-2", b"2")
    first = now(app, declare(app, "charge", old).options(**KEYED).enqueue(SECRET))
    forget(app, "charge")
    rotated = declare(app, "charge", [new, old])
    again = now(app, rotated.options(**KEYED).enqueue(SECRET))
    assert (again.id, again.deduplicated) == (first.id, True)
    assert rotated.decode(first.params) == {"card": SECRET}
    assert rotated.new(SECRET).params["$encoded"] == "veil-2"


def test_a_batch_compares_values_also_inside_itself(app: Any) -> None:
    charge = declare(app)

    def keyed(key: str, amount: int) -> NewTask:
        return with_values(charge.new(SECRET, amount), key=key)

    first, second, again = app.enqueue_many([keyed("a", 1), keyed("b", 2), keyed("a", 1)])
    assert (first.id, first.deduplicated, again.deduplicated) == (again.id, False, True)
    assert second.id != first.id
    with pytest.raises(KeyConflict):
        app.enqueue_many([keyed("c", 1), keyed("c", 2)])
    with pytest.raises(KeyConflict):
        app.enqueue_many([keyed("d", 1), keyed("b", 3)])
    assert len(app.list_tasks()) == 2


def test_callers_that_race_with_one_key_create_one_task(app: Any) -> None:
    charge = declare(app).options(**KEYED)

    def enqueue(amount: int) -> Any:
        try:
            return now(app, charge.enqueue(SECRET, amount)).id
        except KeyConflict as conflict:
            return conflict

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(enqueue, [1, 2] * 12))
    [task] = app.list_tasks()
    amount = charge.decode(task.params)["amount"]
    kept = [answer for place, answer in enumerate(answers) if place % 2 == amount - 1]
    assert kept == [task.id] * 12
    assert sum(isinstance(answer, KeyConflict) for answer in answers) == 12


def test_replace_replaces_encoded_params(app: Any) -> None:
    charge = declare(app).options(**KEYED, on_conflict="replace")
    first = now(app, charge.enqueue(SECRET, 1))
    other, same = now(app, charge.enqueue(SECRET, 2)), now(app, charge.enqueue(SECRET, 2))
    assert first.id == other.id == same.id
    assert (other.replaced, same.replaced) == (True, True)
    assert charge.decode(app.get(first.id).params) == {"card": SECRET, "amount": 2}
    changed = [entry.detail["changed"] for entry in app.history(first.id) if entry.event == "replaced"]
    assert changed == [["params"], []]


def test_workflows_with_the_same_key_compare_the_values_of_their_steps(app: Any) -> None:
    charge = declare(app)

    def start(card: str, last: int = 1) -> Any:
        flow = app.workflow("order", key="order-7")
        paid = flow.step(charge, card)
        flow.step(charge.new(card, 2), after=paid)
        flow.finalize(charge, card, last)
        return app.start_workflow(flow.new())

    first, again = start(SECRET), start(SECRET)
    assert (again.id, again.deduplicated) == (first.id, True)
    for other in (("5555", 1), (SECRET, 9)):
        with pytest.raises(KeyConflict):
            start(*other)


# Outcomes compare values


def test_the_same_result_again_is_safe_and_another_one_is_refused(app: Any) -> None:
    charge = declare(app)
    now(app, charge.enqueue(SECRET))
    claim = complete(app, charge, {"a": 1, "b": 2})
    again = app.complete(claim, charge.encode({"b": 2, "a": 1}))
    assert again.repeated
    for other in ({"a": 1}, None):
        with pytest.raises(OutcomeConflict, match="another result"):
            app.complete(claim, other and charge.encode(other))
    with pytest.raises(OutcomeConflict):
        app.complete(claim, {"a": 1, "b": 2})  # plain
    assert charge.decode(app.get(claim.task_id).raw_result) == {"a": 1, "b": 2}


# Changes


def test_encoded_params_are_replaced_by_encoded_params_only(app: Any) -> None:
    charge = declare(app)
    task = now(app, charge.enqueue(SECRET))
    with pytest.raises(InvalidValue, match=r"encoded by veil.*not encoded"):
        app.change(task.id, params={"card": "5555"})
    assert app.change(task.id, params=charge.new(SECRET).params).params == task.params  # the same value
    changed = app.change(task.id, params=charge.new("5555").params)
    assert charge.decode(changed.params) == {"card": "5555"}
    assert app.change(task.id, priority=3).params == changed.params
    details = [entry.detail for entry in app.history(task.id) if entry.event == "changed"]
    assert details[0] == {"params": {"changed": ["$encoded"], "count": 1}}
    assert len(details) == 2


# Groups, schemas and searches cannot read them


def test_the_handler_computes_the_group_and_other_clients_must_give_it(app: Any) -> None:
    app.set_limit("per-card", max=1, per="group")
    app.set_type("charge", limits=["per-card"], group_by="card")
    charge = declare(app, limits=["per-card"], group_by="card")
    first, second = now(app, charge.enqueue("one")), now(app, charge.enqueue("two"))
    assert (first.group, second.group) == ("one", "two")
    assert {claim.task.group for claim in app.claim_many("worker-1", 9)} == {"one", "two"}
    assert now(app, charge.options(group="mine").enqueue("one")).group == "mine"
    params = charge.new("one").params
    with pytest.raises(InvalidValue, match=r"encoded by veil.*'card', which names the group"):
        app.enqueue("charge", params)
    last = app.enqueue("charge", params, group="one")
    new = charge.new("three")
    assert app.change(last.id, params=new.params).group == "one"
    assert app.change(last.id, params=new.params, group=new.group).group == "three"


def test_a_schema_checks_plain_params_and_not_encoded_ones(app: Any) -> None:
    app.register_type("charge", {"required": ["card"], "properties": {"card": {"maxLength": 4}}}, {"amount": 1})
    charge = declare(app)
    task = now(app, charge.enqueue("longer than four"))
    assert task.type_version is None  # no version has checked the params
    assert charge.decode(app.get(task.id).params) == {"card": "longer than four"}  # without the defaults
    with pytest.raises(dibs.SchemaViolation):
        app.enqueue("charge", {"card": "longer than four"})
    with pytest.raises(InvalidValue, match="cannot be encoded"):
        app.register_type("charge", None, charge.new("x").params)


def test_a_search_by_text_finds_nothing_in_encoded_params(app: Any) -> None:
    charge = declare(app)
    task = now(app, charge.enqueue(SECRET))
    plain = app.enqueue("charge", {"card": "veil"})
    assert [each.id for each in app.list_tasks(text="veil")] == [plain.id]
    assert app.list_tasks(text=task.params["data"][5:9]) == []
    app.fail(app.claim_by_id(task.id, "worker-1"), "the veil", permanent=True)
    assert [each.id for each in app.list_tasks(text="veil")] == [plain.id, task.id]


# Sizes


def test_the_limit_of_size_holds_for_the_encoded_form(app: Any) -> None:
    import zlib

    class Zlib:
        name = "zlib"
        encode, decode = staticmethod(zlib.compress), staticmethod(zlib.decompress)

        def fingerprint(self, data: bytes) -> bytes:
            return base64.b16encode(data[:8])

    small, large = declare(app, "small", Zlib()), declare(app, "large")
    text = "x" * 2_000_000
    task = now(app, small.enqueue(text))
    assert small.decode(app.get(task.id).params) == {"card": text}
    with pytest.raises(InvalidValue, match=r"'veil' made [\d,]+ bytes of the params of 'large', in base64; the limit"):
        now(app, large.enqueue(text))
