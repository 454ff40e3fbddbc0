"""`dibs demo`: two workers on a lively sample, one of them killed on the way, and the books checked at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli.output import Output

if TYPE_CHECKING:
    from dibs.client import Dibs

WITHOUT_A_TERMINAL = 15.0
KILL_AFTER = 4.0


def demo(
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="N", help="End after so long; on a terminal otherwise when you press q."),
    ] = None,
) -> None:
    """Watch two workers on a lively sample, in a temporary SQLite file. One is killed on the way: nothing is lost."""
    output = Output(as_json=False)
    with tempfile.TemporaryDirectory(prefix="dibs-demo-") as folder:
        os.environ["DIBS_URL"] = f"sqlite:///{folder}/demo.db"
        from dibs import demo as sample

        with _workers(Path(folder)) as crew:
            visitors = sample.Visitors()
            visitors.start()
            _watch(sample.app, output, seconds, crew)
            visitors.send_away()
            output.say("No more visitors. The workers may finish what they have begun …")
        _check(sample.app, output)
        sample.app.close()


class Crew:
    """Two worker processes, restarted like a service manager would."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "workers.log").open("ab")
        self._members = [self._start(number) for number in (1, 2)]

    def kill_one(self) -> None:
        """Kill -9: no goodbye, no clean-up. Another takes its place; its tasks come back when their leases end."""
        self._members[0].kill()
        self._members[0].wait()
        self._members[0] = self._start(3)

    def stop(self) -> None:
        """Let them finish what they have begun."""
        for member in self._members:
            member.terminate()
        for member in self._members:
            member.wait()
        self._log.close()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dibs", "worker", "dibs.demo:app", "--lease", "3", "--children", "1"]
        return subprocess.Popen([*command, "--worker-id", f"demo-{number}"], stderr=self._log)  # noqa: S603


@contextmanager
def _workers(folder: Path) -> Iterator[Crew]:
    crew = Crew(folder)
    try:
        yield crew
    finally:
        crew.stop()


def _watch(app: Dibs, output: Output, seconds: float | None, crew: Crew) -> None:
    begun = time.monotonic()
    killed = False

    def over() -> bool:
        nonlocal killed
        passed = time.monotonic() - begun
        if passed > KILL_AFTER and not killed:
            killed = True
            crew.kill_one()
        return seconds is not None and passed > seconds

    if output.on_terminal:
        from dibs.cli.top import Top

        Top(app, output).run(until=over)
    else:
        seconds = WITHOUT_A_TERMINAL if seconds is None else seconds
        while not over():
            depth = app.stats().depth
            output.say("   ".join(f"{state} {count}" for state, count in sorted(depth.items())))
            time.sleep(1)


def _check(app: Dibs, output: Output) -> None:
    from dibs.observe.verify import verify

    history = app.all_history()
    recovered = sum(entry.event == "recovered" for entry in history)
    report = verify(history)
    depth = app.stats().depth
    output.say(f"One worker was killed; {recovered} of its tasks were taken back when their leases ended.")
    output.say(f"Tasks: {', '.join(f'{count} {state}' for state, count in sorted(depth.items()))}.")
    output.say(f"The books, read again by the checker: {report}")
