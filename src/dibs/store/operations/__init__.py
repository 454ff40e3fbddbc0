"""The operations of the SQL engines: what each does, in statements that both engines have under the same name."""

from __future__ import annotations

from dibs.store.operations.claiming import Claiming
from dibs.store.operations.enqueueing import Enqueueing
from dibs.store.operations.finishing import Finishing
from dibs.store.operations.looking import Looking
from dibs.store.operations.managing import Managing
from dibs.store.operations.registering import Registering
from dibs.store.operations.scheduling import Scheduling
from dibs.store.operations.tending import Tending


class SqlOperations(Enqueueing, Claiming, Finishing, Managing, Tending, Looking, Registering, Scheduling):
    """Every operation of the contract, for engines that speak SQL."""
