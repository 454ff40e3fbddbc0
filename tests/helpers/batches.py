"""Batch handlers for worker processes and child processes, which import this module."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dibs

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url


@dataclass
class Document:
    """`does`: what the handler does with it. `folder`: where the handler notes that it has it."""

    title: str
    does: str = "index"
    folder: str = ""


Items = Sequence[dibs.BatchItem[Document]]


def indexed(items: Items) -> list[Any]:
    """The outcomes of a call: an ending for documents that ask for one, else the token and the size of the call."""
    endings: dict[str, Any] = {
        "fail": ValueError("no"),
        "retry": dibs.Retry(60),
        "snooze": dibs.Snooze(60),
        "give up": dibs.Permanent("never"),
        "cancel": dibs.Cancel(),
    }
    return [
        endings.get(item.value.does, {"token": item.ctx.token, "of": len(items), "pid": os.getpid()}) for item in items
    ]


def note(items: Items) -> None:
    """Note each item in its folder."""
    for item in items:
        if item.value.folder:
            (Path(item.value.folder) / f"{item.value.title}.{item.ctx.attempt}.began").write_text(str(len(items)))


def play(items: Items) -> Any:
    """Run a call of plain functions."""
    note(items)
    for item in items:
        if item.value.does == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if item.value.does == "raise":
            raise ValueError("all of them")
        while item.value.does == "stay" and not item.ctx.cancelled and not _go(item):
            time.sleep(0.005)
    return indexed(items)


def _go(item: dibs.BatchItem[Document]) -> bool:
    return (Path(item.value.folder) / "go").exists()


@app.batch_task(size=20, wait=0.05)
def index(items: Items) -> list[Any]:
    return play(items)  # type: ignore[no-any-return]


@app.batch_task(size=20, wait=0.05, lane="process", backoff=[0.01])
def index_apart(items: Items) -> list[Any]:
    return play(items)  # type: ignore[no-any-return]


@app.batch_task(size=20, wait=0.05, lane="process")
def unpackable_apart(items: Items) -> list[Any]:
    return [2**70 if item.value.does == "fail" else 1 for item in items]
