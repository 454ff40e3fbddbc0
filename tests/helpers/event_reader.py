"""A process that appends the id of each event to a file, and continues after the last line of the file.

python -m tests.helpers.event_reader URL FILE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dibs


def main(url: str, file: str) -> None:
    """Read events until the process is killed."""
    lines = Path(file).read_bytes().splitlines()
    output = os.open(file, os.O_WRONLY | os.O_APPEND)
    for event in dibs.Dibs(url).events(after=int(lines[-1]) if lines else 0):
        os.write(output, b"%d\n" % event.id)  # one write, so that a kill leaves no half line


if __name__ == "__main__":
    main(*sys.argv[1:])
