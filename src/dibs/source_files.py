"""The source files of a program, and the changes in them: for `dibs worker --reload`.

Files are polled: a stat of some hundred files takes less than a millisecond, needs no package, and works on network and
container file systems, which report no events.
"""

from __future__ import annotations

import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType

POLL_INTERVAL = 0.4
"""Seconds between two looks at the files. A change counts once the files are the same in two looks: an editor or a
version control system may still be writing."""

_OTHERS = {"site-packages", "dist-packages"}


def source_files() -> list[str]:
    """The files of all imported modules, except those of Python, of installed packages and of dibs itself."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted({file for file in files if isinstance(file, str) and _is_own(file)})


def files_after_failure(error: BaseException) -> list[str]:
    """The files whose change may mend a program that cannot be imported: its modules, the places in the tracebacks, and
    the folders of all of them, in which a module may be missing."""
    files = {*source_files(), *(file for file in _files_of(error) if _is_own(file))}
    folders = {str(Path(file).parent) for file in files} | {str(Path.cwd())}
    return sorted(files | folders)


def states_of(files: Iterable[str]) -> dict[str, str]:
    """What is compared to find a change: time and size of a file, or the names of the Python files in a folder. Empty
    for a file that is missing."""
    return {file: _state(Path(file)) for file in files}


class SourceWatch:
    """Finds changes of files. `loaded` gives the files to watch, each with the state in which a process has loaded it:
    so a change between that moment and the first look is found as well."""

    def __init__(self, loaded: Callable[[], Iterable[tuple[str, str]]]) -> None:
        self._loaded = loaded
        self._seen: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._next_at = 0.0

    def changed(self) -> list[str]:
        """The files that have changed since they were loaded, once they no longer change; each change once."""
        if time.monotonic() < self._next_at:
            return []
        self._next_at = time.monotonic() + POLL_INTERVAL
        loaded = set(self._loaded())
        before, self._seen = self._seen, states_of({file for file, _ in loaded})
        changed = {file for file, state in loaded if self._seen[file] not in (state, self._found.get(file))}
        if any(before.get(file) != self._seen[file] for file in changed):
            return []
        self._found |= {file: self._seen[file] for file in changed}
        return sorted(changed)


def _state(path: Path) -> str:
    try:
        if path.is_dir():
            return " ".join(sorted(each.name for each in path.glob("*.py")))
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns} {found.st_size}"


@cache
def _is_own(file: str) -> bool:
    path = Path(file)
    foreign = _OTHERS.intersection(path.parts) or any(path.is_relative_to(folder) for folder in _foreign_folders())
    return path.suffix == ".py" and path.is_absolute() and not foreign


@cache
def _foreign_folders() -> set[str]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return {sysconfig.get_path(name) for name in names} | {str(Path(__file__).parent)}


def _files_of(error: BaseException | None) -> Iterator[str]:
    """The files in the tracebacks of the error and of the errors that caused it."""
    while error is not None:
        if isinstance(error, SyntaxError) and error.filename is not None:
            yield error.filename
        yield from _files_in(error.__traceback__)
        error = error.__cause__ or error.__context__


def _files_in(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
