"""The tests of the gallery: its requests and its worker, without a server. Run `pytest` in this folder."""

import os
import tempfile
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import Image
from sqlalchemy import func, select

os.environ.setdefault("DATABASE_URL", f"sqlite+aiosqlite:///{tempfile.mkdtemp()}/gallery.db")

import gallery  # the database is chosen before

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the running application: its lifespan opens the database and starts the worker."""
    monkeypatch.setattr(gallery, "OUTBOX", tmp_path / "outbox")
    transport = httpx.ASGITransport(gallery.web, raise_app_exceptions=False)
    async with (
        gallery.web.router.lifespan_context(gallery.web),
        httpx.AsyncClient(transport=transport, base_url="http://gallery") as client,
    ):
        yield client
        await all_tasks()  # none is left for the next test


async def upload(client: httpx.AsyncClient, content: bytes) -> httpx.Response:
    files = {"picture": ("cat.png", BytesIO(content))}
    return await client.post("/pictures", data={"owner": "ann@example.org"}, files=files)


def picture() -> bytes:
    content = BytesIO()
    Image.new("RGB", (640, 480), "orange").save(content, "PNG")
    return content.getvalue()


async def all_tasks() -> None:
    """Wait until all tasks have ended, also those that were enqueued by another."""
    waited: set[int] = set()
    while left := [task for task in await gallery.queue.list_tasks(limit=1000) if task.id not in waited]:
        for task in left:
            await gallery.queue.wait(task.id, timeout=30)
            waited.add(task.id)


async def mails() -> list[str]:
    await all_tasks()
    return [mail.read_text() for mail in sorted(gallery.OUTBOX.glob("*.txt"))]


async def pictures() -> int:
    async with gallery.sessions() as session:
        return await session.scalar(select(func.count()).select_from(gallery.Picture)) or 0


async def test_an_upload_gets_a_thumbnail_and_its_owner_a_mail(client: httpx.AsyncClient) -> None:
    answer = await upload(client, picture())
    assert answer.status_code == 201
    done = await gallery.queue.wait(answer.json()["task"], timeout=30)
    assert done.state == "completed"
    thumbnail = await client.get(f"/pictures/{answer.json()['id']}/thumbnail")
    assert Image.open(BytesIO(thumbnail.content)).size == (128, 96)
    assert await mails() == ["To: ann@example.org\n\nThe thumbnail of cat.png is ready.\n"]


async def test_a_file_that_is_no_picture_is_not_tried_again(client: httpx.AsyncClient) -> None:
    answer = await upload(client, b"text")
    failed = await gallery.queue.wait(answer.json()["task"], timeout=30)
    assert (failed.state, failed.attempts, failed.error.type) == ("failed", 1, "UnidentifiedImageError")
    assert await mails() == []


async def test_a_failed_upload_leaves_neither_a_row_nor_a_task(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, tasks = await pictures(), len(await gallery.queue.list_tasks(limit=1000))

    async def commit(_: object) -> None:
        raise RuntimeError("no space left")

    monkeypatch.setattr(gallery.AsyncSession, "commit", commit)
    assert (await upload(client, picture())).status_code == 500
    monkeypatch.undo()
    assert (await pictures(), len(await gallery.queue.list_tasks(limit=1000))) == (rows, tasks)


async def test_the_nightly_report_counts_the_pictures_of_the_day(client: httpx.AsyncClient) -> None:
    before = await pictures()
    for _ in range(2):
        await upload(client, picture())
    report = await gallery.queue.run_schedule("nightly_report")
    assert (await gallery.queue.wait(report.id, timeout=30)).result == before + 2
    assert f"To: admin@example.org\n\n{before + 2} pictures were uploaded today.\n" in await mails()


async def test_the_dashboard_is_mounted(client: httpx.AsyncClient) -> None:
    answer = await client.get("/queue/", headers={"accept": "text/html"})
    assert answer.headers["location"] == "/queue/signin"
