"""Virtual environments of tests that need another Python or other libraries than `.venv` has.

Each is made once, and made again when one of its requirements changes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The Pythons that dibs supports."""

LEFT_OUT = re.compile(
    r"ruff|mypy|pyright|import-linter|playwright|schemathesis|coverage|fastapi|sqlalchemy|aiosqlite|asyncpg|psycopg2|django"
)
"""Development tools that a part of the suite does without: the linters, the browser, the libraries of users."""


def found() -> dict[str, str]:
    """Version -> program, for each installed Python that dibs supports."""
    programs = {version: program_of(version) for version in VERSIONS}
    return {version: program for version, program in programs.items() if program is not None}


def program_of(version: str) -> str | None:
    """This Python, one on the PATH, or one of pyenv (whose own command of that name may refuse to start)."""
    if version == "{}.{}".format(*sys.version_info):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
    return next((each for each in candidates if each and starts(each, version)), None)


def starts(program: str, version: str) -> bool:
    """True if the program is that Python, with all that an environment needs."""
    command = [program, "-c", "import sqlite3, ssl, venv, sys; print(*sys.version_info[:2], sep='.')"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def make(folder: Path, program: str, *requirements: str) -> str:
    """The Python of an environment with dibs, the tools of the tests, and these requirements."""
    wanted = "\n".join((program, *requirements, *((ROOT / name).read_text() for name in FILES)))
    python, installed = str(folder / "bin" / "python"), folder / "installed"
    if not installed.exists() or installed.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([program, "-m", "venv", "--without-pip", str(folder)], cwd=ROOT, check=True)
        pinned = folder / "constraints.txt"
        pinned.write_text(_without((ROOT / "constraints.txt").read_text(), requirements))
        # The pip of this Python installs into the other: an environment with a pip of its own takes longer to make.
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--disable-pip-version-check"]
        constraints = ["-c", str(pinned), "--build-constraint", str(pinned)]
        everything = [*tools(), *requirements, "-e", ".[all]", *constraints]
        subprocess.run([*pip, "--no-compile", *everything], cwd=ROOT, check=True)
        installed.write_text(wanted)
    return python


FILES = ("pyproject.toml", "constraints.txt")
"""An environment is made again when one of them changes."""


def _without(constraints: str, requirements: Sequence[str]) -> str:
    """The constraints of other packages than those that are required in a version of their own."""
    own = {re.split(r"[^\w-]", each)[0].lower() for each in requirements}
    return "".join(line for line in constraints.splitlines(True) if line.partition("==")[0].lower() not in own)


def tools() -> list[str]:
    """The development tools without those that are left out."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return [each for each in groups["dev"] if not LEFT_OUT.match(each)]
