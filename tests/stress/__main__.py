"""Runs every fault in turn and prints one table at the end: `python -m tests.stress --minutes 30`.

The minutes are for all scenarios together. A scenario is played for a minute at most on a database, then again on a
new one, so that the memory of the checker stays bounded in a run of any length. Each play prints its seed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.stress.databases import Grounds, serving
from tests.stress.scenario import ENGINES, Scenario, Stage, Tally, folder_of, perform
from tests.stress.scenarios import all_scenarios
from tests.stress.table import Table

A_PLAY = 60.0
"""Seconds after which a fresh database is taken."""

LEAST = 3.0
"""The minimum length of a play, in seconds."""

RELIABILITY = Path(__file__).parents[2] / "docs" / "reliability.md"


def run(scenarios: Sequence[Scenario], arguments: Sequence[str]) -> int:
    """Run the scenarios, print the table; the exit code is 0 if no promise was broken."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # what was started is ended as well
    wanted = [each for each in scenarios if not options.only or each.name in options.only]
    table, began = Table(), time.monotonic()
    cast = [(each, engine) for each in playable(wanted) for engine in each.engines if engine in options.engine]
    plays = schedule(cast, options.minutes * 60)
    chance, grounds = random.Random(options.seed), Grounds()
    say(f"seed {options.seed}: {len(cast)} scenarios on their engines, {len(plays)} plays, {options.minutes:g} minutes")
    for number, (scenario, engine) in enumerate(plays):
        left = options.minutes * 60 - (time.monotonic() - began)
        seconds = max(LEAST, min(A_PLAY, left / (len(plays) - number)))
        table.add(play(scenario, engine, grounds, chance.randrange(2**32), seconds, options.keep))
    report(table, options, time.monotonic() - began)
    return 0 if table.ok else 1


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="what all choices follow from")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all plays together (default: 5)")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="only on this one; repeatable")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this scenario; repeatable")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the answers and the databases in this folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the table for programs")
    parser.add_argument("--markdown", action="store_true", help=f"the table into {RELIABILITY.name}")
    options = parser.parse_args(arguments)
    options.engine = options.engine or list(ENGINES)
    return options


def playable(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """The scenarios whose programs are installed. Skipped scenarios are printed; in CI none may be skipped."""
    found = []
    for scenario in scenarios:
        if missing := scenario.missing():
            what = f"{scenario.name} needs {', '.join(missing)}"
            if os.environ.get("CI"):
                sys.exit(f"{what}, which this machine lacks.")
            say(f"skipped: {what}")
        else:
            found.append(scenario)
    return found


def schedule(cast: list[tuple[Scenario, str]], seconds: float) -> list[tuple[Scenario, str]]:
    """Each as often as needed for plays of about a minute, all of them in turn."""
    times = max(1, round(seconds / A_PLAY / max(1, len(cast))))
    return cast * times


def play(scenario: Scenario, engine: str, grounds: Grounds, seed: int, seconds: float, keep: Path | None) -> Tally:
    """Run one scenario on one engine. A scenario that raises is a row with its error, and the next one begins."""
    title = f"{scenario.name} on {engine}, seed {seed}"
    stage: Stage | None = None
    try:
        with folder_of(scenario, engine, keep) as folder, grounds.database(engine, folder) as database:
            stage = Stage(
                scenario, engine, database, folder, seed=seed, seconds=seconds, show=Progress(title),
                serve=serving(engine, folder),
            )  # fmt: skip
            tally = perform(stage)
            say(f"{title}: {summary(tally)}")
            if not tally.ok:
                raise Wrong(tally)
    except Wrong as wrong:
        tell_of(wrong.tally, stage)
    except Exception:
        traceback.print_exc()
        if stage is None:
            raise
        tell_of(stage.tally, stage)
    assert stage is not None
    return stage.tally


class Wrong(Exception):
    """Keeps the folder."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(f"{len(tally.problems)} problems")
        self.tally = tally


def tell_of(tally: Tally, stage: Stage | None) -> None:
    for problem in tally.problems[:20]:
        say(f"    {problem}")
    if stage is not None:
        say(f"    kept: {stage.folder} and {stage.database}")


def summary(tally: Tally) -> str:
    what = f"{tally.injected:,} injected, {tally.operations:,} operations in {tally.seconds:.0f} s"
    wrong = f"lost {tally.lost}, doubled {tally.doubled}, stale honoured {tally.honoured}"
    return f"{what}: {wrong}, refused {tally.refused}: {'ok' if tally.ok else 'FAILED'}"


class Progress:
    """Where a play stands: one line that is written over on a terminal, else a line every ten seconds."""

    def __init__(self, title: str) -> None:
        self._title, self._next = title, 0.0
        self._every = 0.2 if sys.stderr.isatty() else 10.0

    def __call__(self, what: str) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{self._title}: {what}".ljust(100), end=end, file=sys.stderr, flush=True)


def report(table: Table, options: argparse.Namespace, seconds: float) -> None:
    print(table.text(), flush=True)
    if options.json:
        table.write_json(options.json)
    if options.markdown:
        run = f"`make faults MINUTES={options.minutes:g} SEED={options.seed}`, {seconds / 60:.0f} minutes"
        table.write_into(RELIABILITY, f"{datetime.now(UTC):%Y-%m-%d}: {run}.")


def say(what: str) -> None:
    print(what.ljust(100), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run(all_scenarios(), sys.argv[1:]))
