"""The TypeScript client: its own tests and the example of its README, before a real server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.typescript import need_tools
from tests.server.conftest import Served

Node = Callable[..., str]


@pytest.fixture
def node(serve: Callable[..., Served], typescript_client: Callable[[], Path]) -> Node:
    """Runs node in the folder of the compiled client, with a server and keys; returns what it prints."""
    need_tools("The TypeScript client", "node", "npm")
    served, client = serve(keys=True, upkeep=True), typescript_client() / "clients/typescript"
    key, wrong = served.key("enqueue", "work", "read").key, "dibs_aaaaaaaaaaaa_" + "x" * 43
    env = {**os.environ, "DIBS_URL": served.url, "DIBS_API_KEY": key, "DIBS_WRONG_KEY": wrong}

    def run(*arguments: str) -> str:
        command = ["node", *arguments]
        ran = subprocess.run(command, cwd=client, env=env, capture_output=True, text=True, check=False, timeout=90)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def test_the_typescript_client_passes_its_own_tests(node: Node) -> None:
    assert "# fail 0" in node("--test", "--test-reporter=tap", "--test-timeout=30000", "dist/client.test.js")


def test_the_example_of_the_readme_of_the_typescript_client_runs(node: Node) -> None:
    assert "completed 800" in node("dist/readme_example.js").splitlines()
