"""Where Prometheus asks a worker, in one process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.observe.metrics_server import Health
    from dibs.observe.sharing import Counts

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        help="Serve /metrics and /health there; 0 for any free port.",
        min=0,
        max=65535,
    ),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", metavar="ADDRESS", help="Where to serve them; nobody is asked for a key.")
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where to serve metrics; nowhere, where there is no port."""

    host: str
    port: int | None

    @contextmanager
    def serving(self, total: Callable[[], Counts], health: Callable[[], Health]) -> Iterator[None]:
        """Tell what was counted, and how all is, while the block lasts."""
        if self.port is None:
            yield
            return
        try:
            from dibs.observe.exposition import FORMAT, page_of
        except ImportError as error:
            raise InvalidValue(
                f"--metrics-port needs a package that is not installed ({error}).", hint="pip install 'dibs[metrics]'"
            ) from None
        from dibs.observe.metrics_server import serving

        with serving(self.host, self.port, lambda: page_of(total), health, FORMAT):
            yield
