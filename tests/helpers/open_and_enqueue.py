"""`python -m tests.helpers.open_and_enqueue URL N`: wait until standard input ends, then open the store and enqueue."""

from __future__ import annotations

import sys

import dibs

if __name__ == "__main__":
    sys.stdin.read()
    with dibs.Dibs(sys.argv[1]) as app:
        app.enqueue("resize", {"n": int(sys.argv[2])})
