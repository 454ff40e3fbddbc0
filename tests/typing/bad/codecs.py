"""Objects that are no codecs. Both type checkers refuse exactly the marked lines."""

from __future__ import annotations

import dibs


class Half:
    name = "half"

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


class Texts(Half):
    def fingerprint(self, data: bytes) -> str:
        return "text"


dibs.Dibs("sqlite://", codec="zlib")  # refused
dibs.Dibs("sqlite://", codec=Half())  # refused
dibs.AsyncDibs("sqlite://", codec=[Texts()])  # refused
app = dibs.Dibs("sqlite://")


@app.task(codec=Half())  # refused
def index(text: str) -> int:
    return len(text)
