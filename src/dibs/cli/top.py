"""`dibs top`: the store, live in the terminal, without becoming a load of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from dibs.cli.context import opened
from dibs.cli.options import Json, Url
from dibs.cli.output import Output

if TYPE_CHECKING:
    from rich.live import Live

    from dibs.cli.keyboard import Wait
    from dibs.cli.snapshot import Snapshot
    from dibs.client import Dibs

EVERY = 1.0
SHARE = 5
"""After a look that took long, wait so many times as long: at most a fifth of the time is spent in the database."""

GLANCE = 0.2
"""How soon a new size of the terminal is noticed."""


def top(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """Watch the store live: q quits, p pauses. Without a terminal, or with --json: one look."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.cli.snapshot import look, shaped

        if output.as_json:
            output.answer(shaped(look(client)))
        elif output.on_terminal:
            Top(client, output).run()
        else:
            _once(output, look(client))


def _once(output: Output, seen: Snapshot) -> None:
    from dibs.cli import layout

    output.say(f"{seen.url} at {seen.at:%Y-%m-%d %H:%M:%S} UTC")
    output.say(layout.depth(seen).plain.rstrip())
    output.say(layout.speed(seen).plain)
    for columns, rows in layout.sections(seen, layout.WIDE):
        if rows:
            output.say("")
            output.table(columns, rows)


def pause_after(took: float) -> float:
    """Seconds until the next look, after one that took so many."""
    return max(EVERY, SHARE * took)


class Top:
    """The live view: look, draw, wait for keys, again."""

    def __init__(self, client: Dibs, output: Output) -> None:
        from dibs.cli.snapshot import Throughput

        self._client = client
        self._console = output.console
        self._throughput = Throughput()
        self._paused = False

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Until somebody quits, or `until` says so."""
        from rich.live import Live

        from dibs.cli.keyboard import keys

        with keys() as wait, Live(console=self._console, screen=True, auto_refresh=False) as live:
            while not until() and self._round(live, wait):
                pass

    def _round(self, live: Live, wait: Wait) -> bool:
        """One look and the time until the next; False to quit."""
        from dibs.cli.snapshot import look

        seen = look(self._client)
        self._throughput.note(seen)
        next_look = time.monotonic() + pause_after(seen.took)
        while self._paused or time.monotonic() < next_look:
            self._draw(live, seen)
            match wait(GLANCE).lower():
                case "q":
                    return False
                case "p":
                    self._paused = not self._paused
        return True

    def _draw(self, live: Live, seen: Snapshot) -> None:
        from dibs.cli.layout import draw

        width, height = self._console.size
        frame = draw(seen, self._throughput.sparkline(), width, height, paused=self._paused)
        live.update(frame, refresh=True)
