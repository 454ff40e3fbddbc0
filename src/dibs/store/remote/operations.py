"""The operations of the store behind a server: what each asks, and what it reads from the answer."""

from __future__ import annotations

from dibs.store.remote.claims import RemoteClaims
from dibs.store.remote.house import RemoteHouse
from dibs.store.remote.tasks import RemoteTasks
from dibs.store.remote.workflows import RemoteWorkflows


class RemoteOperations(RemoteTasks, RemoteClaims, RemoteHouse, RemoteWorkflows):
    """Every operation of the contract, for a store that is spoken to over HTTP."""
