"""Run a command several times in a row beside busy loops, until a run fails: `python -m tools.repeat --help`.

A test that depends on the speed of the machine passes most of the time. It fails sooner beside processes that
use the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

LOOP = "while True: pass"


def main() -> int:
    """Run the command until a run fails. Returns the exit code of the last run."""
    arguments = _arguments()
    with _busy_loops(arguments.busy):
        for run in range(1, arguments.runs + 1):
            began = time.monotonic()
            code = subprocess.run(arguments.command, check=False).returncode  # noqa: S603 - the command of the caller
            print(f"run {run} of {arguments.runs}: exit code {code} after {time.monotonic() - began:.0f} s", flush=True)
            if code:
                return code
    return 0


@contextlib.contextmanager
def _busy_loops(number: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(number)]  # noqa: S603 - ourselves
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a command several times in a row beside busy loops.")
    parser.add_argument("--runs", type=int, default=10, help="how often the command runs (10)")
    parser.add_argument("--busy", type=int, default=2, help="processes that keep a core busy meanwhile (2)")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
