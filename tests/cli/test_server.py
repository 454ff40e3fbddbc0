"""`dibs server`: its messages at the start, and its refusals."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from tests.cli.running import COMMAND, environment, run_dibs
from tests.helpers.servers import server_process
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import until

KEY_COMMAND = "dibs keys create NAME --scopes enqueue,work,read,admin"

unix = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port in use."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@unix
def test_the_server_prints_its_address_its_pages_and_its_store(url: str, tmp_path: Path) -> None:
    with server_process(url, tmp_path) as process:
        assert f'"listening on http://127.0.0.1:{process.port}"' in process.log
        assert (
            f"documented at http://127.0.0.1:{process.port}/api/docs; the store is {url.partition('?')[0]}"
            in process.log
        )
        process.terminate()
        assert process.ends() == 0
    entries = [json.loads(line) for line in process.log.splitlines()]
    assert {"server.started", "server.stop_requested"} <= {entry.get("event") for entry in entries}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z", entry["time"]) for entry in entries)
    assert {entry["logger"].partition(".")[0] for entry in entries} == {"dibs"}


@unix
@pytest.mark.parametrize("engine", ["sqlite"])
def test_the_log_format_text_can_be_chosen_without_a_terminal(url: str, tmp_path: Path) -> None:
    with server_process(url, tmp_path, "--log-format", "human") as process:
        process.terminate()
        assert process.ends() == 0
    entries = process.log.splitlines()
    assert len(entries) >= 3
    assert [line for line in entries if not re.match(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z [A-Z]+ +dibs\.\w+: ", line)] == []


@unix
def test_the_server_creates_the_database_and_prints_the_command_for_the_first_key(tmp_path: Path) -> None:
    with server_process("sqlite:///dibs.db", tmp_path) as process, process.connect() as connection:
        assert process.log.count(f'every request is refused; create one: {KEY_COMMAND}"') == 1
        assert connection.ask("GET", "/api/stats").status == 401
        words = KEY_COMMAND.replace("NAME", "me").split()[1:]
        key = run_dibs(*words, "--rate-limit", "none", cwd=tmp_path).out.strip()
        until(lambda: connection.ask("GET", "/api/stats", X_API_Key=key).status == 200)
    with server_process("sqlite:///dibs.db", tmp_path) as process:
        assert "keys create" not in process.log


@unix
def test_the_command_for_the_first_key_names_the_store(url: str, tmp_path: Path) -> None:
    with server_process(url, tmp_path) as process:
        told = until(lambda: re.search(rf"{KEY_COMMAND} --url ([^\s\"]+)", process.log))
        assert told[1].strip("'") == url.partition("?")[0]


@unix
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_server_with_only_revoked_keys_prints_the_command_for_the_first_key(
    url: str, client: dibs.Dibs, tmp_path: Path
) -> None:
    client.revoke_key(client.create_key("old", ["read"]).about.id)
    with server_process(url, tmp_path) as process:
        assert KEY_COMMAND in process.log


@unix
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_server_beyond_loopback_without_keys_warns_that_every_request_is_refused(url: str, tmp_path: Path) -> None:
    with server_process(url, tmp_path, "--host", "0.0.0.0") as process:
        assert '"level":"warning","logger":"dibs.server","message":"there is no API key yet' in process.log
        assert "every request to http://127.0.0.1:" in process.log
        with process.connect() as connection:
            assert connection.ask("GET", "/api/stats").status == 401


@unix
@pytest.mark.parametrize("engine", ["sqlite"])
def test_with_the_option_no_keys_every_local_request_is_accepted(url: str, tmp_path: Path) -> None:
    with server_process(url, tmp_path, "--no-keys") as process, process.connect() as connection:
        assert connection.ask("POST", "/api/tasks", {"task_type": "resize"}).status == 201
        assert KEY_COMMAND not in process.log


@unix
@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_the_server_listens_on_the_given_address(url: str, tmp_path: Path, host: str) -> None:
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with server_process(url, tmp_path, "--no-keys", "--host", host) as process, process.connect() as connection:
        assert connection.ask("POST", "/api/tasks", {"task_type": "resize"}).status == 201
        assert process.url in process.log


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@unix
@pytest.mark.parametrize("engine", ["sqlite"])
def test_the_access_log_can_be_switched_off(url: str, tmp_path: Path) -> None:
    with server_process(url, tmp_path, "--no-keys") as process, process.connect() as connection:
        assert connection.ask("GET", "/api/tasks?limit=3").status == 200
        until(lambda: re.search(r'"127\.0\.0\.1 GET /api/tasks 200 \d+\.\d ms"', process.log))
        [entry] = [json.loads(line) for line in process.log.splitlines() if "dibs.access" in line and "tasks" in line]
        assert entry.pop("seconds") < 10
        said = {
            "event": "request.answered",
            "client": "127.0.0.1",
            "method": "GET",
            "path": "/api/tasks",
            "status": 200,
        }
        assert said.items() <= entry.items()
    with server_process(url, tmp_path, "--no-keys", "--no-access-log") as process, process.connect() as connection:
        assert connection.ask("GET", "/api/tasks").status == 200
        process.terminate()
        assert process.ends() == 0
        assert "dibs.access" not in process.log


@unix
@pytest.mark.parametrize("engine", ["sqlite"])
def test_options_apply_to_each_of_several_server_processes(url: str, tmp_path: Path) -> None:
    options = ["--no-keys", "--processes", "2", "--allowed-host", "dibs.example.com", "--trust-proxy", "127.0.0.0/8"]
    with server_process(url, tmp_path, *options, "--grace", "7") as process:
        assert f"listening on {process.url} with 2 processes" in process.log
        until(lambda: len(process.voices()) == 2, 60)
        for _ in range(10):
            with process.connect() as connection:
                connection.send(
                    b"GET /api/stats HTTP/1.1\r\nHost: dibs.example.com\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n"
                )
                assert connection.hear().status == 200
        until(lambda: process.log.count("203.0.113.7 GET /api/stats 200") == 10)
        process.terminate()
        assert process.ends() == 0
        assert process.log.count("stopping; open requests have 7 s to end") == 2


@unix
@pytest.mark.parametrize("engine", ["postgres"])
def test_the_server_never_shows_the_password_of_the_store(url: str, tmp_path: Path) -> None:
    secret = url.replace("postgres@", "postgres:hush-hush@")
    with server_process(secret, tmp_path, "--processes", "2") as process:
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
        assert "hush" not in process.log
        assert "hush" not in shown


@unix
@pytest.mark.parametrize("engine", ["sqlite"])
def test_on_a_terminal_ctrl_c_ends_the_server_with_0(url: str, tmp_path: Path) -> None:
    with Terminal("server", "--no-keys", "--port", "0", "--url", url, columns=140) as terminal:
        terminal.shows(r"INFO +listening on http://127.0.0.1:\d+", 30)
        terminal.interrupt()
        assert terminal.ends() == 0
        assert "stopping" in terminal.text
        assert "Traceback" not in terminal.raw


# Refused before anything begins


def test_a_port_in_use_is_reported_and_the_database_is_not_created(tmp_path: Path, taken: int) -> None:
    for more in ([], ["--processes", "2"]):
        done = run_dibs("server", "--port", str(taken), *more, cwd=tmp_path)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"error: The server cannot listen on 127.0.0.1 port {taken}: it is in use.\nhint: ")
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_reported_as_json(tmp_path: Path, taken: int) -> None:
    done = run_dibs("server", "--port", str(taken), "--json", cwd=tmp_path)
    assert (done.code, done.json["success"], done.json["code"]) == (1, False, "cannot_listen")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--host", "0.0.0.0", "--no-keys"], "A server without keys on 0.0.0.0 would accept every request."),
        (["--host", "192.0.2.1", "--no-keys"], "A server without keys on 192.0.2.1 would accept every request."),
        (["--url", "http://localhost:8787"], "http://localhost:8787 is a server; a server needs a database."),
        (["--url", "https://u:p@host/"], "https://u@host/ is a server; a server needs a database."),
        (["--url", "mysql://localhost/x"], "'mysql://localhost/x' is not the URL of a store."),
        (["--port", "70000"], "70000 is not a valid port."),
        (["--grace", "-1"], "-1.0 is not a valid grace."),
        (["--allowed-host", "https://x"], "'https://x' is not a valid host name."),
        (["--trust-proxy", "everybody"], "'everybody' is not a valid address of a proxy."),
        (["--log-level", "loud"], "'loud' is not a log level."),
        (["--processes", "0"], "Invalid value for '--processes'"),
        (["--host", "no.such.host.invalid"], "The host 'no.such.host.invalid' cannot be resolved"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_invalid_options_of_the_server_are_wrong_usage(tmp_path: Path, options: list[str], error: str) -> None:
    done = run_dibs("server", *(["--port", "0"] if "--port" not in options else []), *options, cwd=tmp_path)
    assert done.code == 2
    assert done.err.startswith(f"error: {error}")
    assert "hint: " in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_machine_cannot_be_listened_on(tmp_path: Path) -> None:
    done = run_dibs("server", "--host", "192.0.2.1", cwd=tmp_path)
    assert done.code == 1
    assert "this machine has no such address" in done.err


def test_a_server_whose_store_cannot_be_reached_reports_it_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import dibs.store.postgres.store as s; s.POOL_TIMEOUT = 1")  # not 30 s
    for more in ([], ["--processes", "2"]):
        url = ["--url", "postgresql://x@127.0.0.1:1/x"]
        done = run_dibs("server", "--port", "0", *url, *more, cwd=tmp_path, PYTHONPATH=str(tmp_path))
        assert done.code == 3
        assert done.err.splitlines()[-2].startswith("error: ")
        assert "Traceback" not in done.err


@pytest.mark.parametrize("missing", ["uvicorn", "starlette", "httptools"])
def test_without_the_server_extra_the_error_names_the_extra_to_install(tmp_path: Path, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; sys.argv[0] = 'dibs'; from dibs.cli import main; main()"
    done = subprocess.run(
        [COMMAND[0], "-c", code, "server", "--port", "0"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "hint: pip install 'dibs[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_refuses_the_url_of_another_server_from_the_environment(
    tmp_path: Path,
) -> None:
    done = run_dibs("server", url="http://localhost:1", cwd=tmp_path)
    assert (done.code, "a server needs a database" in done.err) == (2, True)
