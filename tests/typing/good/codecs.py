"""Handlers with codecs keep their types. Both type checkers accept every line."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any, assert_type

import dibs


class Compressed:
    name = "zlib"

    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)

    def fingerprint(self, data: bytes) -> bytes:
        return hashlib.sha256(data).digest()


@dataclass(frozen=True)
class Named(Compressed):
    name: str = "other"


codec: dibs.Codec = Compressed()
app = dibs.Dibs("sqlite://", codec=Named("app"))
async_app = dibs.AsyncDibs("sqlite://", codec=[Named("new"), codec])


@app.task(codec=[Compressed(), Named("old")])
def index(text: str) -> int:
    return len(text)


@app.task(codec=None)
def plain(text: str) -> int:
    return len(text)


assert_type(index.enqueue("tea").wait().result, int)
params: Any = index.decode(index.new("tea").params)
