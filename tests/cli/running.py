"""`dibs` as a process of its own, and what it said."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.starting import start

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
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        env = environment(url, **env)
        with start("dibs", *args, stdin=given, stdout=out, stderr=err, cwd=cwd, env=env) as process:
            try:
                code = process.wait(60)
            finally:
                process.kill()
        out.seek(0)
        err.seek(0)
        return Done(code, out.read().decode(), err.read().decode())
