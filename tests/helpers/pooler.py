"""PgBouncer in transaction mode before a real PostgreSQL: every transaction may run in another session."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.helpers.waiting import until

CONFIG = """
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 1000
server_login_retry = 0.1
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pooler(url: str, sessions: int = 2) -> Iterator[str]:
    """The URL at which the database is reached through so many sessions; all its clients share them."""
    parts = conninfo_to_dict(url)
    folder, port = Path(tempfile.mkdtemp(prefix="dibs-pooler-")), _free_port()
    folder.chmod(0o755)
    config = folder / "pgbouncer.ini"
    config.write_text(CONFIG.format(server=_server(parts), port=port, sessions=sessions))
    user = ("-u", _who_may_connect(parts)) if os.geteuid() == 0 else ()
    with (folder / "log").open("wb") as log, subprocess.Popen(["pgbouncer", *user, config], stderr=log) as process:
        try:
            place = f"postgresql://{parts.get('user', 'postgres')}@127.0.0.1:{port}/{parts['dbname']}"
            until(lambda: _answers(place, process), 20)
            yield place
        finally:
            process.kill()
    shutil.rmtree(folder)


def _server(parts: dict[str, str | int | None]) -> str:
    known = {name: parts[name] for name in ("host", "port", "user", "password") if parts.get(name)}
    return " ".join(f"{name}={value}" for name, value in known.items())


def _who_may_connect(parts: dict[str, str | int | None]) -> str:
    """It refuses to run as root; who owns the folder of the server's socket can read it."""
    host = Path(str(parts.get("host") or ""))
    return pwd.getpwuid(host.stat().st_uid).pw_name if host.is_absolute() and host.stat().st_uid else "nobody"


def _answers(place: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "pgbouncer ended"
    try:
        with psycopg.connect(place, connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
