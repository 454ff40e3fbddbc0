"""Both type checkers accept the good programs, and refuse exactly the marked lines of the bad ones.

mypy runs with --strict; the good programs ask pyright for its strict mode.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARK = "# refused"

Refused = set[tuple[str, int]]
"""The lines with an error: the file's path below this folder, and the number of the line."""


@cache
def mypy() -> Refused:
    """The lines that mypy --strict refuses. Both folders have files with the same names, so each is checked apart."""
    return {line for folder in ("good", "bad") for line in _mypy(HERE / folder)}


def _mypy(folder: Path) -> Refused:
    cache_dir = ROOT / ".mypy_cache" / "typing"
    options = ["--config-file=", "--strict", "--output=json", f"--cache-dir={cache_dir}"]
    output = _run("mypy", *options, *map(str, sorted(folder.glob("*.py"))))
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {(_name(each["file"]), each["line"]) for each in found if each["severity"] == "error"}


@cache
def pyright() -> Refused:
    """The lines that pyright refuses."""
    if shutil.which("node") is None:  # without it, pyright would download one
        pytest.skip("pyright needs Node.js")
    found = json.loads(_run("pyright", "--outputjson", "--pythonpath", sys.executable, str(HERE)))
    errors = [each for each in found["generalDiagnostics"] if each["severity"] == "error"]
    return {(_name(each["file"]), each["range"]["start"]["line"] + 1) for each in errors}


CHECKERS = [mypy, pyright]


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.timeout(300)
def test_good_programs_pass(checker: Callable[[], Refused]) -> None:
    assert sorted(line for line in checker() if line[0].startswith("good/")) == []


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.timeout(300)
def test_each_marked_line_of_a_bad_program_is_refused_and_no_other(checker: Callable[[], Refused]) -> None:
    marked = {
        (f"bad/{program.name}", number)
        for program in (HERE / "bad").glob("*.py")
        for number, line in enumerate(program.read_text(encoding="utf-8").splitlines(), 1)
        if MARK in line
    }
    assert len(marked) > 20
    refused = {line for line in checker() if line[0].startswith("bad/")}
    assert sorted(refused - marked) == [], "refused without a mark"
    assert sorted(marked - refused) == [], "marked, but not refused"


def _run(checker: str, *args: str) -> str:
    command = [sys.executable, "-m", checker, *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr  # 1: it has refused lines
    return done.stdout


def _name(path: str) -> str:
    return (ROOT / path).relative_to(HERE).as_posix()
