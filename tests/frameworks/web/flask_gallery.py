"""A Flask application in the usual form: extensions at the top level of a module, and a factory. Processes of the tests
import it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import Flask, current_app
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import select

from dibs import BatchItem
from dibs.flask import FlaskDibs

db = SQLAlchemy()
dibs = FlaskDibs()
dibs.limit("measuring", max=5)
torn_down: list[BaseException | None] = []
"""What the functions of teardown_appcontext were called with."""


class Picture(db.Model):  # type: ignore[name-defined,misc]
    """A row of the user."""

    id = db.Column(db.Integer, primary_key=True)
    name = db.Column(db.String(50))
    gallery = db.Column(db.String(50))


def create_app(**config: Any) -> Flask:
    """The factory."""
    application = Flask(__name__)
    application.config["SQLALCHEMY_DATABASE_URI"] = os.environ.get("GALLERY_URL")
    application.config["GALLERY"] = "main"
    application.config.update(config)
    dibs.init_app(application)  # before the database: the store is found when it is used
    db.init_app(application)
    application.teardown_appcontext(torn_down.append)
    application.post("/pictures/<name>")(add)
    return application


def add(name: str) -> dict[str, int]:
    """Store a row and its task, both or neither."""
    picture = Picture(name=name)
    db.session.add(picture)
    db.session.flush()
    task = measure.on(db.session).enqueue(picture.id)
    if name == "broken":
        raise ValueError
    db.session.commit()
    return {"task": task.id, "picture": picture.id}


def _measure(picture: int) -> str:
    row = db.session.get(Picture, picture)
    row.gallery = current_app.config["GALLERY"]
    db.session.commit()
    return str(db.session.scalar(select(Picture.name).where(Picture.id == picture)))  # in a transaction, left open


@dibs.task(limits=["measuring"])
def measure(picture: int) -> str:
    """In a thread."""
    return _measure(picture)


@dibs.task
async def measure_on_loop(picture: int) -> str:
    """On an event loop."""
    return _measure(picture)


@dibs.task(lane="process")
def measure_in_child(picture: int) -> str:
    """In a child process, which has not called the factory."""
    return _measure(picture)


@dataclass
class Measurement:
    """The document of the batch handler."""

    picture: int


@dibs.batch_task(size=10)
def measure_batch(items: Sequence[BatchItem[Measurement]]) -> list[str]:
    """Many tasks in one call."""
    return [_measure(item.value.picture) for item in items]


@dibs.task(max_attempts=1)
def fail() -> None:
    """Raise."""
    raise LookupError(current_app.config["GALLERY"])
