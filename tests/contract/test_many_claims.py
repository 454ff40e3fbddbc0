"""Thousands of random claims take the tasks that a plain model of the queue takes (tests/helpers/claim_model.py).

The seed is another in each run. It is printed if a test fails; STRESS_SEED repeats it. `make stress` plays more claims:
STRESS_EXAMPLES times fifty.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from tests.helpers.claim_model import SHAPES, Play
from tests.helpers.clients import Clock

SEED = int(os.environ.get("STRESS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
EXAMPLES = int(os.environ.get("STRESS_EXAMPLES", "0"))
CLAIMS = -(-(EXAMPLES * 50 or 3_000) // len(SHAPES))
"""Claims for each shape."""


@pytest.mark.timeout(7200 if EXAMPLES else 600)
@pytest.mark.parametrize("shape", SHAPES)
def test_thousands_of_random_claims_take_what_the_model_takes(app: Any, clock: Clock, shape: str) -> None:
    print(f"seed {SEED}")
    play = Play(app, clock, SHAPES[shape], SEED)
    play.run(CLAIMS)
    assert play.done["tasks"] > CLAIMS, "most claims found nothing"
