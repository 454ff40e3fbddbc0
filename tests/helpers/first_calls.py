"""Handlers whose first params are converted by many threads concurrently, as in a new worker: exits with status 0."""

from __future__ import annotations

import sys
import threading
from typing import Any

import dibs
from dibs.handlers.arguments import Arguments

THREADS, HANDLERS = 8, 150


def call_at_once(arguments: Arguments) -> None:
    together = threading.Barrier(THREADS)

    def call() -> None:
        together.wait()
        arguments.from_params({"name": "a", "seconds": 1.0}, None)  # type: ignore[arg-type]

    threads = [threading.Thread(target=call) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def a_handler() -> Arguments:
    def handler(
        ctx: dibs.Context, name: str, seconds: float = 0, more: list[dict[str, int]] | None = None, kind: Any = 1
    ) -> None: ...

    return Arguments("handler", handler)


if __name__ == "__main__":
    sys.setswitchinterval(1e-6)
    for _ in range(HANDLERS):
        call_at_once(a_handler())
