"""Counters and histograms: no count is lost under concurrency, and the number of series is bounded."""

from __future__ import annotations

import threading

import pytest

from dibs.observe import instruments
from dibs.observe.instruments import BUCKETS, OTHER, Counter, Histogram, Label


def test_a_duration_is_counted_in_the_first_bucket_that_contains_it() -> None:
    histogram = Histogram("seconds", "How long.")
    for seconds in (0.001, 0.09, 11.0):
        histogram.add(seconds)
    [(*counts, total)] = histogram.read().values()
    assert total == pytest.approx(11.091)
    assert {bound for bound, count in zip((*BUCKETS, "more"), counts, strict=True) if count} == {0.001, 0.1, "more"}
    assert sum(counts) == 3


def test_several_equal_durations_are_counted_in_one_call() -> None:
    histogram = Histogram("seconds", "How long.")
    histogram.add(0.5, times=4)
    [(*counts, total)] = histogram.read().values()
    assert (sum(counts), total) == (4, 2.0)


def test_no_count_is_lost_under_concurrency() -> None:
    counter = Counter("some", "Some.", Label("queue", most=3))
    names = ["a", "b", "c", "d"]
    threads = [threading.Thread(target=lambda: [counter.add(names[n % 4]) for n in range(2000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = counter.read()
    assert sum(count for (count,) in read.values()) == 16_000
    assert len(read) == 4
    assert read[OTHER,] == [4000]


def test_known_label_values_begin_at_zero() -> None:
    assert Counter("some", "Some.").read() == {(): [0]}
    assert Counter("some", "Some.", Label("reason", "a", "b")).read() == {("a",): [0], ("b",): [0]}
    assert Counter("some", "Some.", Label("queue", most=3)).read() == {}


def test_unknown_label_values_are_counted_as_other() -> None:
    counter = Counter("some", "Some.", Label("reason", "a"))
    counter.add("b")
    counter.add("c", times=2)
    assert counter.read() == {("a",): [0], (OTHER,): [3]}


def test_a_label_has_a_limited_number_of_values_across_all_its_families() -> None:
    queue = Label("queue", most=2)
    one, two = Counter("one", "One.", queue), Counter("two", "Two.", queue)
    one.add("a")
    two.add("b")
    one.add("c")
    two.add("a")
    assert one.read() == {("a",): [1], (OTHER,): [1]}
    assert two.read() == {("b",): [1], ("a",): [1]}


def test_a_family_has_a_limited_number_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "MAX_SERIES", 5)
    counter = Counter("some", "Some.", Label("queue", most=10), Label("type", most=10))
    for queue in "abcdefgh":
        for kind in "xyz":
            counter.add(queue, kind)
    read = counter.read()
    assert len(read) == 6
    assert read[OTHER, OTHER] == [24 - 5]


def test_reading_gives_a_copy() -> None:
    counter = Counter("some", "Some.")
    read = counter.read()
    counter.add()
    assert read == {(): [0]}
