"""The matrix: which tests run on which engine and in which mode, in `make test`, `make proof` and `make stress`.

A *way* is an engine and a mode. `make test` is what a contributor runs before a commit. `make proof` runs what CI must
prove beyond that, and repeats nothing of `make test`. `make stress` runs everything in every way. Print the matrix with
`make matrix`.

A test that takes no engine, or names its engine itself, runs once, in the first of the three that its group takes part
in.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent
SUITES = ("test", "proof", "stress")


class Way(NamedTuple):
    """How a test reaches the store."""

    engine: str
    mode: str

    @property
    def id(self) -> str:
        """As it stands in the name of a test case."""
        return f"{self.engine}-{self.mode}"


WAYS = {
    "S": Way("sqlite", "sync"),
    "s": Way("sqlite", "async"),
    "P": Way("postgres", "sync"),
    "p": Way("postgres", "async"),
    "H": Way("http", "sync"),
    "h": Way("http", "async"),
    "Q": Way("http+postgres", "sync"),
    "q": Way("http+postgres", "async"),
}
ONCE = "1"
"""The engine of groups whose tests need no engine."""


class Group(NamedTuple):
    """Test files, and the letters of their ways. `proof` and `stress`: the ways that they add."""

    name: str
    files: tuple[str, ...]
    test: str
    proof: str
    stress: str

    def letters(self, suite: str) -> str:
        """The letters that the suite runs: `make stress` repeats everything, `make proof` nothing."""
        return {"test": self.test, "proof": self.proof, "stress": self.test + self.proof + self.stress}[suite]

    def ways(self, suite: str) -> list[Way]:
        """Engine and mode of each case."""
        return [WAYS[letter] for letter in WAYS if letter in self.letters(suite)]

    def runs_once_in(self, suite: str) -> bool:
        """True if a test without an engine runs in the suite."""
        return suite == ("stress" if suite == "stress" else next(each for each in SUITES if self.letters(each)))

    def engines(self, suite: str) -> list[str]:
        """The engines that the suite is the first to run: one case is enough for a test that has no mode."""
        before = set() if suite == "stress" else {way.engine for each in _before(suite) for way in self.ways(each)}
        return list(dict.fromkeys(way.engine for way in self.ways(suite) if way.engine not in before))

    def modes(self, suite: str, engines: Collection[str]) -> list[str]:
        """The modes of a test that names its engines itself; without any, of a test that has no engine."""
        ways = [way for way in self.ways(suite) if way.engine in engines or not engines]
        return list(dict.fromkeys(way.mode for way in ways))


def _before(suite: str) -> tuple[str, ...]:
    return SUITES[: SUITES.index(suite)]


GROUPS = (
    Group(
        "contracts about races and repetition",
        (
            *(
                f"contract/test_{name}.py"
                for name in ("change", "claim", "exchange", "fencing", "finish", "idempotency")
            ),
            *(f"workflow/test_{name}.py" for name in ("finalization", "finalizer_races")),
        ),
        test="SpH",
        proof="sPQ",
        stress="hq",
    ),
    Group(
        "contracts of the main verbs",
        (
            *(f"contract/test_{name}.py" for name in ("counts", "enqueue", "keys", "leases", "manage", "manage_many")),
            *(f"contract/test_{name}.py" for name in ("schedules", "search")),
            *(f"workflow/test_{name}.py" for name in ("graphs", "growing")),
        ),
        test="SpH",
        proof="",
        stress="sPhQq",
    ),
    Group("statistics of random orders", ("contract/test_order_statistics.py",), test="", proof="SP", stress=""),
    Group("limits of validation", ("contract/test_validation_limits.py",), test="", proof="pH", stress="SsPhQq"),
    Group(
        "plan guards",
        tuple(f"engines/test_{name}.py" for name in ("plans", "limit_plans", "plans_of_limits", "schedule_plans")),
        test="",
        proof=ONCE,
        stress="",
    ),
    Group("races of processes for limits", ("engines/test_limit_races.py",), test="", proof="SP", stress="HQ"),
    Group("the model test", ("contract/test_model.py",), test="SP", proof="", stress="spHhQq"),
    Group("random claims beside a model", ("contract/test_claim_model.py",), test="SP", proof="H", stress="sphQq"),
    Group("thousands of random claims", ("contract/test_many_claims.py",), test="", proof="SP", stress=""),
    Group("other contracts", ("contract/*.py", "workflow/*.py"), test="Sp", proof="H", stress="sPhQq"),
    Group("engines", ("engines/*.py",), test="SsPp", proof="", stress="HhQq"),
    Group("killed in a transaction of the user", ("connections/test_killed.py",), test="", proof="SsPp", stress=""),
    Group("connections of the user", ("connections/*.py",), test="SP", proof="sp", stress=""),
    Group("type checkers", ("typing/*.py",), test=ONCE, proof="", stress=""),
    Group("units and documents", ("unit/*.py", "wire/*.py", "docs/*.py"), test=ONCE + "SP", proof="", stress=""),
    Group(
        "worker and server, where engines differ",
        (
            *(f"server/test_{name}.py" for name in ("claiming", "events", "live_stats", "resources")),
            *(f"worker/test_{name}.py" for name in ("kill", "outages", "pickup", "shutdown")),
            "observe/*.py",
        ),
        test="SP",
        proof="",
        stress="",
    ),
    Group("Schemathesis", ("server/test_schemathesis.py",), test="", proof="SP", stress=""),
    Group("the demo", ("cli/test_demo.py",), test="", proof=ONCE + "S", stress="P"),
    Group(
        "workers in other languages",
        ("server/test_examples.py", "server/test_typescript_client.py"),
        test="",
        proof="S",
        stress="",
    ),
    Group("pages of the dashboard", ("server/dashboard/*.py",), test="S", proof="", stress="P"),
    Group("worker and server", ("worker/*.py", "server/*.py"), test="S", proof="P", stress=""),
    Group("the command line", ("cli/*.py",), test="S", proof="", stress="P"),
    Group("alert rules in a real Prometheus", ("deploy/*.py",), test="", proof=ONCE + "SP", stress=""),
    Group("the dashboard in a browser", ("browser/*.py",), test="", proof="S", stress="P"),
    Group("integrations with frameworks", ("frameworks/*/*.py",), test="", proof=ONCE + "SP", stress=""),
    Group("faults in their short version", ("stress/*.py",), test="", proof=ONCE + "SPHQ", stress=""),
)


def is_stress() -> bool:
    """True in `make stress`, where tests that take a number of rows or rounds take more."""
    return os.environ.get("DIBS_TEST_SUITE") == "stress"


@cache
def group_of(path: Path) -> Group:
    """The group of a test file."""
    inside = path.relative_to(ROOT).as_posix()
    return next(group for group in GROUPS if any(fnmatch(inside, pattern) for pattern in group.files))


def table() -> Iterator[str]:
    """The matrix as a Markdown table."""
    yield "| tests | `make test` | `make proof` adds | `make stress` adds |"
    yield "|---|---|---|---|"
    for group in GROUPS:
        cells = (_cell(letters) for letters in (group.test, group.proof, group.stress))
        yield f"| {group.name} | {' | '.join(cells)} |"
    yield ""
    yield (
        "; ".join(f"`{letter}` {way.engine} {way.mode}" for letter, way in WAYS.items())
        + "; `1` once, without an engine."
    )


def _cell(letters: str) -> str:
    return " ".join(f"`{letter}`" for letter in letters) or "none"


if __name__ == "__main__":
    print("\n".join(table()))
