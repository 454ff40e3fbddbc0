"""The JSON Schema validator, for this process and for child processes that do nothing but validate (see processes.py).

This module imports nothing of dibs, so that a child process starts quickly.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import struct
import sys
from contextlib import suppress
from typing import Any, BinaryIO

import jsonschema_rs

if sys.platform != "win32":
    import resource

HEADER = struct.Struct("!I")
ALIVE = b"+"
"""Sent after a request was read: an error after this byte is caused by the request."""

IDLE = 60.0
"""Seconds after which a process that gets no requests ends: its parent may have forked, and never close the pipe."""

MEMORY = 512 * 1024 * 1024
"""Bytes of address space that a process may use."""

LONGEST_MESSAGE = 500


class InvalidSchema(ValueError):
    """The schema is not a valid JSON Schema, or refers to something outside of itself."""


def compile_schema(schema: Any) -> Any:
    """A validator for the JSON Schema. References are never fetched, neither from the network nor from files."""
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse_to_fetch)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise InvalidSchema(_shorten(str(error).splitlines()[0])) from None


def describe(validator: Any, params: Any) -> tuple[str, str]:
    """The place and the description of the first error in invalid params."""
    try:
        validator.validate(params)  # ends at the first error; iter_errors() makes all of them before it returns
    except jsonschema_rs.ValidationError as error:
        return _shorten("/".join(str(part) for part in error.instance_path)), _shorten(error.message)
    return "", "does not fit the schema"


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"the schema refers to {uri}, and dibs fetches no schemas; include it in the schema")


def _shorten(text: str) -> str:
    """The beginning and the end of a long text. Messages contain the value, which may be a megabyte long."""
    half = LONGEST_MESSAGE // 2
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} … {text[-half:]}"


def main() -> None:
    """Answer requests until the pipe is closed.

    A request is a JSON object: `schema` (text), `params` (text, or null to compile only), `decided` (true where the
    params are known to be invalid), `seconds` (after which this process ends itself). The answer to each is ALIVE, then
    {"valid": …}, then, for invalid params, {"place": …, "message": …}; or {"refused": …} for an invalid schema.
    """
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the children as well
    _limit_memory()
    known: dict[str, Any] = {}
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        while True:
            # The watchdog is a native thread: it ends the process while native code holds the interpreter's lock.
            faulthandler.dump_traceback_later(IDLE, exit=True, file=nowhere)
            if (request := _read(requests)) is None:
                return
            faulthandler.dump_traceback_later(request["seconds"], exit=True, file=nowhere)
            answers.write(ALIVE)
            answers.flush()
            _answer(request, known, answers)


def _answer(request: dict[str, Any], known: dict[str, Any], answers: BinaryIO) -> None:
    try:
        validator = _validator(request["schema"], known)
    except InvalidSchema as error:
        _write(answers, {"refused": str(error)})
        return
    params = None if request["params"] is None else json.loads(request["params"])
    valid = params is None or (not request["decided"] and validator.is_valid(params))
    _write(answers, {"valid": valid})
    if not valid:
        place, message = describe(validator, params)
        _write(answers, {"place": place, "message": message})


def _validator(text: str, known: dict[str, Any]) -> Any:
    if text not in known:
        if len(known) >= 16:
            known.clear()
        known[text] = compile_schema(json.loads(text))
    return known[text]


def _limit_memory() -> None:
    if sys.platform == "win32":
        return
    with suppress(OSError, ValueError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(stream: BinaryIO) -> Any:
    """The next message; None at the end."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    body = stream.read(size)
    return json.loads(body) if len(body) == size else None


def _write(stream: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    stream.write(HEADER.pack(len(body)) + body)
    stream.flush()
