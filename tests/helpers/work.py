"""A worker in a process of its own: `python -m tests.helpers.work URL '{"lease": 2}'`. Exits with what `run` gives."""

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
