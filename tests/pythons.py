"""Run the core of the suite on every other Python that is installed: `python -m tests.pythons`.

Each gets an environment of its own in .pythons/, made once and made again when a dependency changes. The whole suite
on another Python is `make clean test PYTHON=python3.13`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".pythons"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
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
    others = found()
    print(f"other Pythons: {', '.join(others) or 'none is installed'}", flush=True)
    with ThreadPoolExecutor(max(1, len(others))) as pool:
        codes = []
        for ended in as_completed([pool.submit(run, version, python) for version, python in others.items()]):
            code, output = ended.result()
            print(output, flush=True)
            codes.append(code)
    return max(codes, default=0)


def found() -> dict[str, str]:
    """Version -> program, for each installed Python that dibs supports, apart from this one."""
    ours = "{}.{}".format(*sys.version_info)
    programs = {version: program_of(version) for version in VERSIONS if version != ours}
    return {version: program for version, program in programs.items() if program is not None}


def program_of(version: str) -> str | None:
    """On the PATH, or among those of pyenv (whose own command of that name may refuse to start)."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
    return next((each for each in candidates if each and starts(each, version)), None)


def starts(program: str, version: str) -> bool:
    """True if the program is that Python, with all that an environment needs."""
    command = [program, "-c", "import sqlite3, ssl, venv, sys; print(*sys.version_info[:2], sep='.')"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def run(version: str, program: str) -> tuple[int, str]:
    """The exit code of the core on that Python, and the output of pytest."""
    python = environment(version, program)
    options = ["-n", "2", "-q", "-p", "no:cacheprovider", "-k", CHOSEN]
    done = subprocess.run([python, "-m", "pytest", *options, *CORE], cwd=ROOT, check=False, **TOGETHER)
    return done.returncode, f"\n== Python {version}\n{done.stdout}"


TOGETHER: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
"""Output that is printed when the command has ended: the Pythons run at the same time."""


def environment(version: str, program: str) -> str:
    """The Python of an environment with dibs and the development tools."""
    folder, wanted = FOLDER / version, stamp(program)
    python, installed = str(folder / "bin" / "python"), folder / "installed"
    if not installed.exists() or installed.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([program, "-m", "venv", "--without-pip", str(folder)], cwd=ROOT, check=True)
        # The pip of this Python installs into the other: an environment with a pip of its own takes longer to make.
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--disable-pip-version-check"]
        constraints = ["-c", "constraints.txt", "--build-constraint", "constraints.txt"]
        subprocess.run([*pip, "--no-compile", *needed(), "-e", ".[all]", *constraints], cwd=ROOT, check=True)
        installed.write_text(wanted)
    return python


def stamp(program: str) -> str:
    """Changes when another Python or another dependency is to be installed."""
    return "\n".join((program, *((ROOT / name).read_text() for name in ("pyproject.toml", "constraints.txt"))))


def needed() -> list[str]:
    """What the core needs to be tested: the linters, the browser, Schemathesis and the libraries of users stay out."""
    import tomllib

    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    left_out = re.compile(
        r"ruff|mypy|import-linter|playwright|schemathesis|coverage|sqlalchemy|aiosqlite|asyncpg|psycopg2|django"
    )
    return [each for each in groups["dev"] if not left_out.match(each)]


if __name__ == "__main__":
    sys.exit(main())
