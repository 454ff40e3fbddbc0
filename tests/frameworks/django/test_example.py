"""The example application with Django: its own tests, and the application with its worker, started by one command."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import urllib.error
import urllib.request
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from psycopg.conninfo import conninfo_to_dict

import dibs
from tests.environments import ROOT
from tests.frameworks.django.running import Project, answers, free_port
from tests.helpers.waiting import until

EXAMPLE = ROOT / "examples" / "django-app"
BOUNDARY = "----dibs"


@pytest.fixture
def example(engine: str, empty_url: str, tmp_path: Path) -> Project:
    """A copy of the example, on a database of the engine."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    if engine == "sqlite":
        return Project(folder, f"sqlite:///{folder}/gallery.sqlite3")
    given = conninfo_to_dict(empty_url)
    names = {"dbname": "PGDATABASE", "host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    return Project(folder, empty_url, **{names[key]: str(value) for key, value in given.items() if key in names})


def picture() -> bytes:
    content = BytesIO()
    Image.new("RGB", (640, 480), "orange").save(content, "PNG")
    return content.getvalue()


def upload(port: int) -> Any:
    """The answer to an upload, as `curl -F` sends it."""
    form = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="owner"\r\n\r\nann@example.org\r\n'
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="picture"; filename="cat.png"\r\n'
        "Content-Type: image/png\r\n\r\n"
    ).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/pictures",
        form + picture() + f"\r\n--{BOUNDARY}--\r\n".encode(),
        {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_the_tests_of_the_example_pass(example: Project) -> None:
    assert "Ran 4 tests" in example.manage("test")


def test_one_command_starts_the_application_and_its_worker(example: Project) -> None:
    port = free_port()
    example.environment["PORT"] = str(port)
    with example:
        started = example.start(sys.executable, "start.py")
        until(lambda: answers(port), 60)
        uploaded = upload(port)
        with dibs.Dibs(example.store, migrate=False) as app:
            app.wait(uploaded["task"], timeout=30)
            until(lambda: [mail.read_text() for mail in (example.folder / "outbox").glob("*.txt")])
            until(lambda: [each.name for each in app.schedules()] == ["nightly_report"])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/pictures/{uploaded['id']}/thumbnail") as answer:
            assert Image.open(BytesIO(answer.read())).size == (128, 96)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/pictures/99/thumbnail", timeout=30)
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == 0
    [mail] = (example.folder / "outbox").glob("*.txt")
    assert mail.read_text() == "To: ann@example.org\n\nThe thumbnail of cat.png is ready.\n"


def test_the_example_has_less_than_150_lines() -> None:
    files = [each for each in EXAMPLE.rglob("*.py") if each.name != "tests.py" and "migrations" not in each.parts]
    assert sum(len(each.read_text().splitlines()) for each in files) < 150
