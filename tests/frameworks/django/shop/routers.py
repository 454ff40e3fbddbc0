"""A router that leads the project to the database under test."""

from typing import Any

USED = {"alias": "default"}


class UnderTest:
    def db_for_read(self, model: Any, **hints: Any) -> str:
        return USED["alias"]

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return USED["alias"]
