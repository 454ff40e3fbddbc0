"""The API, one module for each resource; what is asked for most often stands first, as paths are tried in order."""

from __future__ import annotations

from dibs.server.api import claims, tasks
from dibs.server.endpoint import Endpoint

ENDPOINTS: list[Endpoint] = [
    *claims.ENDPOINTS,
    *tasks.ENDPOINTS,
]
