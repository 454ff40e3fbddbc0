# pyright: strict
"""FastAPI and Starlette: the lifespan, the mounted server, the dependencies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, assert_type

from fastapi import Depends, FastAPI, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.applications import Starlette
from starlette.routing import Mount

import dibs
import dibs.asgi

queue = dibs.AsyncDibs("sqlite:///dibs.db")
sync_queue = dibs.Dibs("sqlite:///dibs.db")


@asynccontextmanager
async def database(web: FastAPI) -> AsyncGenerator[None]:
    yield


async def session() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession() as opened:
        yield opened


async def awaited(request: Request) -> dibs.asgi.SignedIn | None:
    return dibs.asgi.SignedIn(["read"], queues={"mail"}, name="anna")


def plain(request: Request) -> list[str] | None:
    return ["read"] if request.cookies else None


Queue = Annotated[dibs.AsyncDibs, Depends(dibs.asgi.async_client)]
SyncQueue = Annotated[dibs.Dibs, Depends(dibs.asgi.sync_client)]
Joined = Annotated[dibs.AsyncDibs, Depends(dibs.asgi.joined(session))]

web = FastAPI(lifespan=dibs.asgi.lifespan(queue, worker={"concurrency": 20, "grace": 5}, around=database))
web.mount("/queue", dibs.asgi.server(queue, sign_in=awaited, sign_in_url="/login"))
web.mount("/other", dibs.asgi.server(queue, sign_in=plain))
web.mount("/open", dibs.asgi.server(queue, sign_in=lambda request: ["read"]))
starlette = Starlette(
    routes=[Mount("/queue", dibs.asgi.server(sync_queue, allowed_hosts=["shop.example"]))],
    lifespan=dibs.asgi.lifespan(sync_queue, worker=True),
)


@web.post("/orders")
async def order(queue: Queue, sync_queue: SyncQueue, joined: Joined) -> int:
    task = await queue.enqueue("ship")
    assert_type(task.id, int)
    await joined.enqueue("ship")
    return sync_queue.enqueue("ship").id
