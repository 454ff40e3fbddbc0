"""`dibs` as a process of its own, and what it said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "dibs"]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


Run = Callable[..., Done]


def environment(url: str | None = None, **more: str) -> dict[str, str]:
    """This process's environment, with the store and nothing that changes how text looks."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DIBS_URL", "COLUMNS", "FORCE_COLOR")}
    return {**kept, **({"DIBS_URL": url} if url else {}), **more}


def run_dibs(*args: str, url: str | None = None, cwd: Path | None = None, stdin: str = "", **env: str) -> Done:
    """Run the command to its end."""
    done = subprocess.run(
        [*COMMAND, *args],
        input=stdin.encode(),
        capture_output=True,
        cwd=cwd,
        env=environment(url, **env),
        check=False,
        timeout=60,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
