"""How finalization claims are counted: every answer once, under a reason that is one of few, from many threads."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from dibs.errors import StoreBusy
from dibs.observe import finalization
from dibs.observe.finalization import BUCKETS, Counter, Histogram
from dibs.step import ClaimReason, FinalizationClaim
from dibs.store.operation import Operation, drive


def answered(answer: Any) -> Operation[Any]:
    """An operation that is answered with this."""

    def begin() -> Generator[Any, Any, Any]:
        yield from ()
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Operation("answered", begin)


def run(operation: Operation[Any]) -> Any:
    """What a store makes of it."""
    return operation.result(drive(operation.begin(), lambda step: None))


def claim(reason: ClaimReason) -> FinalizationClaim:
    return FinalizationClaim(1, "p1", reason in (ClaimReason.CLAIMED, ClaimReason.EXTENDED), reason, "state", "message")


def counts(*counters: Counter) -> list[int]:
    return [counter.read()[0][1] for counter in counters]


@pytest.mark.parametrize("reason", ClaimReason)
def test_a_claim_is_counted_by_its_answer(reason: ClaimReason) -> None:
    claims = finalization.claims
    before = counts(claims.attempts, claims.success, claims.refused), dict(finalization.contention.read())

    assert run(finalization.claiming(answered(claim(reason)))) == claim(reason)

    after = counts(claims.attempts, claims.success, claims.refused), dict(finalization.contention.read())
    granted = reason in (ClaimReason.CLAIMED, ClaimReason.EXTENDED)
    assert [new - old for old, new in zip(before[0], after[0], strict=True)] == [1, int(granted), int(not granted)]
    label = "other" if reason is ClaimReason.NOT_FOUND else str(reason)
    assert after[1] == (before[1] if granted else {**before[1], label: before[1][label] + 1})


def test_releases_and_extensions_have_counts_of_their_own() -> None:
    releases, extensions, claims = finalization.releases, finalization.extensions, finalization.claims
    before = counts(releases.refused, extensions.success, claims.attempts)

    run(finalization.releasing(answered(False)))
    run(finalization.extending(answered(claim(ClaimReason.EXTENDED))))

    after = counts(releases.refused, extensions.success, claims.attempts)
    assert [new - old for old, new in zip(before, after, strict=True)] == [1, 1, 0]


def test_what_fails_on_the_way_is_no_answer() -> None:
    before = counts(finalization.claims.attempts)

    with pytest.raises(StoreBusy):
        run(finalization.claiming(answered(StoreBusy("The database is locked."))))

    assert counts(finalization.claims.attempts) == before


def test_a_time_falls_into_every_bucket_that_is_wide_enough() -> None:
    histogram = Histogram("seconds", "How long.")
    for seconds in (0.001, 0.09, 11.0):
        histogram.add(seconds)

    buckets, total = histogram.read()
    assert total == pytest.approx(11.091)
    assert dict(buckets) == {str(bound): 1 if bound < 0.1 else 2 for bound in BUCKETS} | {"+Inf": 3}


def test_nothing_is_lost_where_many_count_at_once() -> None:
    counter = Counter("some", "Some.")
    threads = [threading.Thread(target=lambda: [counter.add() for _ in range(2000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counter.read() == [("", 16_000)]
