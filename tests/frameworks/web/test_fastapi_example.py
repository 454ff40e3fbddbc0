"""The example examples/fastapi-app: its tests pass on each engine, and its command starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import httpx
from PIL import Image

from tests.environments import ROOT
from tests.helpers.uvicorn_process import RUNNING
from tests.helpers.waiting import until

EXAMPLE = ROOT / "examples" / "fastapi-app"


def environment(url: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DIBS_", "PYTEST_"))}
    of_sqlalchemy = url.replace("sqlite:", "sqlite+aiosqlite:").replace("postgresql:", "postgresql+psycopg:")
    return {**kept, "DATABASE_URL": of_sqlalchemy, "PYTHONDONTWRITEBYTECODE": "1", **more}


def test_the_tests_of_the_example_pass(empty_url: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=EXAMPLE, env=environment(empty_url), capture_output=True, text=True, check=False, timeout=100
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_one_command_starts_the_example(empty_url: str, tmp_path: Path) -> None:
    output = tmp_path / "log"
    with output.open("w") as log:
        started = subprocess.Popen(
            [sys.executable, EXAMPLE / "gallery.py"],
            cwd=tmp_path,
            env=environment(empty_url, PORT="0"),
            stdout=log,
            stderr=log,
        )
    try:
        address = until(lambda: RUNNING.search(output.read_text()))[1]
        content = BytesIO()
        Image.new("RGB", (640, 480)).save(content, "PNG")
        form = {"picture": ("cat.png", content.getvalue())}
        answer = httpx.post(f"{address}/pictures", data={"owner": "ann@example.org"}, files=form)
        assert answer.status_code == 201, answer.text
        mail = until(lambda: next((tmp_path / "outbox").glob("*.txt"), None))
        until(lambda: "cat.png is ready" in mail.read_text())
    finally:
        started.terminate()
        started.wait(30)


def test_the_example_has_fewer_than_150_lines() -> None:
    assert len((EXAMPLE / "gallery.py").read_text().splitlines()) < 150
