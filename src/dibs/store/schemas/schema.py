"""A registered JSON Schema. Short validations run in this process, others in a child process."""

from __future__ import annotations

import time
from typing import Any

from dibs.errors import InvalidValue
from dibs.json_values import decode
from dibs.store.schemas.compiling import InvalidSchema, compile_schema, describe
from dibs.store.schemas.cost import UNBOUNDED, Cost, cost_of
from dibs.store.schemas.processes import TooSlow, ValidationResult, processes

TIME_LIMIT = 2.0
"""Seconds for which one value may be validated."""

HERE = 2_000_000.0
"""Estimated work (see cost.py) up to which params are validated in this process: 20 to 80 ms in the worst case, some
microseconds for ordinary params."""

DESCRIBED_HERE = 50_000.0
"""The limit for describing an error in this process if the schema has alternatives: each failed alternative is an error
of its own, with a copy of the value, and takes a hundred times as long as the validation."""

LONGEST_HERE = 64 * 1024
"""Characters of a schema that is compiled in this process (some 20 ms)."""

COMPILED_HERE = 50_000.0
"""The largest work of compiling regular expressions in this process (some 20 ms)."""

NO_TIME_LEFT = "longer than the time for all params of one call, together with those before them"

Problem = tuple[str, str]
"""The place of an error in params, and its description."""


class NotHere(Exception):
    """The validation needs a child process, for which this caller must not wait."""


class Schema:
    """A registered schema. It is analysed and compiled when it is first needed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: Cost | None = None
        self._compiled: Any = None

    def work(self, params: Any, size: int) -> float:
        """The estimated work of validating params that take `size` characters as JSON; above HERE it is done in
        another process."""
        cost = self._cost
        if (most := cost.peaks[-1] * size) <= HERE:
            return most
        return cost.peak(_depth(params)) * size

    def brief(self, params: Any, size: int) -> bool:
        """True if no child process is needed, whether the params are valid or not."""
        return self.work(params, size) <= (DESCRIBED_HERE if self._cost.branches else HERE)

    def validate(self, params: Any, text: str, until: float | None) -> Problem | None:
        """The error in the params, or None. TooSlow if the validation takes longer than TIME_LIMIT or lasts past
        `until`. Without `until`: NotHere if a child process is needed."""
        work = self.work(params, len(text))
        if work > HERE:
            return _problem(self._validate_elsewhere(text, until))
        if until is not None and time.monotonic() > until:
            raise TooSlow(NO_TIME_LEFT)
        if self._validator.is_valid(params):
            return None
        if work <= DESCRIBED_HERE or not self._cost.branches:
            return describe(self._validator, params)
        return _problem(self._validate_elsewhere(text, until, decided=True))

    def _validate_elsewhere(
        self, params: str | None, until: float | None, *, decided: bool = False
    ) -> ValidationResult:
        if until is None:
            raise NotHere
        seconds = min(TIME_LIMIT, until - time.monotonic())
        if seconds <= 0:
            raise TooSlow(NO_TIME_LEFT)
        try:
            return processes().validate(self._text, params, decided=decided, seconds=seconds)
        except InvalidSchema as error:
            raise _invalid(error) from None

    def check(self) -> None:
        """Compile the schema. InvalidValue if it is invalid or takes too long to compile."""
        if self._cost is not UNBOUNDED:
            _ = self._validator
            return
        try:
            self._validate_elsewhere(None, time.monotonic() + TIME_LIMIT)
        except TooSlow as error:
            raise InvalidValue(
                f"Compiling this JSON Schema takes {error}.",
                hint="Make it smaller, or its regular expressions simpler.",
            ) from None

    @property
    def needs_process(self) -> bool:
        """True if even the smallest params are validated in a child process."""
        return self._cost is UNBOUNDED

    @property
    def _cost(self) -> Cost:
        if self._known is None:
            cost = cost_of(decode(self._text)) if len(self._text) <= LONGEST_HERE else UNBOUNDED
            self._known = cost if cost.compiling <= COMPILED_HERE else UNBOUNDED
        return self._known

    @property
    def _validator(self) -> Any:
        if self._compiled is None:
            try:
                self._compiled = compile_schema(decode(self._text))
            except InvalidSchema as error:
                raise _invalid(error) from None
        return self._compiled


def check_schema(text: str, *, cheap: bool = False) -> None:
    """Raise InvalidValue if the text is not a JSON Schema that dibs can use. `cheap`: also if each validation needs a
    child process."""
    schema = Schema(text)
    if cheap and schema.needs_process:
        raise InvalidValue(
            "Each validation by this JSON Schema takes a process of its own.",
            hint="It is too large, or too deeply recursive. Use simpler types, or check the params in the handler.",
        )
    schema.check()


def _problem(result: ValidationResult) -> Problem | None:
    if result.valid:
        return None
    return result.place, result.message or "does not fit the schema (describing where takes too long)"


def _invalid(error: InvalidSchema) -> InvalidValue:
    return InvalidValue(f"This is not a valid JSON Schema: {error}")


def _depth(value: Any) -> int:
    """The nesting depth of a value, which json_values.py limits."""
    if type(value) is dict:
        return 1 + max(map(_depth, value.values()), default=0)
    if type(value) is list or type(value) is tuple:
        return 1 + max(map(_depth, value), default=0)
    return 0
