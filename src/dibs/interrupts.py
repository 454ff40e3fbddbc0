"""Ctrl-C in a wait of a program: the traceback shows the lines of the program, and ends with what goes on.

An exception collects the frames of the library while it leaves them, so they are removed when it is printed: by
`sys.excepthook`, which is replaced at the first interrupt. asyncio turns Ctrl-C into a CancelledError, and raises
KeyboardInterrupt after it: the notes of the first are printed at the end of the second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import TracebackType

_NOTES = "__dibs_notes__"
"""The attribute of an exception that interrupted a wait: the notes that dibs has added."""

_previous_hook = None


def in_wait(interrupt: BaseException, note: str | None = None) -> BaseException:
    """The exception, which interrupted a wait, marked so that its traceback is printed without the library. `note`:
    what the user is told."""
    notes = interrupt.__dict__.setdefault(_NOTES, [])
    if note is not None:
        notes.append(note)
        interrupt.add_note(note)
    _replace_hook()
    return interrupt


def _replace_hook() -> None:
    global _previous_hook
    if _previous_hook is None:
        _previous_hook, sys.excepthook = sys.excepthook, _print_exception


def _print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    assert _previous_hook is not None
    if isinstance(error, KeyboardInterrupt) and any(_NOTES in each.__dict__ for each in _chain(error)):
        trace = _tidied(error)
    _previous_hook(kind, error, trace)


def _tidied(error: BaseException) -> TracebackType | None:
    """Remove the frames of the library from the error and from those before it, and let it have their notes. Returns
    its traceback."""
    for each in _chain(error):
        each.__traceback__ = _without_library(each.__traceback__)
        for note in each.__dict__.pop(_NOTES, ()):
            each.__notes__.remove(note)
            error.add_note(note)
    return error.__traceback__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those during whose handling it was raised."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _without_library(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and is_of_library(trace):
        trace = trace.tb_next
    if trace is not None:
        trace.tb_next = _without_library(trace.tb_next)
    return trace


def is_of_library(trace: TracebackType) -> bool:
    """True if this frame is one of dibs."""
    return str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] == "dibs"
