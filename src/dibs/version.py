"""The version of dibs.

The build reads this file (`[tool.hatch.version]` in pyproject.toml), so the assignment stays a literal string.
"""

__version__ = "0.1.0.dev0"
