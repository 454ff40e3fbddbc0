"""A picture gallery: uploads, thumbnails made by a worker, mails, and a nightly report.

`python gallery.py` starts the web application with a worker inside.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from flask import Blueprint, Flask, abort, current_app, request, send_file
from flask_sqlalchemy import SQLAlchemy
from PIL import Image, UnidentifiedImageError
from sqlalchemy import func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dibs import Context
from dibs.flask import FlaskDibs


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)
dibs = FlaskDibs()
pages = Blueprint("pages", __name__)


class Picture(db.Model):
    __tablename__ = "picture"

    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str]
    name: Mapped[str]
    content: Mapped[bytes]
    thumbnail: Mapped[bytes | None]
    uploaded_at: Mapped[datetime] = mapped_column(server_default=func.current_timestamp())


def create_app(**config: Any) -> Flask:
    application = Flask(__name__)
    url = os.environ.get("DATABASE_URL", f"sqlite:///{Path.cwd() / 'gallery.db'}")
    application.config.update({"SQLALCHEMY_DATABASE_URI": url, "OUTBOX": "outbox", **config})
    db.init_app(application)
    dibs.init_app(application)  # the tasks are in the same database
    application.register_blueprint(pages)
    with application.app_context():
        db.create_all()
        dibs.migrate()
    return application


@pages.post("/pictures")
def upload() -> tuple[dict[str, int], int]:
    file = request.files["picture"]
    picture = Picture(owner=request.form["owner"], name=file.filename or "picture", content=file.read())
    db.session.add(picture)
    db.session.flush()
    task = make_thumbnail.on(db.session).enqueue(picture.id)
    db.session.commit()  # the row and its task, both or neither
    return {"id": picture.id, "task": task.id}, 201


@pages.get("/pictures/<int:picture_id>/thumbnail")
def thumbnail(picture_id: int) -> Any:
    picture = db.session.get(Picture, picture_id)
    if picture is None or picture.thumbnail is None:
        abort(404)
    return send_file(BytesIO(picture.thumbnail), "image/png")


@dibs.task(max_attempts=3, give_up_on=UnidentifiedImageError)
def make_thumbnail(picture_id: int) -> None:
    picture = db.session.get_one(Picture, picture_id)
    small = BytesIO()
    with Image.open(BytesIO(picture.content)) as image:
        image.thumbnail((128, 128))
        image.save(small, "PNG")
    picture.thumbnail = small.getvalue()
    send_mail.on(db.session).enqueue(picture.owner, f"The thumbnail of {picture.name} is ready.")
    db.session.commit()  # the thumbnail and the mail, both or neither


@dibs.task
def send_mail(ctx: Context, to: str, text: str) -> None:
    outbox = Path(current_app.config["OUTBOX"])
    outbox.mkdir(exist_ok=True)
    mail = outbox / f"{ctx.task.id}.txt"  # a second attempt writes the same file
    mail.write_text(f"To: {to}\n\n{text}\n", encoding="utf-8")


@dibs.task(schedule="55 23 * * *", timezone="UTC")
def nightly_report() -> int:
    begin = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    count = db.session.scalar(select(func.count()).select_from(Picture).where(Picture.uploaded_at > begin)) or 0
    send_mail.enqueue("admin@example.org", f"{count} pictures were uploaded today.")
    return count


if __name__ == "__main__":
    application = create_app()
    with dibs.worker():
        application.run(port=int(os.environ.get("PORT", "5000")))
