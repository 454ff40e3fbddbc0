"""A worker in a separate process: `python -m tests.helpers.work URL '{"lease": 2}'`. Exits with the result of `run`."""

from __future__ import annotations

import json
import logging
import sys

from tests.helpers.handlers import at

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    with at(sys.argv[1]) as app:
        code = app.worker(**json.loads(sys.argv[2])).run()
    sys.exit(code)
