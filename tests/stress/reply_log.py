"""The replies that a process got, recorded after each reply and before the next call.

One line in one write, so that kill -9 loses at most the last line: that reply is then unchecked, never wrong.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from dibs import Event
from dibs.observe.verify import Acknowledged

REFUSED = "refused"
"""An outcome that was answered with ClaimLost: [[task id, token, event, worker], …]."""

TROUBLE = "trouble"
"""An answer that was an error of the store, by its code. It is not counted as progress."""

ENQUEUED = Event.ENQUEUED.value
"""[ids], [keys]. Every other event comes with [[task id, token], …]."""

Entry = tuple[str, list[Any], list[Any]]

_EVENTS = frozenset(event.value for event in Event)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[str, list[Any], list[Any]])


class ReplyLog:
    """The file of one process (or of several that write under one name)."""

    def __init__(self, folder: Path | str, name: str) -> None:
        self._file = os.open(path_of(folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, what: Sequence[Any], more: Sequence[Any] = ()) -> None:
        """One answer."""
        if what:
            os.write(self._file, _encoder.encode((kind, what, more)) + b"\n")


@lru_cache(maxsize=32)
def reply_log_of(folder: str, name: str) -> ReplyLog:
    """The file of this name, opened once in a process."""
    return ReplyLog(folder, name)


class Reader:
    """Reads on where it stopped, while the process still writes."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = path_of(folder, name)
        self.kinds: Counter[str] = Counter()
        self._read = 0

    def count(self) -> int:
        """The number of replies so far that were not errors."""
        self._read_on()
        return self.kinds.total() - self.kinds[TROUBLE]

    def _read_on(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # the rest of it comes next time, not as a line of its own
                self._read += len(line)
                self.kinds[line[2 : line.index(b'"', 2)].decode()] += 1


def lines(folder: Path) -> Iterator[tuple[str, Entry]]:
    """All recorded replies, each with the name of the process."""
    for path in sorted((folder / "told").glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):  # of half a line nothing is known
                    yield path.stem, _decoder.decode(line)


def acknowledged(folder: Path) -> Iterator[Acknowledged]:
    """What was acknowledged, as the checker reads it."""
    for name, (kind, what, _) in lines(folder):
        if kind == ENQUEUED:
            yield from (Acknowledged(task_id, 0, Event.ENQUEUED) for task_id in what)
        elif kind in _EVENTS:
            yield from (Acknowledged(task_id, token, Event(kind), name) for task_id, token in what)


def path_of(folder: Path | str, name: str) -> Path:
    """Where it is."""
    return Path(folder) / "told" / f"{name}.jsonl"
