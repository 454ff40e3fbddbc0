"""JSON Schemas: compiling them, and validating params against them in bounded time and memory.

`cost` estimates the work of a validation, `compiling` is the validator itself, `processes` runs it in child processes
that are killed at a time limit, and `schema` chooses between this process and a child process.
"""

from __future__ import annotations

from dibs.store.schemas.processes import TooSlow
from dibs.store.schemas.schema import HERE, NotHere, Problem, Schema, check_schema

__all__ = ["HERE", "NotHere", "Problem", "Schema", "TooSlow", "check_schema"]
