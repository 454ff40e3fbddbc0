"""The rules of the API that JSON Schema cannot express, for Schemathesis.

No check is switched off: a request is bent, just before it is sent, into one that the rule allows.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable
from math import isfinite
from typing import Any

import schemathesis

from dibs.errors import InvalidValue
from dibs.model.cron import check_cron, check_timezone

A_MOMENT = 0.01
TIMED_BY_TICKS = ["end_at", "start_at", "jitter_seconds", "timezone"]
"""Fields of a schedule with several ticks."""

NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,255}")
DECIMAL = re.compile(r"\d{1,9}(\.\d{1,9})?")
OWN_KEY = os.environ.get("DIBS_TEST_OWN_KEY", "")

EXISTING_LIMIT = os.environ.get("DIBS_TEST_LIMIT", "")
"""A limit that the test has set, without `per`."""

MOST_LIMITS = 8
"""The number of limits that a task may name."""


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Leave one of the two ways to send a key, the one that is used here: beside it, nobody looks at the other, and a
    wrong word there is no reason to refuse."""
    del raw_schema["components"]["securitySchemes"]["bearer"]
    for path in raw_schema["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict) and operation.get("security"):
                operation["security"].remove({"bearer": []})


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Keep to the rules below, wherever in the request they apply."""
    for place in (case.query, *objects(case.body)):
        if isinstance(place, dict):
            wait_for_a_moment(place)
            tell_the_time(place)
            untangle(place.get("steps"))
            name_existing_limit(place)
            if is_good(case):
                expire_after_due(place)
    write_large_floats_as_integers(case.body)
    if case.operation.path == "/api/tasks/{id}/complete" and is_good(case):
        add_nothing(case.body)
    if case.operation.path == "/api/upkeep/prune":
        begin_at_the_oldest(case.body)
    if case.operation.path == "/api/task-types":
        register_elsewhere(case.body)
    if case.operation.path == "/api/schedules" and is_good(case):
        tick_in_one_way(case.body)
    if case.operation.label == "DELETE /api/keys/{id}":
        keep_own_key(case.path_parameters)
    if case.operation.path == "/api/limits/{name}":
        keep_existing_limit(case)


def wait_for_a_moment(place: dict[str, Any]) -> None:
    """A claim may wait for a minute; a test has no time for that."""
    wait = place.get("wait_seconds")
    if isinstance(wait, str):  # in a query
        wait = float(wait) if DECIMAL.fullmatch(wait) else None
    if isinstance(wait, int | float) and not isinstance(wait, bool) and A_MOMENT < wait <= 60:
        place["wait_seconds"] = A_MOMENT


def tell_the_time(place: dict[str, Any]) -> None:
    """A schedule has a cron expression and a time zone that the server's machine knows: no schema tells these apart."""
    for name, check, good in (("cron", check_cron, "0 3 * * *"), ("timezone", check_timezone, "Europe/Berlin")):
        if is_name(place.get(name)) and not accepts(check, place[name]):
            place[name] = good


def untangle(steps: Any) -> None:
    """A step has a name of its own and waits for steps that there are: each here for the one before it, if it waits."""
    if not isinstance(steps, list) or not all(is_step(step) for step in steps):
        return
    for number, step in enumerate(steps):
        step["name"] = f"step-{uuid.uuid4().hex}"
        if step.get("after"):
            step["after"] = [steps[number - 1]["name"]] if number else []


def name_existing_limit(place: dict[str, Any]) -> None:
    """A task, schedule, queue or type may name only limits that exist, and a task without a group none per group."""
    limits = place.get("limits")
    if isinstance(limits, list) and 0 < len(limits) <= MOST_LIMITS and all(is_name(limit) for limit in limits):
        place["limits"] = [EXISTING_LIMIT]


def expire_after_due(place: dict[str, Any]) -> None:
    """A task may not expire before it is due: a task with both times keeps the due time."""
    if place.get("run_at") is not None or place.get("delay_seconds") is not None:
        for name in ("expires_at", "expires_in_seconds"):
            place.pop(name, None)


def tick_in_one_way(body: Any) -> None:
    """A schedule has one of a cron expression, an interval and a single time, and what goes with it."""
    if not isinstance(body, dict):
        return
    kinds = ("cron", "every_seconds", "at")
    kept = next((name for name in kinds if body.get(name) is not None), "cron")
    body.setdefault(kept, "0 3 * * *")
    others = {"cron": ["end_at"], "every_seconds": ["end_at", "jitter_seconds", "timezone"], "at": TIMED_BY_TICKS}
    for name in {*kinds, *others[kept]} - {kept}:
        body.pop(name, None)
    if body[kept] is None:
        body[kept] = "0 3 * * *"


def write_large_floats_as_integers(value: Any) -> None:
    """Floats beyond 64 bits become integers. JSON Schema takes both for the same number; dibs stores such a float, and
    refuses such an integer."""
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, each in list(places):
        if isinstance(each, float) and abs(each) >= 2**63 and isfinite(each):
            value[place] = int(each)
        write_large_floats_as_integers(each)


def is_step(value: Any) -> bool:
    """True for a step whose name and parents are what the API takes: a wrong one is left as it is, to be refused."""
    if not isinstance(value, dict):
        return False
    name, after = value.get("name"), value.get("after", [])
    return (name is None or is_name(name)) and isinstance(after, list) and all(is_name(each) for each in after)


def add_nothing(body: Any) -> None:
    """Only a step of a workflow can add steps, and a task is seldom one."""
    if isinstance(body, dict):
        body.pop("steps", None)


def is_good(case: Any) -> bool:
    """True for a request that the description allows: a bad one must stay bad."""
    return case.meta is None or case.meta.generation.mode.is_positive


def begin_at_the_oldest(body: Any) -> None:
    """A position to prune from is text that an earlier answer gave: a made-up one is refused."""
    if isinstance(body, dict) and isinstance(body.get("after"), str):
        del body["after"]


def register_elsewhere(body: Any) -> None:
    """Params of a registered type must fit its schema: the type registered here is never enqueued."""
    if isinstance(body, dict) and is_name(body.get("name")):
        body["name"] = "of-a-schema"


def keep_own_key(path: dict[str, Any]) -> None:
    """A request that revokes its own key makes every later response a 401."""
    if path.get("id") == OWN_KEY:
        path["id"] = "a" * len(OWN_KEY)


def keep_existing_limit(case: Any) -> None:
    """A request that removes or changes the limit of the test makes later requests refer to a limit that is gone."""
    if case.path_parameters.get("name") == EXISTING_LIMIT:
        case.path_parameters["name"] = "another-limit"
    if case.operation.method.upper() == "PATCH" and is_good(case):
        leave_a_usable_limit(case.body)


def leave_a_usable_limit(body: Any) -> None:
    """A change must leave a limit that limits something, and a burst only beside a rate."""
    if isinstance(body, dict):
        body["max"] = body.get("max") or 1
        if body.get("burst") is not None:
            body["rate"] = body.get("rate") or "1/second"


def accepts(check: Callable[[Any], Any], value: Any) -> bool:
    """True if dibs takes the value."""
    try:
        check(value)
    except InvalidValue:
        return False
    return True


def is_name(value: Any) -> bool:
    """True for what the API takes as a name: a wrong one is left as it is, to be refused."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def objects(value: Any) -> list[dict[str, Any]]:
    """All objects in a JSON value."""
    if isinstance(value, dict):
        return [value, *(each for item in value.values() for each in objects(item))]
    return [each for item in value for each in objects(item)] if isinstance(value, list) else []
