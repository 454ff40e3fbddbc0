"""Clocks that jump: libfaketime gives a process the real time plus an offset, which is read from a file each time.

The monotonic clock is not changed. With libfaketime 0.9.10 `time.sleep` of Python then fails (its clock_nanosleep uses
an absolute monotonic time as a faked one), so Python programs are run by this module, which sleeps in another way:
`python tests/stress/clocks.py python -m tests.stress.members …`.
"""

from __future__ import annotations

import runpy
import select
import shutil
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path

UNDER = (sys.executable, str(Path(__file__).resolve()))
"""The beginning of the command of a Python program whose clock is faked, in any folder."""

HOUR = 3600.0


class Clock:
    """A clock that some processes share. Its file is in a folder that any user can read."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="dibs-clock-"))
        folder.chmod(0o755)
        self._file = folder / "offset"
        self.turn(0)

    @property
    def env(self) -> dict[str, str]:
        """What processes with this clock have in their environment."""
        return {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._file.parent)

    def turn(self, seconds: float) -> None:
        """Set all clocks to this number of seconds beside the real time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.0f}\n", encoding="ascii")
        new.rename(self._file)  # no reader sees half of it


@lru_cache(maxsize=1)
def library() -> str:
    """Where Debian's `faketime` has it: the command itself knows."""
    command = ["faketime", "-m", "-f", "+0", "printenv", "LD_PRELOAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run_python(argv: list[str]) -> None:
    """Be `python -m module …`, with a sleep that works."""
    time.sleep = lambda seconds: select.select([], [], [], seconds) and None
    _, _, module, *arguments = argv
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_python(sys.argv[1:])
