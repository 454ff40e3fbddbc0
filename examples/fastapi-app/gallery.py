"""A picture gallery: uploads, thumbnails made by a worker, mails, and a nightly report.

`python gallery.py` starts the web application with a worker inside, and the dashboard of its tasks at /queue.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Form, HTTPException, Response, UploadFile
from PIL import Image, UnidentifiedImageError
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import dibs.asgi

URL = os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///gallery.db")
OUTBOX = Path(os.environ.get("OUTBOX", "outbox"))

engine = create_async_engine(URL)
sessions = async_sessionmaker(engine, expire_on_commit=False)
queue = dibs.AsyncDibs(re.sub(r"\+\w+", "", URL))  # the tasks are in the same database


class Base(DeclarativeBase):
    pass


class Picture(Base):
    __tablename__ = "picture"

    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str]
    name: Mapped[str]
    content: Mapped[bytes]
    thumbnail: Mapped[bytes | None]
    uploaded_at: Mapped[datetime] = mapped_column(server_default=func.current_timestamp())


@asynccontextmanager
async def database(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


async def session() -> AsyncIterator[AsyncSession]:
    async with sessions() as opened:
        yield opened


Database = Annotated[AsyncSession, Depends(session)]

web = FastAPI(lifespan=dibs.asgi.lifespan(queue, worker=True, around=database))
web.mount("/queue", dibs.asgi.server(queue))


@web.post("/pictures", status_code=201)
async def upload(owner: Annotated[str, Form()], picture: UploadFile, session: Database) -> dict[str, int]:
    stored = Picture(owner=owner, name=picture.filename or "picture", content=await picture.read())
    session.add(stored)
    await session.flush()
    task = await make_thumbnail.on(session).enqueue(stored.id)
    await session.commit()  # the row and its task, both or neither
    return {"id": stored.id, "task": task.id}


@web.get("/pictures/{picture_id}/thumbnail")
async def thumbnail(picture_id: int, session: Database) -> Response:
    picture = await session.get(Picture, picture_id)
    if picture is None or picture.thumbnail is None:
        raise HTTPException(404)
    return Response(picture.thumbnail, media_type="image/png")


@queue.task(max_attempts=3, give_up_on=UnidentifiedImageError)
async def make_thumbnail(picture_id: int) -> None:
    async with sessions() as session:
        picture = await session.get_one(Picture, picture_id)
        picture.thumbnail = await asyncio.to_thread(shrink, picture.content)
        await send_mail.on(session).enqueue(picture.owner, f"The thumbnail of {picture.name} is ready.")
        await session.commit()  # the thumbnail and the mail, both or neither


def shrink(content: bytes) -> bytes:
    small = BytesIO()
    with Image.open(BytesIO(content)) as image:
        image.thumbnail((128, 128))
        image.save(small, "PNG")
    return small.getvalue()


@queue.task
def send_mail(ctx: dibs.Context, to: str, text: str) -> None:
    OUTBOX.mkdir(exist_ok=True)
    mail = OUTBOX / f"{ctx.task.id}.txt"  # a second attempt writes the same file
    mail.write_text(f"To: {to}\n\n{text}\n", encoding="utf-8")


@queue.task(schedule="55 23 * * *", timezone="UTC")
async def nightly_report() -> int:
    begin = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    async with sessions() as session:
        pictures = select(func.count()).select_from(Picture).where(Picture.uploaded_at > begin)
        count = await session.scalar(pictures) or 0
    await send_mail.enqueue("admin@example.org", f"{count} pictures were uploaded today.")
    return count


if __name__ == "__main__":
    uvicorn.run(web, port=int(os.environ.get("PORT", "8000")))
