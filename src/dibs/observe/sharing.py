"""The counts of several processes as one: each writes its own into a file, and whoever is asked adds them all up.

Each of the processes has a file of its own, and goes on from what it finds there: when one has died and was started
again, no number goes back. What it told anybody it has written before, so even `kill -9` takes no more with it than
what it counted within the last second and told nobody.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from dibs.observe import finalization_metrics, metrics
from dibs.observe.instruments import Family, Numbers, Values

logger = logging.getLogger("dibs.metrics")

FILE = "DIBS_COUNTS"
"""Names, to one of several processes, the file for its counts; those of the others are beside it."""

WRITE_EVERY = 1.0

FAMILIES: tuple[Family, ...] = (*finalization_metrics.FAMILIES, *metrics.FAMILIES)
"""Everything that is counted."""

Counts = dict[str, Numbers]
"""The numbers of each family, by its name."""

_Written = dict[str, list[tuple[Values, list[float]]]]
_decode = msgspec.json.Decoder(_Written).decode


def total() -> Counts:
    """What this process has counted, and those that it shares its counts with."""
    return _own() if _share is None else _share.total()


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Share the counts of this process while the block lasts, if a supervisor has named a file for them."""
    global _share  # noqa: PLW0603 - counts belong to a process, and so does its way to share them
    if (file := os.environ.pop(FILE, None)) is None:  # not for the children that run handlers
        yield
        return
    _share = share = Share(Path(file))
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
    """What is written there, by all processes together."""
    return _sum(_read(file) for file in sorted(folder.glob("*.json")))


class Share:
    """The file of this process, and those beside it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = _read(file)  # what those counted that were here before us
        self._written = b""
        self._writing = threading.Lock()
        self._told = False

    def total(self) -> Counts:
        """The counts of all. Ours are written first: who is asked next must not know less than we have told."""
        own = self.write()
        others = (_read(file) for file in sorted(self._file.parent.glob("*.json")) if file != self._file)
        return _sum([own, *others])

    def write(self) -> Counts:
        """Write what we have, and return it. Nobody ever sees half a file."""
        with self._writing:
            counts = _sum([self._before, _own()])
            text = msgspec.json.encode({name: list(numbers.items()) for name, numbers in counts.items()})
            if text != self._written:
                self._save(text)
            return counts

    def keep_writing(self, ending: threading.Event) -> None:
        """Write now and then, and in the end."""
        while not ending.wait(WRITE_EVERY):
            self.write()
        self.write()

    def _save(self, text: bytes) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(text)
            new.replace(self._file)
        except OSError as error:  # a full disk, or a supervisor that is gone with its folder: no reason to stop working
            if not self._told:
                logger.warning("the counts of this process cannot be written: %s", error)
            self._told = True
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
    if len(one) != len(other):  # of a process that was started before an upgrade, and has other buckets
        return one
    return [a + b for a, b in zip(one, other, strict=True)]


def _read(file: Path) -> Counts:
    """What is written there; nothing where nobody has written yet."""
    try:
        return {name: dict(numbers) for name, numbers in _decode(file.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("the counts in %s cannot be read: %s", file, error)
        return {}


_share: Share | None = None
