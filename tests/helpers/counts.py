"""The growth of the counters of this process: they belong to the process, so a test compares two readings."""

from __future__ import annotations

from collections.abc import Callable

from dibs.observe import sharing

Grown = Callable[[], dict[str, float]]


def watch(*prefixes: str) -> Grown:
    """Asked later: by how much each number has grown since now, those that have not left out. Histograms tell how many
    they have seen. `task_completed_total default resize` is a name with the values of its labels."""
    before = _numbers(prefixes)

    def grown() -> dict[str, float]:
        now = _numbers(prefixes)
        return {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}

    return grown


def _numbers(prefixes: tuple[str, ...]) -> dict[str, float]:
    return {
        " ".join([name, *values]): numbers[0] if len(numbers) == 1 else sum(numbers[:-1])
        for name, series in sharing.total().items()
        if not prefixes or name.startswith(prefixes)
        for values, numbers in series.items()
    }
