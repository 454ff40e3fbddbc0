"""Run the tests of the integrations in environments of their own: `python -m tests.frameworks [NAME ...]`.

Options of pytest follow `--`: `python -m tests.frameworks web -- -k flask -x`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

from tests import environments
from tests.environments import ROOT

FOLDER = ROOT / ".frameworks"


class Environment(NamedTuple):
    """A virtual environment and the tests that run in it. `oldest`: the oldest Python of its libraries."""

    name: str
    oldest: str
    requirements: tuple[str, ...]
    tests: tuple[str, ...]


DJANGO = ("tests/frameworks/django", "tests/frameworks/outside")
ENVIRONMENTS = (
    Environment("django-5.2", "3.11", ("django>=5.2,<5.3", "django-tasks>=0.12", "pillow>=11"), DJANGO),
    Environment("django-6", "3.12", ("django>=6", "pillow>=11"), DJANGO),
    Environment(
        "web",
        "3.11",
        (
            *("fastapi>=0.115", "python-multipart>=0.0.20", "flask>=3.1", "flask-sqlalchemy>=3.1", "gunicorn>=23"),
            *("sqlalchemy[asyncio]>=2.0", "aiosqlite>=0.20", "pillow>=11"),
            *("django>=5.2,<6", "django-tasks>=0.12", "pytest-asyncio>=1.0", "pytest-django>=4.9"),
        ),
        ("tests/frameworks/web", "tests/frameworks/plugin"),
    ),
)


def main(arguments: list[str]) -> int:
    """0 if all tests pass. An environment whose Python is not installed is named, and left out."""
    names, options = _split(arguments)
    chosen = [each for each in ENVIRONMENTS if not names or each.name in names]
    if unknown := set(names) - {each.name for each in ENVIRONMENTS}:
        sys.exit(f"no environment {', '.join(sorted(unknown))}: there are {', '.join(e.name for e in ENVIRONMENTS)}")
    codes = []
    with ThreadPoolExecutor(2) as pool:
        for ended in as_completed([pool.submit(run, each, options) for each in chosen]):
            code, output = ended.result()
            print(output, flush=True)
            codes.append(code)
    return max(codes, default=0)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Names of environments, and the options of pytest."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def run(environment: Environment, options: list[str]) -> tuple[int, str]:
    """The exit code of the tests, and what pytest printed."""
    program = _python_for(environment)
    if program is None:
        return 0, f"\n== {environment.name}: left out, no Python {environment.oldest} or newer is installed"
    begun = time.monotonic()
    python = environments.make(FOLDER / environment.name, program, *environment.requirements)
    # pytest-asyncio is there for the tests that the tests start, and warns where it has no settings.
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--suite", "proof"]
    command += [*options, *environment.tests]
    done = subprocess.run(
        command,
        cwd=ROOT,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "DIBS_TEST_FRAMEWORK": environment.name, "DIBS_TEST_PIP": sys.executable},
    )
    took = time.monotonic() - begun
    return done.returncode, f"\n== {environment.name}, in {took:.0f} s\n{done.stdout}"


def _python_for(environment: Environment) -> str | None:
    """This Python if it is new enough, else the oldest of those that are."""
    found = {version: program for version, program in environments.found().items() if _at_least(version, environment)}
    return found.get("{}.{}".format(*sys.version_info)) or next(iter(found.values()), None)


def _at_least(version: str, environment: Environment) -> bool:
    return tuple(map(int, version.split("."))) >= tuple(map(int, environment.oldest.split(".")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
