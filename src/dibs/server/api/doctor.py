"""The doctor: what is wrong with the database, if anything is."""

from __future__ import annotations

import asyncio

from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.admin import Checks

TAG = "health"


@endpoint("GET", "/api/doctor", Scope.ADMIN, tag=TAG, answers={200: (Checks, "Each check with its verdict.")})
async def doctor(call: Call) -> Answer:
    """Look for damage, and for settings that would cost a guarantee. This reads the whole database."""
    call.caller.check_whole_store()
    checks = await asyncio.to_thread(call.service.store.doctor)
    return Answer(Checks.from_model(checks))


ENDPOINTS = [doctor]
