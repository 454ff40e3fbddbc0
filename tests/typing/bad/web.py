"""Mistakes with dibs.asgi."""

from __future__ import annotations

from fastapi import FastAPI, Request

import dibs
import dibs.asgi

queue = dibs.AsyncDibs("sqlite:///dibs.db")


def number(request: Request) -> int:
    return 7


dibs.asgi.lifespan("sqlite:///dibs.db")  # refused
dibs.asgi.lifespan(queue, worker={"concurency": 20})  # refused
dibs.asgi.server(queue, sign_in=number)  # refused
dibs.asgi.SignedIn(read=True)  # refused
FastAPI(lifespan=dibs.asgi.lifespan)  # refused
