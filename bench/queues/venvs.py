"""Every other queue has its own virtual environment, in `.bench/`, so that no queue decides the versions of another."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = Path(__file__).parent / "requirements"
NEWEST = 13
"""The newest Python 3 that is looked for where a queue needs a newer one than ours."""


class NotHere(Exception):
    """This machine lacks what a queue needs, so that it cannot be measured; nothing is wrong with it."""


def python_for(name: str, minimum: tuple[int, int]) -> Path:
    """The Python of the environment with exactly the required versions; it is made if that is not yet so."""
    home, wanted = ROOT / ".bench" / name, (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    made, python = home / "made-with.txt", home / "bin" / "python"
    if not made.exists() or made.read_text(encoding="utf-8") != wanted:
        _run(_find_python(minimum), "-m", "venv", "--clear", str(home))
        _run(str(python), "-m", "pip", "install", "-qq", "-r", str(REQUIREMENTS / f"{name}.txt"))
        made.write_text(wanted, encoding="utf-8")
    return python


def version_of(name: str, package: str, minimum: tuple[int, int]) -> str:
    """What is required, and so installed; with its Python, where that is not ours."""
    lines = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    version = next(line.partition("==")[2] for line in lines if line.startswith(f"{package}=="))
    if sys.version_info >= minimum:
        return version
    return f"{version} ({_answer(str(python_for(name, minimum)), '--version')})"


def _find_python(minimum: tuple[int, int]) -> str:
    if sys.version_info >= minimum:
        return sys.executable
    for minor in range(NEWEST, minimum[1] - 1, -1):
        for python in _pythons(f"3.{minor}"):
            return python
    raise NotHere(f"no Python {minimum[0]}.{minimum[1]} or newer on the PATH or in pyenv")


def _pythons(version: str) -> Iterator[str]:
    if (pyenv := shutil.which("pyenv")) and (prefix := _answer(pyenv, "prefix", version)):
        yield f"{prefix}/bin/python"
    if (found := shutil.which(f"python{version}")) and _answer(found, "--version"):  # a shim of pyenv may have none
        yield found


def _answer(*command: str) -> str:
    """The output of the command, empty if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Python, pyenv
    return done.stdout.strip() if done.returncode == 0 else ""


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Python and pip
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
