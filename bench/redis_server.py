"""A Redis of our own, for the queues that need one: without persistence, as most run it, or with an fsync a write."""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any, ClassVar

import psutil
import redis

from bench.databases import Counts, Engine, require_settings

HOST = "127.0.0.1"
DATABASES = 4096
PATIENCE = 10.0


class Redis(Engine):
    """No persistence: a power cut loses everything. The fastest setting, and less durable than dibs."""

    name = "Redis, no persistence"
    has_dibs = False
    SETTINGS: ClassVar = {"save": "", "appendonly": "no", "appendfsync": "everysec"}

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="dibs-bench-redis-")
        self._numbers = itertools.count(1)
        self._port = _free_port()
        options = [word for name, value in self.SETTINGS.items() for word in (f"--{name}", value)]
        place = ["--bind", HOST, "--port", str(self._port), "--dir", self._folder.name, "--databases", str(DATABASES)]
        self._process = subprocess.Popen(  # noqa: S603 - the server
            [str(shutil.which("redis-server")), *place, *options], stdout=subprocess.DEVNULL
        )
        self._client = redis.Redis(HOST, self._port)
        self._wait()
        self.version = str(self._client.info("server")["redis_version"])
        require_settings(self.SETTINGS, {name: self._client.config_get(name)[name] for name in self.SETTINGS})

    def close(self) -> None:
        """See Engine."""
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()

    @property
    def processes(self) -> list[psutil.Process]:
        """See Engine."""
        return [psutil.Process(self._process.pid)]

    def count(self, url: str, sql: str) -> Counts:
        """See Engine: there is nothing to ask in SQL."""
        raise NotImplementedError

    def _new(self) -> str:
        return f"redis://{HOST}:{self._port}/{next(self._numbers)}"

    def _copy(self, url: str) -> str:
        copy = self._new()
        with redis.Redis.from_url(url) as client:
            for key in client.scan_iter():
                client.copy(key, key, destination_db=int(copy.rpartition("/")[2]))
        return copy

    def _drop(self, url: str) -> None:
        with redis.Redis.from_url(url) as client:
            client.flushdb()

    def _wait(self) -> None:
        patience = time.monotonic() + PATIENCE
        while True:
            try:
                self._client.ping()
            except redis.ConnectionError:
                if time.monotonic() > patience:
                    raise
                time.sleep(0.02)
            else:
                return


class DurableRedis(Redis):
    """A write is on the disk before it is answered: what SQLite and PostgreSQL do as well."""

    name = "Redis, fsync"
    kinds = ("drain", "enqueue", "mix")
    workers = (2,)
    SETTINGS: ClassVar = {"save": "", "appendonly": "yes", "appendfsync": "always"}


def has_redis() -> bool:
    """Whether a server is installed."""
    return shutil.which("redis-server") is not None


REDIS: dict[str, type[Any]] = {"redis": Redis, "redis-fsync": DurableRedis}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])
