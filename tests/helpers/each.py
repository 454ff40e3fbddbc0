"""One test that checks many values: collected once, and it reports every value that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(
    parameters: str, values: Iterable[Any], name: Callable[[Any], str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test with each of the values, where `parametrize` would make a case of each.

    For checks that take microseconds: a case costs more than such a check, once in every test process. `parameters`:
    one name, or several with commas for tuples.
    """
    names = [each.strip() for each in parameters.split(",")]
    cases = list(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def test_all(**fixtures: Any) -> None:
            assert cases, "there is nothing to check"
            failures = []
            for case in cases:
                arguments = dict(zip(names, case if len(names) > 1 else (case,), strict=True))
                try:
                    test(**fixtures, **arguments)
                except Exception as error:
                    error.add_note(f"checked: {name(case)}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} failed", failures)

        signature = inspect.signature(test)
        kept = [each for each in signature.parameters.values() if each.name not in names]
        test_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return test_all

    return decorate
