"""Results of several runs in one file: each part of a benchmark may be measured by itself, and the latest counts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.tables import Book, Line, Report


class Results(msgspec.Struct, frozen=True):
    """Runs, of each what no later run has measured again."""

    runs: list[Report]

    def with_run(self, report: Report) -> Results:
        """These and one more."""
        measured = {_part(line) for line in report.lines}
        kept = [_only(run, [line for line in run.lines if _part(line) not in measured]) for run in self.runs]
        return Results([*(run for run in kept if run.lines), report])

    def joined(self, book: Book) -> Report:
        """All as one report, in the order of the book."""
        order = list(book.chapters)
        lines = sorted((line for run in self.runs for line in run.lines), key=lambda line: order.index(line.kind))
        return _only(self.runs[-1], lines)

    @property
    def made_with(self) -> str:
        """When, on what and how each part was measured."""
        return "\n\n".join(_made_with(run) for run in self.runs)


def read(path: Path) -> Results:
    """What is in the file; nothing if there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results([])


def write(path: Path, results: Results) -> None:
    """Keep them."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def _part(line: Line) -> tuple[str, str]:
    return line.kind, line.engine


def _only(run: Report, lines: list[Line]) -> Report:
    return msgspec.structs.replace(run, lines=lines)


def _made_with(run: Report) -> str:
    parts: dict[str, list[str]] = {}
    for line in run.lines:
        engines = parts.setdefault(line.kind, [])
        if line.engine not in engines:
            engines.append(line.engine)
    what = "; ".join(f"{kind} ({', '.join(engines)})" for kind, engines in parts.items())
    return f"**{what}.** {run.made_with}\n\n```\n{run.command}\n```"
