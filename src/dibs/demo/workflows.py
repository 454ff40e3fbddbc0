"""The workflows of the demo: one that fans out while it runs, one with a sub-workflow, one that sometimes fails."""

from __future__ import annotations

import random

from dibs.demo.tasks import app, send_mail, take
from dibs.handlers.context import Context
from dibs.handlers.endings import Permanent
from dibs.model.workflow import Workflow


def start_album(owner: str) -> Workflow:
    """How many thumbnails there will be is known only when the pictures are listed."""
    with app.workflow("album", on_failure="continue") as flow:
        listed = flow.step(list_pictures, owner=owner)
        flow.step(make_album, after=listed)
        flow.finalize(send_mail, to=owner, about="Your album is ready")
    return flow.stored


def start_film(title: str) -> Workflow:
    """A graph to look at: parts side by side, joined again, and published by a workflow of its own."""
    with app.workflow("film", deadline=600) as flow:
        fetched = flow.step(fetch_film, title=title)
        cut = flow.step(cut_scenes, after=fetched)
        scenes = [flow.options(name=f"scene {n}").step(encode_scene, after=cut, scene=n) for n in range(1, 7)]
        sound = flow.step(mix_sound, after=fetched)
        joined = flow.step(join_scenes, after=[*scenes, sound])
        with flow.workflow("publish", after=joined) as publish:
            texts = [publish.options(name=f"subtitles {to}").step(translate, to=to) for to in ("de", "fr", "nl")]
            publish.step(upload, after=texts, title=title)
        flow.step(update_catalogue, after=publish)
        flow.finalize(send_mail, to="studio@example.com", about=f"{title} is out")
    return flow.stored


def start_order(number: int) -> Workflow:
    """Charging the card is where an order ends now and then; what waits for it is cancelled."""
    with app.workflow("order", key=f"order-{number}") as flow:
        reserved = flow.step(reserve, order=number)
        paid = flow.step(charge, after=reserved, card=random.choice(["visa", "visa", "visa", "expired"]))
        prints = [flow.options(name=f"print {n}").step(print_picture, after=paid, picture=n) for n in (1, 2, 3)]
        flow.options(on_failure="ignore").step(order_wrapping, after=reserved)
        flow.step(ship, after=[*prints, "order_wrapping"], order=number)
    return flow.stored


@app.task(queue="pictures")
def list_pictures(ctx: Context, owner: str) -> int:
    """Add a step for each picture that there is."""
    take(ctx, 1, f"listing the pictures of {owner}")
    count = random.randint(4, 12)
    for picture in range(1, count + 1):
        ctx.options(name=f"thumbnail {picture}").step(make_thumbnail, picture=picture)
    return count


@app.task(queue="pictures")
def make_thumbnail(ctx: Context, picture: int) -> str:
    """One of many."""
    take(ctx, random.uniform(0.5, 2.5), "scaling to 64 px")
    return f"thumbnail-{picture}.webp"


@app.task(queue="pictures")
def make_album(ctx: Context) -> dict[str, int]:
    """Read what all of them made."""
    take(ctx, 1.5, "putting them into one file")
    return {"thumbnails": len(ctx.results.of(make_thumbnail))}


@app.task(queue="video")
def fetch_film(ctx: Context, title: str) -> dict[str, str]:
    """The first step of a film."""
    take(ctx, 2, f"fetching {title}")
    return {"title": title, "length": "01:32:10"}


@app.task(queue="video")
def cut_scenes(ctx: Context) -> list[int]:
    """Into parts that can be encoded side by side."""
    take(ctx, 2, "looking for cuts")
    return [0, 912, 1804, 2711, 3650, 4580]


@app.task(queue="video", max_attempts=5)
def encode_scene(ctx: Context, scene: int) -> str:
    """The long part; now and then it has to be done again."""
    take(ctx, random.uniform(3, 9), f"encoding scene {scene}")
    if random.random() < 0.1:
        raise MemoryError(f"the encoder ran out of memory in scene {scene}")
    return f"scene-{scene}.av1"


@app.task(queue="video")
def mix_sound(ctx: Context) -> str:
    """Beside the pictures."""
    take(ctx, 6, "mixing 6 tracks")
    return "sound.opus"


@app.task(queue="video")
def join_scenes(ctx: Context) -> dict[str, int]:
    """Everything comes together here."""
    take(ctx, 2, "joining")
    return {"scenes": len(ctx.results.of(encode_scene))}


@app.task(queue="video")
def translate(ctx: Context, to: str) -> str:
    """Subtitles."""
    take(ctx, random.uniform(1, 4), f"translating into {to}")
    return f"subtitles.{to}.vtt"


@app.task(queue="video")
def upload(ctx: Context, title: str) -> str:
    """The last step of publishing."""
    take(ctx, 2, f"uploading {title}")
    return "https://films.example.com/new"


@app.task
def update_catalogue() -> str:
    """So that people find it."""
    return "listed"


@app.task(queue="orders", priority=3)
def reserve(ctx: Context, order: int) -> dict[str, int]:
    """Nothing is sold twice."""
    take(ctx, 0.7, "looking into the store-room")
    return {"order": order}


@app.task(queue="orders", priority=3, max_attempts=2)
def charge(ctx: Context, card: str) -> str:
    """Some cards have expired, and trying again would not help."""
    take(ctx, 1.2, "asking the bank")
    if card == "expired":
        raise Permanent from ValueError("the card has expired")
    return "paid"


@app.task(queue="orders", priority=3)
def print_picture(ctx: Context, picture: int) -> str:
    """On paper."""
    take(ctx, random.uniform(1, 4), f"printing picture {picture}")
    return f"print {picture}"


@app.task(queue="orders", max_attempts=1)
def order_wrapping(ctx: Context) -> str:
    """Nice to have: an order goes on without it."""
    take(ctx, 0.8, "asking for paper and ribbon")
    if random.random() < 0.3:
        raise LookupError("no ribbon left")
    return "wrapped"


@app.task(queue="orders", priority=3)
def ship(ctx: Context, order: int) -> str:
    """Out of the house."""
    take(ctx, 1, f"order {order} is on its way")
    return f"parcel {order:06}"
