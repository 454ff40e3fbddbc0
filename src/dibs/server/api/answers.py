"""Answers that several resources give."""

from __future__ import annotations

import msgspec


class Done(msgspec.Struct, frozen=True):
    """It is done, and that is all there is to say."""

    success: bool


class Counted(msgspec.Struct, frozen=True):
    """It is done, to so many."""

    success: bool
    count: int
