"""Drains of tasks with limits: what a setting means for each queue. Only the standard library is imported.

`max` tasks at once; with groups, for each of these."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """The limits of a drain, and what else the queue is set to."""

    max: int
    groups: int
    setting: str

    @classmethod
    def read(cls, text: str) -> Limits:
        """From one argument of a program."""
        most, groups, setting = text.split("/")
        return cls(int(most), int(groups), setting)

    def __str__(self) -> str:
        return "/".join(map(str, self))

    def group(self, number: int) -> str:
        """The group of a task."""
        return f"g{number % self.groups}"
