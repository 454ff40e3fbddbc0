"""Run the core of the suite on every other Python that is installed: `python -m tests.pythons`.

Each gets an environment of its own in .pythons/, made once and made again when a dependency changes. The whole suite
on another Python is `make clean test PYTHON=python3.13`.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from tests import environments
from tests.environments import ROOT

FOLDER = ROOT / ".pythons"
CORE = (
    "tests/unit",
    "tests/contract/test_claim.py",
    "tests/contract/test_finish.py",
    "tests/contract/test_joining.py",
    "tests/contract/test_values.py",
    "tests/worker/test_raising.py",
    "tests/worker/test_shutdown.py",
    "tests/cli/test_processes.py",
)
"""What depends on the Python: types and signatures, sqlite3, the clients, threads, loops and child processes."""

CHOSEN = "not postgres or test_claim or unit"
"""On PostgreSQL only the claims: enough to see that the driver works. The statements do not depend on the Python."""


def main() -> int:
    """0 if the core passes on each of them."""
    pythons = others()
    print(f"other Pythons: {', '.join(pythons) or 'none is installed'}", flush=True)
    with ThreadPoolExecutor(max(1, len(pythons))) as pool:
        codes = []
        for ended in as_completed([pool.submit(run, version, python) for version, python in pythons.items()]):
            code, output = ended.result()
            print(output, flush=True)
            codes.append(code)
    return max(codes, default=0)


def others() -> dict[str, str]:
    """Version -> program, for each installed Python apart from this one."""
    ours = "{}.{}".format(*sys.version_info)
    return {version: program for version, program in environments.found().items() if version != ours}


def run(version: str, program: str) -> tuple[int, str]:
    """The exit code of the core on that Python, and the output of pytest."""
    python = environments.make(FOLDER / version, program)
    options = ["-n", "2", "-q", "-p", "no:cacheprovider", "-k", CHOSEN]
    done = subprocess.run([python, "-m", "pytest", *options, *CORE], cwd=ROOT, check=False, **TOGETHER)
    return done.returncode, f"\n== Python {version}\n{done.stdout}"


TOGETHER: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
"""Output that is printed when the command has ended: the Pythons run at the same time."""


if __name__ == "__main__":
    sys.exit(main())
