"""The files of a test run are kept in memory if there is room: thousands of small databases would wait for a disk.

No test proves less because of that. The writes of a killed process survive in memory as on a disk; that fsync is
called, and what happens when it fails, is tested at the system call.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PLACE = Path("/dev/shm")
ROOM = 8 * 2**30
"""Bytes that must be free: the largest databases of the whole suite take a quarter of that."""


def keep_files_there() -> None:
    """Let temporary files of this process, and of those it starts, be made in memory; TMPDIR, if it is set, wins."""
    if "TMPDIR" not in os.environ and PLACE.is_dir() and shutil.disk_usage(PLACE).free > ROOM:
        os.environ["TMPDIR"] = str(PLACE)
        tempfile.tempdir = None  # it is looked up anew
