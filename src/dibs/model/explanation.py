"""Explanations: the reasons why a task is not running."""

from __future__ import annotations

import msgspec

from dibs.model.task import State


class Reason(msgspec.Struct, frozen=True):
    """One reason why a task is not running; `code` is for programs."""

    code: str
    message: str


class Explanation(msgspec.Struct, frozen=True):
    """Why a task is not running at the moment."""

    task_id: int
    state: State
    reasons: list[Reason]

    def __str__(self) -> str:
        return " ".join(reason.message for reason in self.reasons)
