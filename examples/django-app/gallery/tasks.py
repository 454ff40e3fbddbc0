from datetime import timedelta
from io import BytesIO

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from PIL import Image, UnidentifiedImageError

import dibs
from dibs.django import app
from gallery.models import Picture


@app.task(max_attempts=3, give_up_on=UnidentifiedImageError)
def make_thumbnail(picture_id: int) -> None:
    picture = Picture.objects.get(pk=picture_id)
    picture.thumbnail = shrink(picture.content)
    with transaction.atomic():  # the thumbnail and the mail, both or neither
        picture.save(update_fields=["thumbnail"])
        send_mail.enqueue(picture.owner, f"The thumbnail of {picture.name} is ready.")


def shrink(content: bytes) -> bytes:
    small = BytesIO()
    with Image.open(BytesIO(content)) as image:
        image.thumbnail((128, 128))
        image.save(small, "PNG")
    return small.getvalue()


@app.task
def send_mail(ctx: dibs.Context, to: str, text: str) -> None:
    settings.OUTBOX.mkdir(exist_ok=True)
    mail = settings.OUTBOX / f"{ctx.task.id}.txt"  # a second attempt writes the same file
    mail.write_text(f"To: {to}\n\n{text}\n", encoding="utf-8")


@app.task(schedule="55 23 * * *", timezone="UTC")
def nightly_report() -> int:
    count = Picture.objects.filter(uploaded_at__gt=timezone.now() - timedelta(days=1)).count()
    send_mail.enqueue("admin@example.org", f"{count} pictures were uploaded today.")
    return count
