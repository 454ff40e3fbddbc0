"""The API, one module for each resource; what is asked for most often stands first, as paths are tried in order."""

from __future__ import annotations

from dibs.server.api import (
    claims,
    dead_letter,
    describing,
    doctor,
    events,
    finalization,
    health,
    history,
    holding,
    keys,
    metrics,
    outcomes,
    queues,
    schedules,
    stats,
    stepping,
    task_types,
    tasks,
    upkeep,
    wakeups,
    workers,
    workflows,
)
from dibs.server.endpoint import Endpoint

ENDPOINTS: list[Endpoint] = [
    *tasks.ENDPOINTS,
    *outcomes.ENDPOINTS,
    *claims.ENDPOINTS,
    *holding.ENDPOINTS,
    *wakeups.ENDPOINTS,
    *workers.ENDPOINTS,
    *queues.ENDPOINTS,
    *stats.ENDPOINTS,
    *health.ENDPOINTS,
    *metrics.ENDPOINTS,
    *task_types.ENDPOINTS,
    *schedules.ENDPOINTS,
    *stepping.ENDPOINTS,
    *workflows.ENDPOINTS,
    *finalization.ENDPOINTS,
    *history.ENDPOINTS,
    *events.ENDPOINTS,
    *upkeep.ENDPOINTS,
    *dead_letter.ENDPOINTS,
    *keys.ENDPOINTS,
    *doctor.ENDPOINTS,
    *describing.ENDPOINTS,
]
