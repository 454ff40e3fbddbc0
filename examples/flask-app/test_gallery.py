from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import gallery
import pytest
from PIL import Image
from sqlalchemy import select


@pytest.fixture
def dibs_url(dibs_url: str | None, tmp_path: Path) -> str:
    """The database of the test: its pictures and its tasks."""
    return dibs_url or f"sqlite:///{tmp_path}/gallery.db"


@pytest.fixture
def application(dibs: Any, dibs_url: str, tmp_path: Path) -> Any:
    url = dibs_url.replace("postgresql:", "postgresql+psycopg:")
    application = gallery.create_app(SQLALCHEMY_DATABASE_URI=url, OUTBOX=tmp_path / "outbox")
    yield application
    with application.app_context():
        gallery.db.engine.dispose()


def upload(application: Any, content: bytes) -> Any:
    form = {"owner": "ann@example.org", "picture": (BytesIO(content), "cat.png")}
    return application.test_client().post("/pictures", data=form)


def picture() -> bytes:
    content = BytesIO()
    Image.new("RGB", (640, 480), "orange").save(content, "PNG")
    return content.getvalue()


def mails(application: Any) -> list[str]:
    return [mail.read_text() for mail in sorted(Path(application.config["OUTBOX"]).glob("*.txt"))]


def test_an_upload_gets_a_thumbnail_and_its_owner_a_mail(dibs: Any, application: Any) -> None:
    answer = upload(application, picture())
    address = f"/pictures/{answer.json['id']}/thumbnail"
    assert application.test_client().get(address).status_code == 404
    dibs.assert_enqueued(gallery.make_thumbnail, picture_id=answer.json["id"])

    dibs.drain()
    thumbnail = application.test_client().get(address).data
    assert Image.open(BytesIO(thumbnail)).size == (128, 96)
    assert mails(application) == ["To: ann@example.org\n\nThe thumbnail of cat.png is ready.\n"]


def test_a_file_that_is_no_picture_is_not_tried_again(dibs: Any, application: Any) -> None:
    upload(application, b"text")
    [failed] = dibs.drain()
    assert (failed.type, failed.attempts, failed.error.type) == ("make_thumbnail", 1, "UnidentifiedImageError")
    assert mails(application) == []


def test_a_failed_upload_leaves_neither_a_row_nor_a_task(dibs: Any, application: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(gallery.db.session, "commit", lambda: 1 / 0)
    assert upload(application, picture()).status_code == 500
    dibs.assert_nothing_enqueued()
    with application.app_context():
        assert gallery.db.session.scalars(select(gallery.Picture)).all() == []


def test_the_nightly_report_counts_the_pictures_of_the_day(dibs: Any, application: Any) -> None:
    for _ in range(2):
        upload(application, picture())
    assert dibs.run_now(gallery.nightly_report) == 2
    dibs.drain()
    assert "To: admin@example.org\n\n2 pictures were uploaded today.\n" in mails(application)
