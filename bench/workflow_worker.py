"""A worker as it comes with a handler that does nothing: `python -m bench.workflow_worker URL`."""

from __future__ import annotations

import sys

from bench.sides import TYPE
from dibs import Dibs

if __name__ == "__main__":
    app = Dibs(sys.argv[1])

    @app.task(name=TYPE)
    def bench(number: int) -> None:
        """Nothing."""

    sys.exit(app.worker().run())
