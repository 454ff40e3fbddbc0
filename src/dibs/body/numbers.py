"""Numbers as JSON has them: 2.0 is an integer there, and some programs write it so."""

from __future__ import annotations

from typing import Any

FREE = frozenset({"params", "result", "defaults", "schema", "metadata", "value"})
"""Fields whose content belongs to the client: a float stays one."""


def whole_numbers(value: Any) -> Any:
    """The same value, in which numbers without a fraction are integers, but for what belongs to the client."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is dict:
        return {name: item if name in FREE else whole_numbers(item) for name, item in value.items()}
    return [whole_numbers(item) for item in value] if type(value) is list else value
