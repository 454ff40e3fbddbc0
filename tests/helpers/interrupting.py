"""Ctrl-C at a chosen point: at the n-th of all places where the interpreter checks for signals."""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any


def interrupt_everywhere(
    call: Callable[[], object], before: Callable[[], object] = lambda: None
) -> Iterator[KeyboardInterrupt]:
    """Call it again and again, interrupted at one place later each time, until it came to its end. `before` each time
    something else is called, which is not interrupted."""
    before()
    _interrupt_at(0, call)  # never: from Python 3.12 on, code is traced by instruction from its second run on
    for place in itertools.count(1):
        before()
        try:
            _interrupt_at(place, call)
        except KeyboardInterrupt as interrupt:
            yield interrupt
        else:
            return


def _interrupt_at(place: int, call: Callable[[], object]) -> None:
    left = itertools.count(place, -1)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if _is_heard(frame, event) and next(left) == 1:
            sys.settrace(None)
            raise KeyboardInterrupt(f"{frame.f_code.co_qualname}, line {frame.f_lineno} of {frame.f_code.co_filename}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def _is_heard(frame: FrameType, event: str) -> bool:
    return event == "call" or (event == "opcode" and frame.f_lasti in _hearing(frame.f_code))


@cache
def _hearing(code: CodeType) -> frozenset[int]:
    """The instructions before which signals are heard: what follows a call, and the jump back of a loop.

    An interrupt after a call belongs to the call. Where a `try` ends with it, the next instruction is outside already:
    there it would be raised where none can be.
    """
    bytecode = dis.Bytecode(code)
    entries = bytecode.exception_entries  # type: ignore[attr-defined]

    def handler(offset: int) -> int | None:
        return next((one.target for one in entries if one.start <= offset < one.end), None)

    return frozenset(
        one.offset
        for before, one in itertools.pairwise(bytecode)
        if one.opname.endswith(("JUMP_BACKWARD", "JUMP_BACKWARD_IF_TRUE", "JUMP_BACKWARD_IF_FALSE"))
        or (before.opname.startswith("CALL") and handler(before.offset) == handler(one.offset))
    )
