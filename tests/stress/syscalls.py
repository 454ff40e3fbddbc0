"""System calls that fail on request: the tracer that runs a process, and how often a call failed."""

from __future__ import annotations

from pathlib import Path


def failing(log: Path, calls: str, error: str, when: str) -> tuple[str, ...]:
    """The program under which these calls fail with this error. `when`: 20+7 is the 20th and every 7th after it,
    20..30 those from the 20th to the 30th."""
    return (
        "strace", "-f", "-qq", "--seccomp-bpf", "-o", str(log),
        "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}:when={when}",
    )  # fmt: skip


def injected(log: Path) -> int:
    """How many calls have failed."""
    return log.read_text(encoding="utf-8", errors="replace").count("(INJECTED)")
