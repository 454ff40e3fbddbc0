"""Shared metrics of several processes: each process writes its counts to a file, and any process sums up all files.

A restarted process continues from the counts in its file, so no counter decreases. A process writes its counts before
it returns a sum, so `kill -9` loses only counts of the last second that no response has included.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from dibs.observe.instruments import Numbers, Values
from dibs.observe.metrics import FAMILIES

logger = logging.getLogger("dibs.metrics")

COUNTS_FILE = "DIBS_COUNTS"
"""The environment variable with the file for the counts of this process. Other processes use files in the same
folder."""

WRITE_INTERVAL = 1.0
"""Seconds between two writes of the file."""

Counts = dict[str, Numbers]
"""The numbers of each metric family, by name."""

_StoredCounts = dict[str, list[tuple[Values, list[float]]]]
_decode = msgspec.json.Decoder(_StoredCounts).decode


def total() -> Counts:
    """The counts of this process and of all processes that share counts with it."""
    return _own() if _share is None else _share.total()


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Share the counts of this process during the block, if a supervisor has set COUNTS_FILE."""
    global _share  # noqa: PLW0603 - counts belong to the process, and so does their file
    # removed, so that child processes that run handlers do not inherit it
    if (file := os.environ.pop(COUNTS_FILE, None)) is None:
        yield
        return
    _share = share = SharedCounts(Path(file))
    ending = threading.Event()
    thread = threading.Thread(target=share.keep_writing, args=[ending], name="dibs-counts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        _share = None


def read_folder(folder: Path) -> Counts:
    """The sum of all files in the folder."""
    return _sum(_read(file) for file in sorted(folder.glob("*.json")))


class SharedCounts:
    """The file with the counts of this process, and the files of other processes in the same folder."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = _read(file)  # the counts of earlier processes with this file
        self._written = b""
        self._writing = threading.Lock()
        self._warned = False

    def total(self) -> Counts:
        """The sum of all counts. The own counts are written first, so that a later sum by another process is not
        smaller."""
        own = self.write()
        others = (_read(file) for file in sorted(self._file.parent.glob("*.json")) if file != self._file)
        return _sum([own, *others])

    def write(self) -> Counts:
        """Write the counts of this process and return them. The file is replaced atomically."""
        with self._writing:
            counts = _sum([self._before, _own()])
            text = msgspec.json.encode({name: list(numbers.items()) for name, numbers in counts.items()})
            if text != self._written:
                self._save(text)
            return counts

    def keep_writing(self, ending: threading.Event) -> None:
        """Write periodically, and once more at the end."""
        while not ending.wait(WRITE_INTERVAL):
            self.write()
        self.write()

    def _save(self, text: bytes) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(text)
            new.replace(self._file)
        except OSError as error:  # a full disk, or a folder that the supervisor has deleted, must not stop the process
            if not self._warned:
                logger.warning("the metrics of this process cannot be shared: %s", error)
            self._warned = True
        else:
            self._written = text


def _own() -> Counts:
    return {family.name: family.read() for family in FAMILIES}


def _sum(several: Iterable[Counts]) -> Counts:
    summed: dict[str, dict[Values, list[float]]] = {}
    for counts in several:
        for name, numbers in counts.items():
            series = summed.setdefault(name, {})
            for values, each in numbers.items():
                series[values] = _add(series[values], each) if values in series else each
    return dict(summed)


def _add(one: list[float], other: list[float]) -> list[float]:
    if len(one) != len(other):  # a process that was started before an upgrade has other buckets
        return one
    return [a + b for a, b in zip(one, other, strict=True)]


def _read(file: Path) -> Counts:
    """The counts in the file; empty if the file does not exist."""
    try:
        return {name: dict(numbers) for name, numbers in _decode(file.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("the metrics in %s cannot be read: %s", file, error)
        return {}


_share: SharedCounts | None = None
