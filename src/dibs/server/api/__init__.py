"""The HTTP API, one module for each resource. Paths are matched in order, so the most frequent requests come first."""

from __future__ import annotations

from dibs.server.api import (
    admin,
    claims,
    dead_letter,
    docs,
    finalization,
    health,
    history,
    leases,
    limits,
    logs,
    outcomes,
    retention,
    schedules,
    tasks,
    upkeep,
    workflows,
)
from dibs.server.endpoint import Endpoint

ENDPOINTS: list[Endpoint] = [
    *tasks.ENDPOINTS,
    *outcomes.ENDPOINTS,
    *claims.ENDPOINTS,
    *leases.ENDPOINTS,
    *history.ENDPOINTS,
    *logs.ENDPOINTS,
    *admin.ENDPOINTS,
    *health.ENDPOINTS,
    *schedules.ENDPOINTS,
    *workflows.ENDPOINTS,
    *finalization.ENDPOINTS,
    *upkeep.ENDPOINTS,
    *retention.ENDPOINTS,
    *limits.ENDPOINTS,
    *dead_letter.ENDPOINTS,
    *docs.ENDPOINTS,
]
