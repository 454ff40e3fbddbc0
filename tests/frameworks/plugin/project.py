"""Projects of users whose tests run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


class Project:
    """A folder with a program and its tests. `url`: what the tests find as DATABASE_URL."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        folder.mkdir()

    def write(self, **files: str) -> None:
        """Write Python files: `write(shop="import dibs")` is shop.py."""
        for name, content in files.items():
            (self._folder / f"{name}.py").write_text(textwrap.dedent(content), encoding="utf-8")

    def settings(self, content: str) -> None:
        """Write pytest.ini."""
        always = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
        (self._folder / "pytest.ini").write_text(always + textwrap.dedent(content), encoding="utf-8")

    def run(self, *options: str) -> str:
        """What pytest prints."""
        hidden = ("DIBS_", "PYTEST_", "COV_", "COVERAGE_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env={**env, "DATABASE_URL": self._url},
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=100,
        )
        return done.stdout

    @property
    def files(self) -> set[str]:
        """The names of the files in the folder that are no Python."""
        return {each.name for each in self._folder.iterdir() if each.is_file() and each.suffix not in (".py", ".ini")}
