"""What Schemathesis must be told about the API that JSON Schema cannot say.

No check is switched off: a request is bent, just before it is sent, into one that the rule allows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import schemathesis

from dibs.cron import check_cron, check_timezone
from dibs.errors import InvalidValue

A_MOMENT = 0.01
NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,255}")
OWN_KEY = os.environ.get("DIBS_TEST_OWN_KEY", "")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Keep to the rules below, wherever in the request they apply."""
    for place in (case.query, *objects(case.body)):
        if isinstance(place, dict):
            wait_for_a_moment(place)
            tell_the_time(place)
    if case.operation.path == "/api/task-types":
        register_elsewhere(case.body)
    if case.operation.label == "DELETE /api/keys/{id}":
        keep_own_key(case.path_parameters)


def wait_for_a_moment(place: dict[str, Any]) -> None:
    """A claim may wait for a minute; a test has no time for that."""
    wait = place.get("wait_seconds")
    if isinstance(wait, int | float) and not isinstance(wait, bool) and A_MOMENT < wait <= 60:
        place["wait_seconds"] = A_MOMENT


def tell_the_time(place: dict[str, Any]) -> None:
    """A schedule has a cron expression and a time zone that the server's machine knows: no schema tells these apart."""
    for name, check, good in (("cron", check_cron, "0 3 * * *"), ("timezone", check_timezone, "Europe/Berlin")):
        if is_name(place.get(name)) and not accepts(check, place[name]):
            place[name] = good


def register_elsewhere(body: Any) -> None:
    """Params of a registered type must fit its schema: the type that is registered here is one that nobody enqueues."""
    if isinstance(body, dict) and is_name(body.get("name")):
        body["name"] = "of-a-schema"


def keep_own_key(path: dict[str, Any]) -> None:
    """Whoever revokes the key that he calls with sees nothing but 401 from then on."""
    if path.get("id") == OWN_KEY:
        path["id"] = "a" * len(OWN_KEY)


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
