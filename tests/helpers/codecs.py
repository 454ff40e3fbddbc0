"""A codec whose data differs each time, as that of an encryption, and handlers of the process lane that have it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dibs


class WrongKey(Exception):
    """The data was not encoded with this key. The message has the data, which no record may show."""


@dataclass(frozen=True)
class Veil:
    """Covers data with a random stream: never twice the same. Not an encryption to use."""

    name: str = "veil"
    key: bytes = b"key"
    fingerprint_key: bytes = b"fingerprints"

    def encode(self, data: bytes) -> bytes:
        nonce = secrets.token_bytes(16)
        return nonce + hmac.digest(self.key, nonce + data, "sha256") + self._cover(nonce, data)

    def decode(self, data: bytes) -> bytes:
        nonce, mark, plain = data[:16], data[16:48], self._cover(data[:16], data[48:])
        if not hmac.compare_digest(mark, hmac.digest(self.key, nonce + plain, "sha256")):
            raise WrongKey(plain)
        return plain

    def fingerprint(self, data: bytes) -> bytes:
        return hmac.digest(self.fingerprint_key, data, "sha256")

    def _cover(self, nonce: bytes, data: bytes) -> bytes:
        stream = hashlib.shake_256(self.key + nonce).digest(len(data))
        return bytes(one ^ other for one, other in zip(data, stream, strict=True))


SECRET = "4111-1111"
"""A text that no row of a store may show."""

app = dibs.Dibs("sqlite:///nowhere.db", codec=Veil())  # the worker sets the store: app.use_url


@app.task(lane="process")
def charge_apart(ctx: dibs.Context, card: str) -> dict[str, Any]:
    assert ctx.checkpoint("card", lambda: {"card": card}) == {"card": card}
    return {"charged": card, "params": ctx.task.params}


@dataclass
class Payment:
    """A document of a batch."""

    card: str


def charge_each(items: Sequence[dibs.BatchItem[Payment]]) -> list[Any]:
    """Charge each card, with its params as the handler sees them."""
    for item in items:
        assert item.ctx.checkpoint("card", lambda item=item: item.value.card) == item.value.card
    return [{"charged": item.value.card, "params": item.ctx.task.params} for item in items]


@app.batch_task(lane="process", wait=0)
def charge_batch_apart(items: Sequence[dibs.BatchItem[Payment]]) -> list[Any]:
    return charge_each(items)


@app.task(lane="process")
def read_apart(ctx: dibs.Context) -> str:
    charged: dict[str, Any] = ctx.results["charge_apart"]
    return str(charged["charged"])
