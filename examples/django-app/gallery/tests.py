"""The tests of the gallery: `python manage.py test`. They run the tasks themselves, without a worker."""

import tempfile
from io import BytesIO
from pathlib import Path
from unittest import mock

from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import TestCase, override_settings
from PIL import Image

from dibs.django import app
from dibs.testing import isolated
from gallery.models import Picture
from gallery.tasks import nightly_report


def picture() -> bytes:
    content = BytesIO()
    Image.new("RGB", (640, 480), "orange").save(content, "PNG")
    return content.getvalue()


class GalleryTests(TestCase):
    def setUp(self) -> None:
        self.outbox = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(override_settings(OUTBOX=self.outbox))

    def upload(self, content: bytes) -> HttpResponse:
        file = SimpleUploadedFile("cat.png", content)
        return self.client.post("/pictures", {"owner": "ann@example.org", "picture": file})

    def mails(self) -> list[str]:
        return [mail.read_text() for mail in sorted(self.outbox.glob("*.txt"))]

    def test_an_upload_gets_a_thumbnail_and_its_owner_a_mail(self) -> None:
        with isolated(app) as box:
            answer = self.upload(picture()).json()
            box.drain()
            self.assertEqual(app.get(answer["task"]).state, "completed")
        thumbnail = self.client.get(f"/pictures/{answer['id']}/thumbnail")
        self.assertEqual(Image.open(BytesIO(thumbnail.content)).size, (128, 96))
        self.assertEqual(self.mails(), ["To: ann@example.org\n\nThe thumbnail of cat.png is ready.\n"])

    def test_a_file_that_is_no_picture_is_not_tried_again(self) -> None:
        with isolated(app) as box:
            answer = self.upload(b"text").json()
            box.drain()
            failed = app.get(answer["task"])
        self.assertEqual((failed.state, failed.attempts), ("failed", 1))
        self.assertEqual(self.mails(), [])

    def test_a_failed_upload_leaves_neither_a_row_nor_a_task(self) -> None:
        self.client.raise_request_exception = False
        with mock.patch("gallery.views.JsonResponse", side_effect=RuntimeError("no space left")):
            self.assertEqual(self.upload(picture()).status_code, 500)
        self.assertEqual((Picture.objects.count(), app.list_tasks()), (0, []))

    def test_the_nightly_report_counts_the_pictures_of_the_day(self) -> None:
        with isolated(app) as box:
            self.upload(picture())
            report = nightly_report.enqueue()
            box.drain()
            self.assertEqual(report.wait().result, 1)
        self.assertIn("To: admin@example.org\n\n1 pictures were uploaded today.\n", self.mails())
