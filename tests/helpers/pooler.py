"""PgBouncer in transaction mode before a real PostgreSQL: every transaction may run in another session."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
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


class Pooler:
    """All clients of `url` share this number of sessions."""

    def __init__(self, database: str, sessions: int = 2) -> None:
        parts = conninfo_to_dict(database)
        port = _free_port()
        self.url = f"postgresql://{parts.get('user') or 'postgres'}@127.0.0.1:{port}/{parts['dbname']}"
        self._folder = Path(tempfile.mkdtemp(prefix="dibs-pooler-"))
        self._folder.chmod(0o755)
        self._config = self._folder / "pgbouncer.ini"
        self._config.write_text(CONFIG.format(server=_server(parts), port=port, sessions=sessions))
        self._user = ("-u", _who_may_connect(parts)) if os.geteuid() == 0 else ()
        self.start()

    def start(self) -> None:
        """Until it answers."""
        with (self._folder / "log").open("ab") as log:
            command = ["pgbouncer", "-q", *self._user, self._config]
            self._process = subprocess.Popen(command, stderr=log, stdout=log)
        until(self._answers, 20)

    def kill(self) -> None:
        """kill -9: every connection ends without a word."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Pooler:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            with psycopg.connect(self.url, connect_timeout=2) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False


def _server(parts: dict[str, str | int | None]) -> str:
    known = {name: parts[name] for name in ("host", "port", "user", "password") if parts.get(name)}
    return " ".join(f"{name}={value}" for name, value in known.items())


def _who_may_connect(parts: dict[str, str | int | None]) -> str:
    """PgBouncer refuses to run as root; the owner of the folder of the server's socket can read it."""
    host = Path(str(parts.get("host") or ""))
    return pwd.getpwuid(host.stat().st_uid).pw_name if host.is_absolute() and host.stat().st_uid else "nobody"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
