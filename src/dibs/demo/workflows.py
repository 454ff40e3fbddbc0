"""The workflows of the demo: one that fans out while it runs, one with a sub-workflow, one that sometimes fails."""

from __future__ import annotations

import random

from dibs.demo.tasks import app, send_mail, work_for
from dibs.handlers.context import Context
from dibs.handlers.endings import Permanent
from dibs.model.workflow import Workflow


def start_album(owner: str) -> Workflow:
    """Start a workflow that adds steps while it runs: one for each picture that the first step lists."""
    with app.workflow("album", on_failure="continue") as flow:
        listed = flow.step(list_pictures, owner=owner)
        flow.step(make_album, after=listed)
        flow.finalize(send_mail, to=owner, about="Your album is ready")
    return flow.stored


def start_film(title: str) -> Workflow:
    """Start a workflow with parallel steps, a join and a sub-workflow."""
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
    """Start a workflow whose `charge` step sometimes fails; the steps after it are then cancelled."""
    with app.workflow("order", key=f"order-{number}") as flow:
        reserved = flow.step(reserve, order=number)
        paid = flow.step(charge, after=reserved, card=random.choice(["visa", "visa", "visa", "expired"]))
        prints = [flow.options(name=f"print {n}").step(print_picture, after=paid, picture=n) for n in (1, 2, 3)]
        flow.options(on_failure="ignore").step(order_wrapping, after=reserved)
        flow.step(ship, after=[*prints, "order_wrapping"], order=number)
    return flow.stored


@app.task(queue="pictures")
def list_pictures(ctx: Context, owner: str) -> int:
    """Add a step for each picture."""
    work_for(ctx, 1, f"listing the pictures of {owner}")
    count = random.randint(4, 12)
    for picture in range(1, count + 1):
        ctx.options(name=f"thumbnail {picture}").step(make_thumbnail, picture=picture)
    return count


@app.task(queue="pictures")
def make_thumbnail(ctx: Context, picture: int) -> str:
    """Make one thumbnail."""
    work_for(ctx, random.uniform(0.5, 2.5), "scaling to 64 px")
    return f"thumbnail-{picture}.webp"


@app.task(queue="pictures")
def make_album(ctx: Context) -> dict[str, int]:
    """Read the results of all thumbnails."""
    work_for(ctx, 1.5, "putting them into one file")
    return {"thumbnails": len(ctx.results.of(make_thumbnail))}


@app.task(queue="video")
def fetch_film(ctx: Context, title: str) -> dict[str, str]:
    """Fetch the film: the first step."""
    work_for(ctx, 2, f"fetching {title}")
    return {"title": title, "length": "01:32:10"}


@app.task(queue="video")
def cut_scenes(ctx: Context) -> list[int]:
    """Cut the film into scenes that can be encoded in parallel."""
    work_for(ctx, 2, "looking for cuts")
    return [0, 912, 1804, 2711, 3650, 4580]


@app.task(queue="video", max_attempts=5)
def encode_scene(ctx: Context, scene: int) -> str:
    """Encode one scene: a long step that sometimes fails and is retried."""
    work_for(ctx, random.uniform(3, 9), f"encoding scene {scene}")
    if random.random() < 0.1:
        raise MemoryError(f"the encoder ran out of memory in scene {scene}")
    return f"scene-{scene}.av1"


@app.task(queue="video")
def mix_sound(ctx: Context) -> str:
    """Mix the sound, in parallel to the scenes."""
    work_for(ctx, 6, "mixing 6 tracks")
    return "sound.opus"


@app.task(queue="video")
def join_scenes(ctx: Context) -> dict[str, int]:
    """Join the scenes and the sound."""
    work_for(ctx, 2, "joining")
    return {"scenes": len(ctx.results.of(encode_scene))}


@app.task(queue="video")
def translate(ctx: Context, to: str) -> str:
    """Translate the subtitles into one language."""
    work_for(ctx, random.uniform(1, 4), f"translating into {to}")
    return f"subtitles.{to}.vtt"


@app.task(queue="video")
def upload(ctx: Context, title: str) -> str:
    """Upload the film: the last step of the sub-workflow."""
    work_for(ctx, 2, f"uploading {title}")
    return "https://films.example.com/new"


@app.task
def update_catalogue() -> str:
    """Add the film to the catalogue."""
    return "listed"


@app.task(queue="orders", priority=3)
def reserve(ctx: Context, order: int) -> dict[str, int]:
    """Reserve the articles of the order."""
    work_for(ctx, 0.7, "looking into the store-room")
    return {"order": order}


@app.task(queue="orders", priority=3, max_attempts=2)
def charge(ctx: Context, card: str) -> str:
    """Charge the card. An expired card is a permanent failure: a retry would not help."""
    work_for(ctx, 1.2, "asking the bank")
    if card == "expired":
        raise Permanent from ValueError("the card has expired")
    return "paid"


@app.task(queue="orders", priority=3)
def print_picture(ctx: Context, picture: int) -> str:
    """Print one picture."""
    work_for(ctx, random.uniform(1, 4), f"printing picture {picture}")
    return f"print {picture}"


@app.task(queue="orders", max_attempts=1)
def order_wrapping(ctx: Context) -> str:
    """Order gift wrapping: optional, the workflow ignores its failure."""
    work_for(ctx, 0.8, "asking for paper and ribbon")
    if random.random() < 0.3:
        raise LookupError("no ribbon left")
    return "wrapped"


@app.task(queue="orders", priority=3)
def ship(ctx: Context, order: int) -> str:
    """Ship the order."""
    work_for(ctx, 1, f"order {order} is on its way")
    return f"parcel {order:06}"
