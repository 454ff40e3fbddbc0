"""The example examples/flask-app: its tests pass on each engine, and its command starts it."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from PIL import Image

from tests.environments import ROOT
from tests.helpers.waiting import until

EXAMPLE = ROOT / "examples" / "flask-app"


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DIBS_", "FLASK_", "PYTEST_"))}
    return {**kept, "PYTHONPATH": str(EXAMPLE), "PYTHONDONTWRITEBYTECODE": "1", **more}


def test_the_tests_of_the_example_pass(empty_url: str) -> None:
    options = [] if empty_url.startswith("sqlite") else ["--dibs-url", empty_url]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", *options]
    done = subprocess.run(command, cwd=EXAMPLE, env=environment(), capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_one_command_starts_the_example(empty_url: str, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    url = empty_url.replace("postgresql:", "postgresql+psycopg:")
    env = environment(PORT=port, DATABASE_URL=url)
    with (tmp_path / "log").open("w") as log:
        started = subprocess.Popen(
            [sys.executable, EXAMPLE / "gallery.py"], cwd=tmp_path, env=env, stdout=log, stderr=log
        )
    try:
        until(lambda: answers(port), timeout=30)
        upload(port)
        until(lambda: len(list((tmp_path / "outbox").glob("*.txt"))) == 1, timeout=30)
    finally:
        started.terminate()
        started.wait(30)
    assert "cat.png is ready" in next((tmp_path / "outbox").glob("*.txt")).read_text()


def answers(port: str) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/pictures/1/thumbnail", timeout=5)
    except urllib.error.HTTPError as error:
        return error.code == 404
    except OSError:
        return False
    return True


def upload(port: str) -> None:
    content = io.BytesIO()
    Image.new("RGB", (640, 480)).save(content, "PNG")
    parts = [
        b'--frame\r\nContent-Disposition: form-data; name="owner"\r\n\r\nann@example.org\r\n',
        b'--frame\r\nContent-Disposition: form-data; name="picture"; filename="cat.png"\r\n\r\n',
        content.getvalue(),
        b"\r\n--frame--\r\n",
    ]
    request = urllib.request.Request(f"http://127.0.0.1:{port}/pictures", b"".join(parts))
    request.add_header("Content-Type", "multipart/form-data; boundary=frame")
    assert urllib.request.urlopen(request, timeout=10).status == 201


def test_the_example_has_fewer_than_150_lines() -> None:
    assert len((EXAMPLE / "gallery.py").read_text().splitlines()) < 150
