"""The table of a stress run: a row for each fault and engine, as text for a terminal or Markdown for the docs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.helpers.consistency import percentile
from tests.stress.scenario import Tally

HEAD = (
    "fault", "engine", "injected", "operations checked", "lost", "doubled", "stale writes refused",
    "stale writes honoured", "recovery p50 / p99 (s)", "seconds", "seed", "verdict",
)  # fmt: skip
BEGIN, END = "<!-- table of the last run: begin -->", "<!-- table of the last run: end -->"


class Row:
    """What the plays of one scenario on one engine came to, all together."""

    def __init__(self, first: Tally) -> None:
        self.fault, self.engine, self.seed = first.scenario.fault, first.engine, first.seed
        self.name = first.scenario.name
        self.injected = self.operations = self.lost = self.doubled = self.refused = self.honoured = 0
        self.seconds = 0.0
        self.recovery: list[float] = []
        self.notes: dict[str, float] = {}
        self.problems: list[str] = []

    def add(self, tally: Tally) -> None:
        self.injected += tally.injected
        self.operations += tally.operations
        self.lost += tally.lost
        self.doubled += tally.doubled
        self.refused += tally.refused
        self.honoured += tally.honoured
        self.seconds += tally.seconds
        self.recovery += tally.recovery
        self.notes.update(tally.notes)
        self.problems += tally.problems

    @property
    def spread(self) -> str:
        """Of the recoveries, where there were any."""
        if not self.recovery:
            return ""
        return f"{percentile(self.recovery, 0.5):.2f} / {percentile(self.recovery, 0.99):.2f}"

    @property
    def verdict(self) -> str:
        return "ok" if not self.problems else f"FAILED ({len(self.problems)})"

    def cells(self) -> tuple[str, ...]:
        numbers = (self.injected, self.operations, self.lost, self.doubled, self.refused, self.honoured)
        counted = tuple(f"{number:,}" for number in numbers)
        return (self.fault, self.engine, *counted, self.spread, f"{self.seconds:.0f}", str(self.seed), self.verdict)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "recovery": self.spread, "verdict": self.verdict, "problems": self.problems[:50]}


class Table:
    """All rows, in the order in which they were first played."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}

    def add(self, tally: Tally) -> None:
        """One more play."""
        self.rows.setdefault((tally.scenario.name, tally.engine), Row(tally)).add(tally)

    @property
    def ok(self) -> bool:
        """True if something was played and nothing was wrong."""
        return bool(self.rows) and not any(row.problems for row in self.rows.values())

    def markdown(self) -> str:
        """For the docs."""
        body = [HEAD, tuple("---" for _ in HEAD), *self._lines()]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in body)

    def text(self) -> str:
        """For a terminal."""
        body = [HEAD, *self._lines()]
        widths = [max(len(cells[n]) for cells in body) for n in range(len(HEAD))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in body)

    def write_json(self, path: Path) -> None:
        """For programs."""
        path.write_text(json.dumps([row.as_json() for row in self.rows.values()], indent=2) + "\n", encoding="utf-8")

    def write_into(self, page: Path, head: str) -> None:
        """Between the marks of a page of the docs."""
        text = page.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n\n{head}\n\n{self.markdown()}\n\n{END}{after}", encoding="utf-8")

    def _lines(self) -> list[tuple[str, ...]]:
        return [*(row.cells() for row in self.rows.values()), _sum(self.rows.values())]


def _sum(rows: Iterable[Row]) -> tuple[str, ...]:
    rows = list(rows)
    names = ("injected", "operations", "lost", "doubled", "refused", "honoured")
    counted = [f"{sum(getattr(row, name) for row in rows):,}" for name in names]
    failed: Sequence[Row] = [row for row in rows if row.problems]
    verdict = f"FAILED ({len(failed)})" if failed else "ok"
    return ("all", "", *counted, "", f"{sum(row.seconds for row in rows):.0f}", "", verdict)
