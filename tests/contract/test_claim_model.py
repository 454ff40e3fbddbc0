"""Every claim takes the tasks that a plain model of the queue takes, whatever the queues, types, filters and orders.

The model and the random claims are in tests/helpers/claim_model.py. `make test` plays some hundred claims with the same
seed in every run; `make proof` plays thousands with another seed (tests/contract/test_many_claims.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dibs import Order
from tests.helpers.claim_model import ORDERS, RANDOM_ORDERS, SHAPES, Play
from tests.helpers.clients import Clock

CLAIMS = 60
"""Claims for each shape."""


def test_the_model_has_every_order() -> None:
    assert {*ORDERS, *RANDOM_ORDERS} == set(Order)


@pytest.mark.parametrize("shape", SHAPES)
def test_random_claims_take_what_the_model_takes(app: Any, clock: Clock, shape: str) -> None:
    play = Play(app, clock, SHAPES[shape], seed=1)
    play.run(CLAIMS)
    assert play.done["tasks"] > CLAIMS, "most claims found nothing"
