"""dibs returns stored values exactly, and refuses other values alike on every engine, without writing anything.

The refusals are compared with literal messages: an engine that passes a value to its driver, or has a message of its
own, fails here.
"""

from __future__ import annotations

import enum
import math
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import dibs
from dibs import Backoff, ClaimRef, Completed, Failed, Failure, NewTask, Released
from tests.helpers import tables

HUGE = 10**5000  # has more digits than Python turns into text
MIB = 1024 * 1024


class Colour(enum.Enum):
    RED = "red"


class Shade(enum.StrEnum):
    DARK = "dark"


class Point:
    pass


class NoOffset(tzinfo):
    def utcoffset(self, moment: datetime | None) -> None:
        return None


def nested(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


def refusals(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """What each call was refused with."""
    return {name: refusal(call) for name, call in calls.items()}


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except dibs.InvalidValue as error:
        return error.message
    except Exception as error:  # what came instead is shown beside what was expected
        return f"{type(error).__name__}: {error}"
    return "accepted"


def not_refused(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Those of the calls that were accepted, or ended with anything but InvalidValue."""
    return {name: text for name, text in refusals(calls).items() if text == "accepted" or _CLASS.match(text)}


_CLASS = re.compile(r"[A-Za-z]+: ")


# Values that are no JSON

BAD_VALUES: dict[str, tuple[Any, str]] = {
    "NaN": (math.nan, "{} is nan, which JSON cannot hold."),
    "infinity": (math.inf, "{} is inf, which JSON cannot hold."),
    "minus infinity": (-math.inf, "{} is -inf, which JSON cannot hold."),
    "NUL": ("a\x00b", "{} contains a NUL character."),
    "NUL beside unicode": ("é\x00", "{} contains a NUL character."),
    "lone high surrogate": ("a\ud800", "{} contains a lone surrogate."),
    "lone low surrogate": ("\udfff", "{} contains a lone surrogate."),
    "2**63": (2**63, "{} is an integer beyond 64 bits."),
    "-2**63 - 1": (-(2**63) - 1, "{} is an integer beyond 64 bits."),
    "huge": (HUGE, "{} is an integer beyond 64 bits."),
    "datetime": (datetime(2025, 1, 1, tzinfo=UTC), "{} is a datetime, which is not JSON."),
    "Decimal": (Decimal("1.5"), "{} is a Decimal, which is not JSON."),
    "bytes": (b"a", "{} is a bytes, which is not JSON."),
    "bytearray": (bytearray(b"a"), "{} is a bytearray, which is not JSON."),
    "set": ({1}, "{} is a set, which is not JSON."),
    "UUID": (UUID(int=1), "{} is a UUID, which is not JSON."),
    "class": (Point(), "{} is a Point, which is not JSON."),
    "Enum": (Colour.RED, "{} is a Colour, which is not JSON."),
    "StrEnum": (Shade.DARK, "{} is a Shade, which is not JSON."),
    "complex": (1j, "{} is a complex, which is not JSON."),
    "subclass of dict": (defaultdict(list), "{} is a defaultdict, which is not JSON."),
    "key that is an int": ({1: "a"}, "{} has the key 1, an int; keys must be strings."),
    "key that is a bool": ({True: "a"}, "{} has the key True, a bool; keys must be strings."),
    "key that is None": ({None: "a"}, "{} has the key None, a NoneType; keys must be strings."),
    "key that is a tuple": ({("a",): 1}, "{} has the key ('a',), a tuple; keys must be strings."),
    "NUL in a key": ({"a\x00": 1}, "the key 'a\\x00' of {} contains a NUL character."),
    "lone surrogate in a key": ({"\ud800": 1}, "the key '\\ud800' of {} contains a lone surrogate."),
}


def test_params_that_are_not_json_are_refused_with_the_place(app: Any, url: str) -> None:
    app.enqueue("before")
    before = tables.read(url)
    calls = {name: lambda v=value: app.enqueue("resize", {"a": [0, v]}) for name, (value, _) in BAD_VALUES.items()}
    assert refusals(calls) == {name: text.format("params.a[1]") for name, (_, text) in BAD_VALUES.items()}
    assert tables.read(url) == before


def test_a_batch_refuses_the_same_values_as_a_single_enqueue(app: Any, url: str) -> None:
    app.enqueue("before")
    before = tables.read(url)
    calls = {
        name: lambda v=value: app.enqueue_many([NewTask("fine"), NewTask("resize", {"a": v}, key="k")])
        for name, (value, _) in BAD_VALUES.items()
    }
    assert refusals(calls) == {name: text.format("params.a") for name, (_, text) in BAD_VALUES.items()}
    assert tables.read(url) == before


def test_a_result_has_the_same_rules_as_params(app: Any, url: str) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    before = tables.read(url)
    calls = {name: lambda v=value: app.complete(claim, v) for name, (value, _) in BAD_VALUES.items()}
    expected = {name: text.format("result") for name, (_, text) in BAD_VALUES.items()}
    assert refusals(calls) == expected
    deep = {name: lambda v=value: app.complete(claim, {"a": [v]}) for name, (value, _) in BAD_VALUES.items()}
    assert refusals(deep) == {name: text.format("result.a[0]") for name, (_, text) in BAD_VALUES.items()}
    assert tables.read(url) == before
    app.complete(claim, "fine")


def test_one_bad_result_in_a_batch_is_refused_alone_and_its_task_stays_claimed(app: Any) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(3)])
    claims = app.claim_many("worker-1", 3)
    outcomes = [Completed(1), Completed(math.nan), Released()]
    first, bad, last = app.finish(list(zip(claims, outcomes, strict=True)))
    assert (first.state, last.state) == (dibs.State.COMPLETED, dibs.State.PENDING)
    assert (type(bad), bad.message) == (dibs.InvalidValue, "result is nan, which JSON cannot hold.")
    assert app.get(claims[1].task_id).state is dibs.State.CLAIMED


def test_params_must_be_a_dict(app: Any) -> None:
    bad = {"list": [], "str": "a", "int": 7, "tuple": (), "defaultdict": defaultdict(list), "bool": False}
    calls = {name: lambda v=value: app.enqueue("resize", v) for name, value in bad.items()}
    assert refusals(calls) == {
        name: f"params must be a dict, not {'an' if name == 'int' else 'a'} {name}." for name in bad
    }
    assert refusal(lambda: app.enqueue_many([NewTask("resize", None)])) == "params must be a dict, not a NoneType."
    assert app.list_tasks() == []


def test_nesting_ends_at_64_levels(app: Any) -> None:
    task = app.enqueue("resize", nested(64))
    assert app.get(task.id).params == nested(64)
    claim = app.claim("worker-1")
    too_deep = f"{'params.a' + '[0]' * 24}… is nested deeper than 64 levels."
    assert refusal(lambda: app.enqueue("resize", nested(65))) == too_deep
    assert refusal(lambda: app.enqueue("resize", nested(900))) == too_deep
    assert refusal(lambda: app.complete(claim, nested(65))) == too_deep.replace("params.a", "result.a")
    app.complete(claim, nested(64))
    assert app.get(task.id).result == nested(64)
    assert app.stats().depth == {"completed": 1}


def test_a_value_that_contains_itself_is_refused(app: Any) -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "is nested deeper than 64 levels" in refusal(lambda: app.enqueue("resize", {"a": endless}))


def test_a_registered_schema_lets_no_bad_value_through(app: Any) -> None:
    app.register_type("resize", {"type": "object", "properties": {"a": {"minLength": 1}}})
    calls = {name: lambda v=value: app.enqueue("resize", {"a": v}) for name, (value, _) in BAD_VALUES.items()}
    assert not_refused({**calls, "too deep": lambda: app.enqueue("resize", nested(65))}) == {}
    assert app.list_tasks() == []


@pytest.mark.database("a request takes one mebibyte with everything that is in it")
@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
def test_params_and_results_may_take_up_to_one_mebibyte(app: Any, letter: str) -> None:
    size = len(letter.encode())
    largest = letter * ((MIB - len('{"a":""}')) // size)
    over = f"takes {len(largest + letter) * size + 8:,} bytes as JSON; the limit is 1,048,576."
    task = app.enqueue("resize", {"a": largest})
    assert app.get(task.id).params == {"a": largest}
    claim = app.claim("worker-1")
    assert refusal(lambda: app.enqueue("resize", {"a": largest + letter})) == f"params {over}"
    assert refusal(lambda: app.complete(claim, {"a": largest + letter})) == f"result {over}"
    app.complete(claim, {"a": largest})
    assert app.get(task.id).result == {"a": largest}
    assert app.stats().depth == {"completed": 1}


# Names and options of enqueue

BAD_NAMES: dict[str, tuple[Any, str]] = {
    "empty": ("", "{} must have 1 to 255 characters; this one has 0."),
    "too long": ("x" * 256, "{} must have 1 to 255 characters; this one has 256."),
    "NUL": ("a\x00", "{} 'a\\x00' contains a control character or a lone surrogate."),
    "newline": ("a\n", "{} 'a\\n' contains a control character or a lone surrogate."),
    "tab": ("a\tb", "{} 'a\\tb' contains a control character or a lone surrogate."),
    "DEL": ("\x7f", "{} '\\x7f' contains a control character or a lone surrogate."),
    "C1": ("é\x85", "{} 'é\\x85' contains a control character or a lone surrogate."),
    "surrogate": ("\ud800", "{} '\\ud800' contains a control character or a lone surrogate."),
    "int": (7, "{} must be a string, not an int."),
    "bytes": (b"a", "{} must be a string, not a bytes."),
    "StrEnum": (Shade.DARK, "{} must be a string, not a Shade."),
}


def test_bad_names_of_types_queues_and_keys_are_refused(app: Any, url: str) -> None:
    app.enqueue("before")
    before = tables.read(url)
    for what, enqueue in {
        "The task type": app.enqueue,
        "The queue": lambda name: app.enqueue("resize", queue=name),
        "The key": lambda name: app.enqueue("resize", key=name),
    }.items():
        calls = {name: lambda v=value, enqueue=enqueue: enqueue(v) for name, (value, _) in BAD_NAMES.items()}
        assert refusals(calls) == {name: text.format(what) for name, (_, text) in BAD_NAMES.items()}
    assert refusal(lambda: app.enqueue(None)) == "The task type must be a string, not a NoneType."
    assert refusal(lambda: app.enqueue("resize", queue=None)) == "The queue must be a string, not a NoneType."
    assert tables.read(url) == before


YEARS = "3,153,600,000 seconds"
BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "priority too high": (
        {"priority": 2**31},
        "priority must be between -2,147,483,647 and 2,147,483,647, not 2,147,483,648.",
    ),
    "priority too low": (
        {"priority": -(2**31)},
        "priority must be between -2,147,483,647 and 2,147,483,647, not -2,147,483,648.",
    ),
    "priority bool": ({"priority": True}, "priority must be an integer, not True."),
    "priority float": ({"priority": 1.0}, "priority must be an integer, not 1.0."),
    "priority text": ({"priority": "1"}, "priority must be an integer, not '1'."),
    "priority None": ({"priority": None}, "priority must be an integer, not None."),
    "no attempts": ({"max_attempts": 0}, "max_attempts must be between 1 and 1,000,000, not 0."),
    "too many attempts": ({"max_attempts": 1_000_001}, "max_attempts must be between 1 and 1,000,000, not 1,000,001."),
    "attempts float": ({"max_attempts": 3.0}, "max_attempts must be an integer, not 3.0."),
    "negative delay": ({"delay": -1}, f"delay must be between 0 and {YEARS}, not -1."),
    "NaN delay": ({"delay": math.nan}, f"delay must be between 0 and {YEARS}, not nan."),
    "infinite delay": ({"delay": math.inf}, f"delay must be between 0 and {YEARS}, not inf."),
    "delay over 100 years": ({"delay": 3_153_600_001}, f"delay must be between 0 and {YEARS}, not 3153600001."),
    "delay bool": ({"delay": True}, "delay must be a number of seconds, not True."),
    "delay text": ({"delay": "5"}, "delay must be a number of seconds, not '5'."),
    "no timeout": ({"timeout": 0}, f"timeout must be between 0.001 and {YEARS}, not 0."),
    "negative timeout": ({"timeout": -1.5}, f"timeout must be between 0.001 and {YEARS}, not -1.5."),
    "NaN timeout": ({"timeout": math.nan}, f"timeout must be between 0.001 and {YEARS}, not nan."),
    "naive run_at": ({"run_at": datetime(2025, 1, 1)}, "run_at has no time zone."),  # noqa: DTZ001
    "run_at text": ({"run_at": "2025-01-01T00:00:00Z"}, "run_at must be a datetime, not '2025-01-01T00:00:00Z'."),
    "run_at number": ({"run_at": 1.5}, "run_at must be a datetime, not 1.5."),
    "delay and run_at": (
        {"delay": 5, "run_at": datetime(2025, 1, 1, tzinfo=UTC)},
        "Give either delay or run_at, not both.",
    ),
}


def test_bad_options_of_enqueue_are_refused(app: Any, url: str) -> None:
    app.enqueue("before")
    before = tables.read(url)
    calls = {name: lambda o=options: app.enqueue("resize", **o) for name, (options, _) in BAD_OPTIONS.items()}
    assert refusals(calls) == {name: text for name, (_, text) in BAD_OPTIONS.items()}
    assert tables.read(url) == before


def test_a_time_zone_without_an_offset_is_refused_as_a_missing_time_zone(app: Any) -> None:
    nowhere = datetime(2025, 1, 1, tzinfo=NoOffset())
    assert refusal(lambda: app.enqueue("resize", run_at=nowhere)) == "run_at has no time zone."
    assert app.list_tasks() == []


def test_numbers_of_thousands_of_digits_are_refused_like_other_bad_numbers(app: Any) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    calls = {
        "priority": lambda: app.enqueue("resize", priority=HUGE),
        "max_attempts": lambda: app.enqueue("resize", max_attempts=HUGE),
        "delay": lambda: app.enqueue("resize", delay=HUGE),
        "timeout": lambda: app.enqueue("resize", timeout=HUGE),
        "key of params": lambda: app.enqueue("resize", {HUGE: 1}),
        "lease": lambda: app.claim("worker-1", lease=HUGE),
        "count": lambda: app.claim_many("worker-1", HUGE),
        "progress": lambda: app.progress(claim, HUGE),
        "retry_in": lambda: app.fail(claim, "no", retry_in=HUGE),
        "id": lambda: app.get(HUGE),
    }
    assert not_refused(calls) == {}


def test_a_backoff_out_of_bounds_is_refused(app: Any) -> None:
    calls = {
        "negative": lambda: Backoff(base=-1),
        "base above cap": lambda: Backoff(base=10, cap=5),
        "over a year": lambda: Backoff(cap=365 * 24 * 3600 + 1),
        "NaN": lambda: Backoff(base=math.nan),
        "NaN cap": lambda: Backoff(cap=math.nan),
    }
    need = "A backoff needs 0 <= base <= cap <= one year (seconds), not {}."
    assert refusals(calls) == {
        "negative": need.format("-1, 300.0"),
        "base above cap": need.format("10, 5"),
        "over a year": need.format("1.0, 31536001"),
        "NaN": need.format("nan, 300.0"),
        "NaN cap": need.format("1.0, nan"),
    }


def test_a_value_that_is_not_a_backoff_is_refused(app: Any) -> None:
    bad = {"None": None, "number": 5, "dict": {"base": 1}}
    calls = {name: lambda v=value: app.enqueue("resize", backoff=v) for name, value in bad.items()}
    calls |= {"text in it": lambda: Backoff(base="1"), "None in it": lambda: Backoff(cap=None)}
    assert not_refused(calls) == {}
    assert app.list_tasks() == []


# Claims and their outcomes

BAD_WORKER_IDS = ["", " ", "a b", "a\n", "\na", "a\x00", "wörker", "工人", "a.b", "a/b", "x" * 256, None, 7, b"a"]


def test_bad_worker_ids_are_refused(app: Any, url: str) -> None:
    task = app.enqueue("resize")
    before = tables.read(url)
    for worker_id in BAD_WORKER_IDS:
        verbs = {
            "claim": lambda w=worker_id: app.claim(w),
            "claim_by_id": lambda w=worker_id: app.claim_by_id(task.id, w),
            "heartbeat": lambda w=worker_id: app.heartbeat(w),
            "ClaimRef": lambda w=worker_id: ClaimRef(task.id, 1, w),
        }
        assert refusals(verbs) == dict.fromkeys(verbs, f"The worker id {worker_id!r} is not allowed.")
    assert tables.read(url) == before
    assert app.claim("Az09_-" + "x" * 249).task_id == task.id


BAD_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown order": ({"order": "newest"}, "There is no order 'newest'."),
    "empty order": ({"order": ""}, "There is no order ''."),
    "order None": ({"order": None}, "There is no order None."),
    "order in SQL": ({"order": "id; DROP TABLE dibs_tasks"}, "There is no order 'id; DROP TABLE dibs_tasks'."),
    "empty queues": ({"queues": []}, "queues is an empty list, which matches nothing."),
    "empty types": ({"types": ()}, "types is an empty list, which matches nothing."),
    "text for queues": ({"queues": "default"}, "queues must be a list of names, not 'default'."),
    "text for types": ({"types": "resize"}, "types must be a list of names, not 'resize'."),
    "set for queues": ({"queues": {"a"}}, "queues must be a list of names, not {'a'}."),
    "number among queues": ({"queues": ["a", 7]}, "The queue must be a string, not an int."),
    "empty name among types": ({"types": [""]}, "The task type must have 1 to 255 characters; this one has 0."),
    "NUL among types": (
        {"types": ["a\x00"]},
        "The task type 'a\\x00' contains a control character or a lone surrogate.",
    ),
    "negative lease": ({"lease": -1}, f"lease must be between 0.001 and {YEARS}, not -1."),
    "no lease": ({"lease": 0}, f"lease must be between 0.001 and {YEARS}, not 0."),
    "NaN lease": ({"lease": math.nan}, f"lease must be between 0.001 and {YEARS}, not nan."),
    "lease text": ({"lease": "60"}, "lease must be a number of seconds, not '60'."),
    "negative attempts": (
        {"max_attempts_remaining": -1},
        "max_attempts_remaining must be between 0 and 1,000,000, not -1.",
    ),
    "attempts bool": ({"max_attempts_remaining": True}, "max_attempts_remaining must be an integer, not True."),
}


def test_bad_options_of_claim_are_refused(app: Any, url: str) -> None:
    app.enqueue("resize")
    before = tables.read(url)
    calls = {name: lambda o=options: app.claim("worker-1", **o) for name, (options, _) in BAD_CLAIMS.items()}
    assert refusals(calls) == {name: text for name, (_, text) in BAD_CLAIMS.items()}
    assert tables.read(url) == before


def test_bad_counts_are_refused(app: Any, url: str) -> None:
    app.enqueue("resize")
    before = tables.read(url)
    between = "count must be between 1 and 1,000, not {}."
    bad = {0: between.format(0), -1: between.format(-1), 1001: between.format("1,001")}
    assert {n: refusal(lambda n=n: app.claim_many("worker-1", n)) for n in bad} == bad
    assert {n: refusal(lambda n=n: app.peek(n)) for n in bad} == bad
    assert refusal(lambda: app.claim_many("worker-1", 1.0)) == "count must be an integer, not 1.0."
    assert refusal(lambda: app.claim_many("worker-1", True)) == "count must be an integer, not True."
    assert tables.read(url) == before


def test_a_bad_wait_is_refused_before_anything_is_claimed(app: Any) -> None:
    task = app.enqueue("resize")
    assert not_refused({"text": lambda: app.claim("worker-1", wait="5")}) == {}
    assert app.get(task.id) == task


TEXT_THAT_NOT_EVERY_ENGINE_HOLDS = {"NUL": "a\x00", "surrogate": "\ud800"}


def test_a_bad_incarnation_is_refused(app: Any) -> None:
    task = app.enqueue("resize")
    bad = TEXT_THAT_NOT_EVERY_ENGINE_HOLDS
    assert not_refused({name: lambda v=v: app.claim("worker-1", incarnation=v) for name, v in bad.items()}) == {}
    assert not_refused({name: lambda v=v: app.heartbeat("worker-1", incarnation=v) for name, v in bad.items()}) == {}
    assert app.get(task.id) == task


def test_a_bad_signature_is_refused(app: Any) -> None:
    bad = TEXT_THAT_NOT_EVERY_ENGINE_HOLDS
    assert not_refused({name: lambda v=v: app.signed(v).enqueue("resize") for name, v in bad.items()}) == {}
    assert app.list_tasks() == []


def test_bad_values_about_a_claim_are_refused(app: Any, url: str) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    before = tables.read(url)
    calls = {
        "lease": (lambda: app.renew(claim, 0), f"lease must be between 0.001 and {YEARS}, not 0."),
        "lease text": (lambda: app.renew(claim, "60"), "lease must be a number of seconds, not '60'."),
        "101 %": (lambda: app.progress(claim, 101), "progress must be between 0 and 100, not 101."),
        "-1 %": (lambda: app.progress(claim, -1), "progress must be between 0 and 100, not -1."),
        "50.0 %": (lambda: app.progress(claim, 50.0), "progress must be an integer, not 50.0."),
        "retry_in": (lambda: app.fail(claim, "no", retry_in=-1), f"retry_in must be between 0 and {YEARS}, not -1."),
        "retry_in NaN": (
            lambda: app.fail(claim, "no", retry_in=math.nan),
            f"retry_in must be between 0 and {YEARS}, not nan.",
        ),
        "delay": (lambda: app.release(claim, delay=-0.5), f"delay must be between 0 and {YEARS}, not -0.5."),
        "delay NaN": (lambda: app.release(claim, delay=math.nan), f"delay must be between 0 and {YEARS}, not nan."),
        "token": (
            lambda: ClaimRef(1, -1, "worker-1"),
            "token must be between 0 and 9,223,372,036,854,775,807, not -1.",
        ),
        "id": (lambda: ClaimRef("1", 1, "worker-1"), "task_id must be an integer, not '1'."),
    }
    assert refusals({name: call for name, (call, _) in calls.items()}) == {
        name: text for name, (_, text) in calls.items()
    }
    assert tables.read(url) == before


def test_a_value_that_is_not_an_outcome_is_refused(app: Any, url: str) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    before = tables.read(url)
    calls = {
        "permanent is a number": lambda: app.fail(claim, "no", permanent=1),
        "permanent is text": lambda: app.fail(claim, "no", permanent="no"),
        "outcome is text": lambda: app.finish([(claim, "done")]),
        "outcome is None": lambda: app.finish([(claim, None)]),
        "outcome is a failure": lambda: app.finish([(claim, Failure("Error", "no"))]),
        "message is a number": lambda: app.progress(claim, 50, 7),
    }
    assert not_refused(calls) == {}
    assert tables.read(url) == before


def test_bad_ids_are_refused_by_every_method_that_takes_one(app: Any) -> None:
    most = "A task's id must be between 0 and 9,223,372,036,854,775,807, not {:,}."
    bad = {-1: most.format(-1), 2**63: most.format(2**63), "1": "A task's id must be an integer, not '1'."}
    for verb in ("get", "cancel", "retry", "history", "explain", "wait"):
        assert {task_id: refusal(lambda v=verb, i=task_id: getattr(app, v)(i)) for task_id in bad} == bad, verb
    assert {task_id: refusal(lambda i=task_id: app.claim_by_id(i, "worker-1")) for task_id in bad} == bad


# Values that come back exactly

NASTY = "quotes ' \" \\ % %s %(id)s {} {{task}} :name :id $1 ? @p -- /* */ ; DROP TABLE dibs_tasks"
GOOD_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    1.0,
    -0.0,
    0.1,
    1e20,
    1e16,
    1e308,
    5e-324,
    1.7976931348623157e308,
    2**63 - 1,
    -(2**63),
    2**53 + 1,
    "",
    " ",
    "\t\n\r\x01\x1f\x7f\x85\u2028\ufeff\uffff",
    "é ß 工 \U0001f600 \U0010ffff e\u0301 \u202e",
    "\\u0000 \\ud800",
    NASTY,
    {},
    [],
    [[], {}, [None]],
    {"": {"": ""}, " ": 1, NASTY: NASTY, "é\U0001f600": [1, "1", 1.0, True], "b": 1, "a": 2},
    {"__class__": "x", "$ref": "#", "type": "t", "params": {}},
    list(range(500)),
]


def test_values_are_returned_exactly_as_params_and_as_results(app: Any) -> None:
    tasks = app.enqueue_many([NewTask("resize", {"value": value}) for value in GOOD_VALUES])
    claims = app.claim_many("worker-1", len(GOOD_VALUES), order="fifo")
    app.finish([(claim, Completed(value)) for claim, value in zip(claims, GOOD_VALUES, strict=True)])
    stored = [app.get(task.id) for task in tasks]
    wanted = [repr(value) for value in GOOD_VALUES]  # repr distinguishes 1, 1.0 and True, and orders of keys
    assert [repr(task.params["value"]) for task in tasks] == wanted
    assert [repr(claim.task.params["value"]) for claim in claims] == wanted
    assert [repr(task.params["value"]) for task in stored] == wanted
    assert [repr(task.result) for task in stored] == wanted


def test_a_tuple_is_returned_as_a_list(app: Any) -> None:
    task = app.enqueue("resize", {"sizes": (1, (2, 3))})
    assert task.params == app.get(task.id).params == {"sizes": [1, [2, 3]]}


def test_a_tuple_is_validated_as_an_array(app: Any) -> None:
    app.register_type("resize", {"properties": {"sizes": {"type": "array", "minItems": 2}}})
    assert app.enqueue("resize", {"sizes": (1, 2)}).params == {"sizes": [1, 2]}
    assert not_refused({"too short": lambda: app.enqueue("resize", {"sizes": (1,)})}) == {}


NAMES = [NASTY, "'; DELETE FROM dibs_tasks; --", "é ß 工 \U0001f600", " padded ", "NULL", "0", "\U0001f600" * 255]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_single_line_of_text_may_be_the_name_of_a_type_a_queue_and_a_key(app: Any, name: str) -> None:
    app.enqueue("other", queue="other")
    task = app.enqueue(name, {"n": 1}, queue=name, key=name)
    assert app.get(task.id) == task
    assert (task.type, task.queue, task.key) == (name, name, name)
    assert app.enqueue(name, {"n": 1}, queue=name, key=name).id == task.id
    assert [found.id for found in app.list_tasks(type=name, queue=name)] == [task.id]
    assert app.stats().by_queue[name] == app.stats().by_type[name] == {"pending": 1}
    assert app.peek(5, queues=[name], types=[name]) == [task]
    assert [claim.task_id for claim in app.claim_many("worker-1", 5, queues=[name], types=[name])] == [task.id]
    assert app.stats().depth == {"pending": 1, "claimed": 1}


# Errors with any text: the failure path must not fail


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def failed_with(app: Any, error: Any) -> Failure:
    task = app.enqueue("resize", max_attempts=1)
    assert app.fail(app.claim("worker-1"), error).state is dibs.State.FAILED
    found: Failure = app.get(task.id).error
    return found


def test_an_error_text_that_no_engine_can_store_is_stored_with_visible_replacements(app: Any) -> None:
    failure = Failure("Bad\x00Type", "a\x00b\ud800c\udfff é\U0001f600", "trace\x00\ud800\nend")
    assert failed_with(app, failure) == Failure("Bad␀Type", "a␀b\ufffdc\ufffd é\U0001f600", "trace␀\ufffd\nend")
    assert failed_with(app, ValueError("a\x00b\ud800")).message == "a␀b\ufffd"
    assert failed_with(app, "\x00") == Failure("Error", "␀")


def test_the_end_of_a_huge_error_text_is_kept(app: Any) -> None:
    text = "x" * MIB + "the cause"
    error = failed_with(app, Failure("Huge", text, text))
    assert error.message == error.traceback == "… " + text[-64 * 1024 :]
    whole = "y" * 64 * 1024
    assert failed_with(app, whole).message == whole


def test_an_exception_whose_str_raises_is_stored_with_its_type_name(app: Any) -> None:
    error = failed_with(app, Speechless())
    assert error.type == "Speechless"
    assert error.message == "<Speechless without a message: its __str__ raised RuntimeError>"
    assert "Speechless" in error.traceback


def test_error_text_with_special_characters_is_returned_exactly(app: Any) -> None:
    text = NASTY + "\n\t\x01\u2028 é\U0001f600"
    assert failed_with(app, Failure(NASTY, text, text)) == Failure(NASTY, text, text)
    assert failed_with(app, "").message == ""


def test_a_progress_message_with_any_content_is_kept(app: Any) -> None:
    task = app.enqueue("resize")
    claim = app.claim("worker-1")
    for said, kept in {"a\x00b\ud800": "a␀b\ufffd", NASTY: NASTY, "": "", "x" * MIB: "… " + "x" * 64 * 1024}.items():
        app.progress(claim, 50, said)
        assert app.get(task.id).progress_message == kept


def test_errors_are_found_by_their_text(app: Any) -> None:
    ids = [app.enqueue("resize", max_attempts=1).id for _ in range(2)]
    first, second = app.claim_many("worker-1", 2)
    app.finish(
        [(first, Failed(Failure("Error", "disk 100% full"))), (second, Failed(Failure("Error", "disk 100 full")))]
    )
    assert app.redrive(error="100% full") == 1
    assert [app.get(task_id).state for task_id in ids] == [dibs.State.PENDING, dibs.State.FAILED]
