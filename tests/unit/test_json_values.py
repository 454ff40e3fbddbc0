"""Decoding stored JSON takes time in proportion to its length, whatever the numbers in it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from dibs.json_values import decode, encode


def seconds(function: Any, text: str) -> float:
    """The CPU time of this thread, the shortest of three."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        function(text)
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("number", [1e308, -1.7976931348623157e308, 5e-324, 2.5e-300])
def test_numbers_of_any_size_are_decoded_about_as_quickly_as_others(number: float) -> None:
    text = encode([number] * 40_000)
    assert decode(text) == [number] * 40_000
    assert seconds(decode, text) < 10 * seconds(json.loads, text)


@pytest.mark.parametrize(
    "value", [[1e308] * 2000, ["e30" * 3000], {"a": [5e-324, 2**63 - 1, "é\u2028", None, True] * 999}]
)
def test_long_texts_are_decoded_to_what_was_encoded(value: Any) -> None:
    assert decode(encode(value)) == value
