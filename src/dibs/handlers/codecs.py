"""Codecs: objects of the user that encode params, results and checkpoints of a handler, to encrypt or compress them.

dibs converts a value to JSON and gives the bytes to the codec; what the codec returns is stored (see dibs.encoded). The
store, the server and programs without the codec see the name of the codec and a fingerprint. Only programs that declare
a codec import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dibs import encoded
from dibs.errors import CodecFailed, CodecMissing, InvalidValue
from dibs.json_values import MAX_BYTES, decode, encode_data, encode_sorted

AROUND_DATA = 256
"""The bytes of JSON around the data of an encoded value, at most."""


class Codec(Protocol):
    """An object that encodes values of handlers. Its methods may be called by several threads at once."""

    @property
    def name(self) -> str:
        """The name that is stored with each value, by which the codec is found to decode it: 1 to 64 letters, digits,
        dots, underscores and hyphens."""

    def encode(self, data: bytes) -> bytes:
        """Encode the JSON of a value."""

    def decode(self, data: bytes) -> bytes:
        """Decode what `encode` has returned. Raise an exception for anything else, also after a wrong key."""

    def fingerprint(self, data: bytes) -> bytes:
        """16 to 64 bytes that are the same for the same data, and only for them. `data`: JSON with sorted keys.

        Every reader of the store sees a fingerprint. So derive that of a secret with a key: `hmac.digest(key, data,
        "sha256")`; a hash without a key would let a reader try out guesses."""


class Codecs:
    """The codecs of a handler: the first encodes, and all of them decode what has their name."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._first = codecs[0]
        self._by_name = {codec.name: codec for codec in codecs}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the codecs."""
        return tuple(self._by_name)

    def encode(self, value: Any, what: str) -> dict[str, Any]:
        """The stored form of a value. Raises InvalidValue if it cannot be stored, CodecFailed if the codec raises."""
        codec = self._first
        data = _called(codec.encode, encode_data(value, what), f"encode {what}", codec)
        fingerprint = _called(codec.fingerprint, encode_sorted(value), f"compute the fingerprint of {what}", codec)
        if not 16 <= len(fingerprint) <= 64:
            raise InvalidValue(
                f"The codec {codec.name!r} returned a fingerprint of {len(fingerprint)} bytes.",
                hint='Return 16 to 64 bytes, such as hmac.digest(key, data, "sha256").',
            )
        stored = encoded.encoded_value(codec.name, data, fingerprint)
        if (size := len(stored["data"]) + AROUND_DATA) > MAX_BYTES:
            raise InvalidValue(
                f"The codec {codec.name!r} made {size:,} bytes of {what}, in base64; the limit is {MAX_BYTES:,}.",
                hint="Keep large data elsewhere (a file, a bucket, a table) and send a reference to it.",
            )
        return stored

    def decode(self, stored: dict[str, Any], what: str) -> Any:
        """The value. Raises CodecMissing or CodecFailed, neither of which shows any data."""
        name = encoded.codec_of(stored)
        if (codec := self._by_name.get(name)) is None:
            raise CodecMissing(what, name, self.names)
        data = _called(codec.decode, encoded.data_of(stored), f"decode {what}", codec)
        try:
            return decode(data.decode())
        except Exception:  # the codec has accepted a wrong key: anything may be in the data
            raise CodecFailed(f"The codec {name!r} decoded {what} to data that is not JSON.") from None


def decode_with(candidates: Sequence[Codecs | None], stored: dict[str, Any], what: str) -> Any:
    """The value, decoded by the first of the candidates that has the codec."""
    name, present = encoded.codec_of(stored), [each for each in candidates if each is not None]
    for codecs in present:
        if name in codecs.names:
            return codecs.decode(stored, what)
    raise CodecMissing(what, name, tuple(dict.fromkeys(known for codecs in present for known in codecs.names)))


def checked_codecs(given: Codec | Sequence[Codec] | Codecs) -> Codecs:
    """The codecs of the option `codec`: one, or several of which the first encodes."""
    if isinstance(given, Codecs):
        return given
    codecs: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    if not codecs:
        raise InvalidValue("codec is an empty list.", hint="Give a codec, or None for a handler without one.")
    for codec in codecs:
        _check(codec)
    names = [codec.name for codec in codecs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InvalidValue(
            f"Two codecs are named {twice[0]!r}.",
            hint="The stored name chooses the codec that decodes: give each key its own, such as 'aes-2'.",
        )
    return Codecs(codecs)


def _check(codec: Any) -> None:
    missing = [name for name in ("encode", "decode", "fingerprint") if not callable(getattr(codec, name, None))]
    if missing or isinstance(codec, type):
        what = "a class" if isinstance(codec, type) else f"without {' and '.join(missing)}"
        raise InvalidValue(
            f"{codec!r} is not a codec: it is {what}.",
            hint="A codec is an object with name, encode(data), decode(data) and fingerprint(data); see dibs.Codec. "
            'For secrets the fingerprint needs a key: hmac.digest(key, data, "sha256").',
        )
    name = getattr(codec, "name", None)
    if not encoded.is_name(name):
        raise InvalidValue(
            f"The name of a codec must be a text of 1 to 64 letters, digits, '.', '_' and '-', not {name!r}.",
            hint="It is stored with each value. Give each key its own name, so that several can be in use.",
        )


def _called(function: Callable[[bytes], bytes], data: bytes, doing: str, codec: Codec) -> bytes:
    """What the function of the codec returns. Its exception is named and not quoted: its message may show data."""
    try:
        made = function(data)
    except Exception as error:
        raise CodecFailed(
            f"The codec {codec.name!r} could not {doing}: it raised {type(error).__qualname__}."
        ) from None
    if type(made) is not bytes:
        raise CodecFailed(f"The codec {codec.name!r} could not {doing}: it returned {type(made).__name__}, not bytes.")
    return made
