"""The progress of a wait for many tasks: a bar on a terminal, one line elsewhere, and rich only where it is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses a pseudo-terminal")

SCRIPT = """
import sys
import dibs

app = dibs.Dibs(sys.argv[1])
work = app.task(name="work")(lambda number: number)
tasks = work.map(range(4))
for claim in app.claim_many("w", 4):
    if claim.task.params["number"] == 3:
        app.fail(claim, "broken", permanent=True)
    else:
        app.complete(claim)
tasks.wait(30, progress=len(sys.argv) > 2)
print("rich" in sys.modules)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return [sys.executable, "-W", "ignore", str(script), f"sqlite:///{tmp_path}/dibs.db"]


def test_a_terminal_shows_a_bar_with_the_rate_and_the_failures(command: list[str]) -> None:
    terminal = pexpect.spawn(command[0], [*command[1:], "bar"], encoding="utf-8", timeout=30, dimensions=(24, 100))
    terminal.expect(r"4/4.*\d/s, 1 failed")
    terminal.expect("True")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_a_pipe_gets_one_line_without_control_codes_and_no_rich(command: list[str]) -> None:
    done = subprocess.run([*command, "bar"], capture_output=True, text=True, timeout=60, check=True)
    lines = [line for line in done.stderr.splitlines() if "SQLite" not in line]
    assert len(lines) == 1, done.stderr
    assert re.fullmatch(r"4 of 4 tasks finished, [\d,]+/s, 1 failed", lines[0])
    assert done.stdout == "False\n"


def test_without_progress_nothing_is_written(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [line for line in done.stderr.splitlines() if "SQLite" not in line] == []
