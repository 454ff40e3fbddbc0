"""The HTTP address at which a worker serves its metrics and health."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.observe.metrics_server import HealthStatus
    from dibs.observe.sharing import Counts

MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        help="Port for /metrics and /health; 0: any free port; default: none.",
        min=0,
        max=65535,
    ),
]
MetricsHostOption = Annotated[
    str,
    typer.Option("--metrics-host", metavar="ADDRESS", help="Address for /metrics and /health, which need no API key."),
]


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """The address for metrics. Without a port, no metrics are served."""

    host: str
    port: int | None

    @contextmanager
    def serving(self, total: Callable[[], Counts], health: Callable[[], HealthStatus]) -> Iterator[None]:
        """Serve the counters and the health until the block ends."""
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
