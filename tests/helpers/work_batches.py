"""A worker with batch handlers in a separate process, as in work.py."""

from __future__ import annotations

import json
import logging
import sys

from tests.helpers.batches import app

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    app.use_url(sys.argv[1])
    with app:
        code = app.worker(**json.loads(sys.argv[2])).run()
    sys.exit(code)
