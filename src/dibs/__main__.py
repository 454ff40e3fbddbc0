"""`python -m dibs`: runs the command line where the script `dibs` is not on the path."""

from __future__ import annotations

from dibs.cli import main

if __name__ == "__main__":
    main()
