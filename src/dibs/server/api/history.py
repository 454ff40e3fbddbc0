"""History: what happened to all tasks, page by page."""

from __future__ import annotations

from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.history import HistoryQuery, WholeHistory

TAG = "events"


@endpoint(
    "GET",
    "/api/history",
    Scope.READ,
    tag=TAG,
    query=HistoryQuery,
    answers={200: (WholeHistory, "In order; empty after the last page.")},
)
async def history(call: Call) -> Answer:
    """Everything that happened to all tasks, in order."""
    call.caller.check_whole_store()
    query: HistoryQuery = call.query or HistoryQuery()
    entries = await call.run(call.service.store.history.history_after(query.after, query.limit))
    return Answer(WholeHistory.from_model(entries))


ENDPOINTS = [history]
