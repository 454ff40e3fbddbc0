"""The web application of the guide on async applications runs in Starlette and in FastAPI, and keeps their state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_examples import BLOCK, FILE
from tests.helpers.release_warning import without_caution

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "async-applications.md"

USE = """
import warnings
warnings.filterwarnings("ignore", message="Using `httpx`")  # how the test client speaks to the application

from starlette.testclient import TestClient
from {module} import web

web.state.greeting = "hello"  # the program's own state, set before the application starts

with TestClient(web) as client:
    assert client.get("/health").json() == {{"running": True}}
    answer = client.post("/orders/18")
    assert answer.status_code == 202, answer.text
    task = answer.json()["task"]
    result = client.get(f"/orders/{{task}}/result")
    assert result.json() == {{"result": "order 18 is on its way"}}, result.text
    assert web.state.greeting == "hello"
    worker = web.state.worker
    assert worker.health.running
assert not worker.health.running
"""


@pytest.mark.parametrize("module", ["web", "api"], ids=["starlette", "fastapi"])
def test_the_web_application_of_the_guide_runs_with_its_state(module: str, tmp_path: Path) -> None:
    for block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if named := FILE.match(block):
            (tmp_path / named[1]).write_text(block)
    command = [sys.executable, "-c", USE.format(module=module)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, without_caution(done.stderr)) == (0, "")
