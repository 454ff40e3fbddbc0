"""The guide to the HTTP API runs unchanged: its own server, its own keys, each request and the response beside it.

A block of shell is run in the shell of the block before it, in an empty folder; `dibs server` alone is the reader's
other terminal. The block of JSON that follows is the response: its status where the fence names one, and every field,
except for `"…": "…"`, which means omitted fields. Times and keys are compared by their format only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dibs.server.api import ENDPOINTS
from dibs.wire.errors import CODES
from tests.helpers.waiting import until

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guides/the-http-api.md"
WORKERS = ROOT / "docs/guides/workers-in-any-language.md"
SECURITY = ROOT / "docs/concepts/security.md"
PATH = re.compile(r"(?<=[`S ])(/(?:api|health|ready|metrics)[\w/{}.-]*)(…?)")
NAMED = re.compile(r"^(/api/(?:limits|queues)/)[\w-]+(?=$|/settings)")
FENCE = re.compile(r"^```(sh|json|text|python)(?: (\d+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
MORE = "…"
MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"), "<time>"),
    (re.compile(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d{6})? UTC"), "<time>"),
    (re.compile(r"dibs_[a-z2-7]{12}_[A-Za-z0-9]{43}"), "<key>"),
    (re.compile(r'(?<=")[a-z2-7]{12}(?=["/])'), "<key id>"),
)
PORT = "8787"
SERVER = "dibs server\n"


class Example(NamedTuple):
    """A command of the page, and the output that the page shows."""

    code: str
    kind: str | None = None
    status: str | None = None
    said: str = ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The reader's folder. Their curl tells the status of each answer on standard error."""
    (tmp_path / ".curlrc").write_text('write-out = "%{stderr}status %{http_code}\\n"\n', encoding="utf-8")
    return tmp_path


@pytest.fixture
def port() -> str:
    """A free port, in place of the usual one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_every_request_of_the_guide_gets_the_documented_response(folder: Path, port: str) -> None:
    if shutil.which("curl") is None and not os.environ.get("CI"):
        pytest.skip("curl is not installed")
    told = read(GUIDE)
    assert SERVER in [example.code for example in told]
    examples = [example for example in told if example.code != SERVER]
    with server(folder, port):
        run([example.code for example in examples], folder, port)
    differences = [difference(example, number, folder) for number, example in enumerate(examples)]
    assert "\n".join(filter(None, differences)) == ""


def test_the_check_finds_a_wrong_response() -> None:
    answer = {"task": {"id": 1, "created_at": "2030-01-31T08:00:00.000000Z"}, "deduplicated": False}
    assert fits(answer, {"task": {"id": 1, "created_at": "2029-12-31T08:00:00.000001Z"}, "deduplicated": False})
    assert fits(answer, {"task": {MORE: MORE}, "deduplicated": False})
    assert not fits(answer, {"task": {"id": 2, MORE: MORE}, "deduplicated": False})
    assert not fits(answer, {"task": {MORE: MORE}})
    assert not fits(answer, {"task": {"identity": 1, MORE: MORE}, "deduplicated": False})
    assert len(read(GUIDE)) >= 25
    assert len([example for example in read(GUIDE) if example.status]) >= 20


def test_the_python_of_the_guide_to_workers_runs(folder: Path, port: str) -> None:
    blocks = [block for kind, _, block in FENCE.findall(WORKERS.read_text(encoding="utf-8")) if kind == "python"]
    assert blocks
    with server(folder, port):
        minted = dibs("keys", "create", "page", "--scopes", "enqueue,work,read,admin", "--json", folder=folder)
        env = {**reader(folder), "DIBS_URL": f"http://127.0.0.1:{port}", "DIBS_API_KEY": json.loads(minted)["key"]}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
            cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_of_errors_has_every_code_with_its_status() -> None:
    table = re.findall(r"^\| (\d{3}) \| (`.*?) \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {code: int(status) for status, codes in table for code in re.findall(r"`(\w+)`", codes)}
    assert told == {code: about.status for code, about in CODES.items()}


@pytest.mark.parametrize("page", [GUIDE, WORKERS, SECURITY], ids=lambda page: page.name)
def test_a_path_named_on_a_page_exists(page: Path) -> None:
    exist = {re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path) for endpoint in ENDPOINTS}
    named = {path.rstrip("/.") for path, more in PATH.findall(page.read_text(encoding="utf-8")) if not more}
    assert {re.sub(r"/\d+", "/{id}", NAMED.sub(r"\1{name}", path)) for path in named} - exist == set()
    assert named


def read(page: Path) -> list[Example]:
    """The page's shell, each with the answer that follows it."""
    examples: list[Example] = []
    for kind, status, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == "sh":
            examples.append(Example(block))
        elif kind in ("json", "text") and examples and examples[-1].kind is None:
            examples[-1] = Example(examples[-1].code, kind, status or None, block)
    return examples


def run(blocks: list[str], folder: Path, port: str) -> None:
    """Run them one after the other in one shell; what each prints goes into files of its number."""
    parts = [f"{{\n{block}}} >{number}.out 2>{number}.err\n" for number, block in enumerate(blocks)]
    script = "".join(parts).replace(PORT, port)
    done = subprocess.run(
        ["bash", "-eu"], input=script, text=True, cwd=folder, env=reader(folder), check=False, timeout=100
    )
    ran = len(list(folder.glob("*.out")))
    assert (done.returncode, ran) == (0, len(blocks)), (blocks[ran - 1], (folder / f"{ran - 1}.err").read_text())


def difference(example: Example, number: int, folder: Path) -> str:
    """The difference between the answer and the page; empty if there is none."""
    answer, errors = ((folder / f"{number}.{end}").read_text(encoding="utf-8") for end in ("out", "err"))
    status = re.findall(r"^status (\d+)$", errors, re.MULTILINE)
    fine = example.status is None or status[-1:] == [example.status]
    if example.kind == "json":
        fine = fine and fits(json.loads(answer), json.loads(example.said))
    elif example.kind == "text":
        fine = fine and mask(answer).strip() == mask(example.said).strip()
    return "" if fine else f"{example.code}\n{status}\n{answer}"


def fits(answer: Any, said: Any) -> bool:
    """True if this is the answer that the page shows."""
    if isinstance(said, dict) and isinstance(answer, dict):
        named = said.keys() - {MORE}
        complete = named <= answer.keys() if MORE in said else named == answer.keys()
        return complete and all(fits(answer[name], said[name]) for name in named)
    if isinstance(said, list) and isinstance(answer, list):
        return len(said) == len(answer) and all(map(fits, answer, said))
    return mask(json.dumps(answer)) == mask(json.dumps(said))


def mask(text: str) -> str:
    """Without what is another each time."""
    for pattern, name in MASKS:
        text = pattern.sub(name, text)
    return text


def reader(folder: Path) -> dict[str, str]:
    """The environment of a reader with dibs installed, without the variables of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "HOME": str(folder), "CURL_HOME": str(folder)}


def dibs(*args: str, folder: Path) -> str:
    """The output of a command."""
    command = [sys.executable, "-m", "dibs", *args]
    return subprocess.run(command, cwd=folder, env=reader(folder), check=True, stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def server(folder: Path, port: str) -> Iterator[None]:
    """The reader's other terminal."""
    command = [sys.executable, "-m", "dibs", "server", "--port", port]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=reader(folder), stderr=log)
    try:
        until(lambda: _answers(port), 30)
        yield
        assert process.poll() is None, "the server has ended by itself"
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=30)
        print((folder / "server.log").read_text())
    assert code == 0


def _answers(port: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
