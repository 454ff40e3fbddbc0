"""History: what happened to all tasks, page by page."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from dibs import shape
from dibs.body.fields import EntryId
from dibs.model.claim import MAX_BATCH
from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint

TAG = "events"


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page."""

    after: Annotated[EntryId, Meta(description="The id of the last entry of the page before.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH, description="Entries on a page.")] = MAX_BATCH


class WholeHistory(msgspec.Struct, frozen=True):
    """A page of the history of all tasks."""

    history: list[shape.HistoryEntryShape]


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
    return Answer(WholeHistory([shape.history_entry(entry) for entry in entries]))


ENDPOINTS = [history]
