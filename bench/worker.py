"""dibs beside other queues and the raw driver, on SQLite, PostgreSQL and Redis: `python -m bench.worker --help`.

Every run has a fresh database; all sides take turns, so that other load on the machine affects them alike. After
every run the store is checked: no task lost, none run twice. A failed run is shown as failed, and the program then
exits with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console

if __name__ == "__main__":  # run as a script, from anywhere; in place of this folder, whose http.py is not Python's
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import comparison, results
from bench.contention import QUICK_WORKERS, WORKERS, Reserve, contentions
from bench.contest import Contestant, Figures, Meeting
from bench.databases import ENGINES, Engine
from bench.growth import QUICK_ROWS, ROWS, growths
from bench.plots import draw
from bench.queues.contests import Sizes, contests
from bench.queues.peers import PEERS, Peer
from bench.queues.systems import PeerSystem
from bench.queues.venvs import NotHere, version_of
from bench.redis_server import REDIS, has_redis
from bench.tables import Report, replace
from bench.worker_report import WORKER

DOCUMENTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
ALL = ENGINES | REDIS
PEERS_TOO = {"drain", "enqueue", "mix", "pick-up", "idle"}
"""What is measured of other queues as well; the rest is dibs alone."""


def main() -> None:
    """Measure everything that was asked for, show it, and keep it."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 120))
    if not arguments.render:
        _measure_and_show(arguments, console)
    if arguments.markdown or arguments.render:
        render(arguments.json)


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    """Run all contests on all engines."""
    sizes = Sizes.quick(arguments.tasks) if arguments.quick else Sizes(arguments.tasks)
    meeting = Meeting("bench.worker", arguments.repeat, arguments.quick, f"{sizes.tasks:,} tasks", console)
    with contextlib.ExitStack() as stack:
        team = Team(arguments.peer, 1 if arguments.quick else None, console)
        names = team.engines(arguments.engine)
        engines = [stack.enter_context(contextlib.closing(ALL[name]())) for name in names]
        reserve = stack.enter_context(
            contextlib.closing(Reserve(QUICK_WORKERS if arguments.quick else arguments.workers))
        )
        wanted = [
            contest
            for contest in _all_contests(arguments, engines, sizes, team, reserve)
            if contest and contest[0].kind in arguments.only
        ]
        report = meeting.hold(wanted, engines, ("psycopg",), team.versions)
    return msgspec.structs.replace(report, absent=team.absent)


def render(file: Path) -> None:
    """Put the tables and plots of what is in the file into the documentation."""
    kept = results.read(file)
    joined = kept.joined(WORKER)
    plots = draw(joined, DOCUMENTS)
    replace(DOCUMENTS / "worker.md", WORKER.markdown(joined, f"{kept.made_with}\n\n{plots}"))
    replace(DOCUMENTS.parent / "comparison.md", comparison.markdown(joined, kept.made_with))


class Team:
    """The other queues that can be measured here, with at most this number of settings, and why others cannot."""

    def __init__(self, only: list[str] | None, settings: int | None, console: Console) -> None:
        self.versions: dict[str, str] = {}
        self.absent: dict[str, str] = {}
        self._only, self._settings = only, settings
        self._console = console

    def engines(self, wanted: list[str]) -> list[str]:
        """The names of the queues that are available here."""
        if not has_redis() and set(wanted) & set(REDIS):
            self.absent["queues with Redis"] = "no redis-server is installed"
        return [name for name in wanted if name not in REDIS or has_redis()]

    def systems(self, engine: Engine) -> Iterator[PeerSystem | Contestant]:
        """The peers on this engine; one whose environment cannot be made is a contestant that fails."""
        for peer in PEERS:
            if peer.engine == engine.family and (not self._only or peer.name in self._only):
                self._console.print(f"{peer.name} for {engine.name}: its environment ...", style="dim")
                try:
                    yield PeerSystem(peer, self._settings)
                    self.versions[peer.package] = version_of(peer.venv, peer.package, peer.python)
                except NotHere as reason:
                    self.absent[peer.name] = str(reason)
                except RuntimeError as error:
                    yield _failing(peer, engine, error)


def _all_contests(
    arguments: argparse.Namespace, engines: list[Engine], sizes: Sizes, team: Team, reserve: Reserve
) -> Iterator[list[Contestant]]:
    for engine in engines if PEERS_TOO & set(arguments.only) else []:
        found = list(team.systems(engine))
        yield [each for each in found if isinstance(each, Contestant)]
        for contest in contests(engine, sizes, [each for each in found if isinstance(each, PeerSystem)]):
            yield contest if contest and contest[0].kind in engine.kinds else []
    for engine in engines:
        if engine.has_dibs:
            yield from growths(engine, QUICK_ROWS if arguments.quick else arguments.rows)
    for engine in engines:
        if engine.has_dibs:
            yield from contentions(engine, reserve, sizes.tasks // 3)


def _failing(peer: Peer, engine: Engine, error: RuntimeError) -> Contestant:
    return Contestant("drain", "drain", engine.name, peer.name, 1, "", partial(_raise, error))


def _raise(error: RuntimeError) -> Figures:
    raise error


def _measure_and_show(arguments: argparse.Namespace, console: Console) -> None:
    report = measure(arguments, console)
    console.print(*WORKER.tables(report), report.made_with, sep="\n")
    for failure in report.failures:
        console.print(f"FAILED: {failure}", style="bold red", markup=False)
    if arguments.json:
        results.write(arguments.json, results.read(arguments.json).with_run(report))
    if report.failures:
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure dibs beside other queues and the raw drivers.")
    parser.add_argument("--engine", action="append", choices=list(ALL), help="only this one (may be repeated)")
    parser.add_argument(
        "--only", action="append", choices=list(WORKER.chapters), help="only this kind (may be repeated)"
    )
    parser.add_argument(
        "--peer", action="append", choices=sorted({peer.name for peer in PEERS}), help="only this one beside dibs"
    )
    parser.add_argument("--tasks", type=int, help="tasks a run; slow queues get fewer (60,000; quick: 1,200)")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="sizes of the growing database")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, help="how many contend")
    parser.add_argument("--repeat", type=int, help="how often each side is measured (3; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a small version: a few minutes, and noisier")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="put the results into this file, beside what is there"
    )
    parser.add_argument("--markdown", action="store_true", help="also renew the tables and plots of docs/benchmarks")
    parser.add_argument("--render", action="store_true", help="only renew them, from the file, and measure nothing")
    arguments = parser.parse_args()
    return _complete(parser, arguments)


def _complete(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> argparse.Namespace:
    arguments.only = arguments.only or list(WORKER.chapters)
    arguments.repeat = arguments.repeat or (1 if arguments.quick else 3)
    arguments.tasks = arguments.tasks or (1_200 if arguments.quick else 60_000)
    if arguments.markdown or arguments.render:
        arguments.json = arguments.json or DOCUMENTS / "worker.json"
    arguments.engine = arguments.engine or [name for name in ALL if _belongs(name, arguments)]
    if arguments.repeat < 1 or arguments.tasks < 100:
        parser.error("--repeat must be at least 1, and --tasks at least 100")
    if arguments.quick and arguments.markdown:
        parser.error("a quick run is too noisy for the documentation")
    return arguments


def _belongs(engine: str, arguments: argparse.Namespace) -> bool:
    """Whether the scenario is measured if no engine is given: not all are by all kinds, or in a small version."""
    if arguments.quick and engine == "redis-fsync":
        return False
    return engine in ENGINES or bool(PEERS_TOO & set(arguments.only))


if __name__ == "__main__":
    main()
